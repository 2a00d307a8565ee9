"""Another codex on disk than the one that runs: notice it, and put it to use when all is quiet."""

import os
import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import anyio
import structlog

from codexdrv.binary import Binary, Origin, find_binary, origin_of, read_version, stamp_of
from codexdrv.config import Server
from codexdrv.engine.session import Link
from codexdrv.engine.trouble import Trouble
from codexdrv.errors import CodexdrvError


READ_TIMEOUT_S = 5.0
"""A cold disk may need more, and has less to read the next time. A process that ends waits for its
threads: a stop has no more room than that."""

DELETED = " (deleted)"
"""How /proc/PID/exe ends once the file was replaced (proc(5))."""

Result = TypeVar("Result")

log = structlog.get_logger()


class OnDisk(NamedTuple):
    """The codex that a start would use now."""

    origin: Origin
    #: What it says it is; None: it does not run.
    version: str | None


def _read_in_time(path: str) -> str:
    return read_version(path, timeout_s=READ_TIMEOUT_S)


class Upgrade:
    """What lies on disk, compared with the server that runs."""

    def __init__(
        self,
        server: Server,
        *,
        find: Callable[[str | None, str], Binary] = find_binary,
        read: Callable[[str], str] = _read_in_time,
        proc: str = "/proc",
    ) -> None:
        self._server = server
        self._find = find
        self._read = read
        self._proc = proc
        self._seen: OnDisk | None = None
        #: What was logged last.
        self._told: OnDisk | None = None
        self._trouble = Trouble("binary.unusable", "binary.usable")
        #: Says whether another codex lies there than the one that runs.
        self.is_due = False
        #: Says whether it is to take the place of a server of our own.
        self.is_upgrade = False
        self._hurried = anyio.Event()

    @property
    def version(self) -> str | None:
        """The version of the codex on disk, as of the last look; None: not known."""
        return self._seen.version if self._seen else None

    def hurry(self) -> None:
        """Look again now."""
        self._hurried.set()

    async def pause(self, seconds: float) -> None:
        """Wait until the next look."""
        with anyio.move_on_after(seconds):
            await self._hurried.wait()
        self._hurried = anyio.Event()

    async def look(self, link: Link, running: Origin | None) -> bool:
        """Look once; say whether anything has changed since the last look.

        Args:
            link: the connection, and who is behind it.
            running: what our own server was started from; None: it is not ours.
        """
        before = self._seen, self.is_due
        self._seen = seen = await self._see(link)
        self.is_due = seen is not None and is_outdated(seen, running, link)
        self.is_upgrade = seen is not None and self.is_due and is_upgrade(seen, running, link)
        # Once: while it is being installed, it comes and goes.
        if seen is not None and self.is_due and seen != self._told:
            self._told = seen
            log.warning(
                "server.outdated",
                running=link.version,
                on_disk=seen.version,
                codex=seen.origin.stamp.path,
                takes_its_place=self.is_upgrade,
            )
        return (self._seen, self.is_due) != before

    async def _see(self, link: Link) -> OnDisk | None:
        try:
            origin = await _beside(lambda: self._origin(link))
        except CodexdrvError as error:
            # What runs, runs on.
            self._trouble.note(str(error))
            return None
        if origin is None:
            return None
        # One that could not be read may be half installed, or on a cold disk: it is read again.
        if self._seen is not None and self._seen.origin == origin and self._seen.version:
            return self._seen
        path = origin.stamp.path
        try:
            version = await _beside(lambda: self._read(path))
        except CodexdrvError as error:
            self._trouble.note(str(error), codex=path)
            return OnDisk(origin, None)
        self._trouble.end(codex=path)
        return OnDisk(origin, version)

    def _origin(self, link: Link) -> Origin | None:
        """Say what a start would use now.

        Raises:
            ConfigurationError, NoCodex: our own server could not be started.
        """
        is_ours = self._server.spawn is not None
        found = None
        try:
            found = self._find(self._server.codex, self._server.search_path)
        except CodexdrvError:
            if is_ours:
                raise
        if is_ours or (found is not None and not found.is_bundled):
            return origin_of(found) if found else None
        # A service may have a PATH on which no codex is. Whoever runs the server has started it.
        theirs = self._started_from(link)
        stamp = stamp_of(theirs) if theirs else None
        if theirs and stamp:
            return Origin(theirs, stamp)
        return origin_of(found) if found else None

    def _started_from(self, link: Link) -> str | None:
        # Only of a process that is known to be the server itself, not a forwarder.
        if link.peer is None:
            return None
        try:
            target = os.readlink(f"{self._proc}/{link.peer.pid}/exe")
        except OSError:
            return None
        return target.removesuffix(DELETED)


async def _beside(look: Callable[[], Result]) -> Result:
    """Look in a thread, which a stop leaves behind: files of 400 MB on a cold disk, a process."""
    return await anyio.to_thread.run_sync(look, abandon_on_cancel=True)


def is_outdated(seen: OnDisk, running: Origin | None, link: Link) -> bool:
    """Say whether a start would bring another codex than the one that runs.

    Of our own server we know the file: another one in its place may be of the same version.
    """
    if seen.version is None:
        return False
    if running is not None and seen.origin.place == running.place:
        return seen.origin != running
    return link.version is not None and link.version != seen.version


def is_upgrade(seen: OnDisk, running: Origin | None, link: Link) -> bool:
    """Say whether what is outdated was replaced where it lay, and by nothing older.

    While codex is being installed, another one may be the first on PATH, or the bundled one count.
    """
    if running is None or seen.version is None or seen.origin.place != running.place:
        return False
    return link.version is None or _age(seen.version) >= _age(link.version)


def _age(version: str) -> tuple[list[int], bool, list[int]]:
    """Order versions, "0.172.0-alpha.3" before "0.172.0"."""
    release, _, preview = version.partition("-")
    return _numbers(release), not preview, _numbers(preview)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]
