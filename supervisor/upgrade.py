"""Another codex on disk than the one that runs: notice it, and put it to use when all is quiet."""

import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import anyio
import structlog

from codexdrv.binary import Binary, Stamp, find_binary, read_version, stamp_of
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

    stamp: Stamp
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
        self._trouble = Trouble("binary.unusable", "binary.usable")
        #: Says whether another codex lies there than the one that runs.
        self.is_due = False
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

    async def look(self, link: Link, running: Stamp | None) -> bool:
        """Look once; say whether anything has changed since the last look.

        Args:
            link: the connection, and who is behind it.
            running: which file our own server was started from; None: it is not ours.
        """
        before = self._seen, self.is_due
        stamp = await _beside(lambda: self._stamp(link))
        self._seen = seen = None if stamp is None else await self._look_at(stamp)
        self.is_due = seen is not None and is_outdated(seen, running, link)
        if self.is_due and not before[1]:
            log.warning("server.outdated", running=link.version, on_disk=self.version)
        return (self._seen, self.is_due) != before

    async def _look_at(self, stamp: Stamp) -> OnDisk:
        # One that could not be read may be half installed, or on a cold disk: it is read again.
        if self._seen is not None and self._seen.stamp == stamp and self._seen.version is not None:
            return self._seen
        try:
            version = await _beside(lambda: self._read(stamp.path))
        except CodexdrvError as error:
            # What runs, runs on.
            self._trouble.note(str(error), codex=stamp.path)
            return OnDisk(stamp, None)
        self._trouble.end(codex=stamp.path)
        return OnDisk(stamp, version)

    def _stamp(self, link: Link) -> Stamp | None:
        path = self._place(link)
        return stamp_of(path) if path else None

    def _place(self, link: Link) -> str | None:
        """Say where the next start would find codex."""
        if self._server.spawn is None:
            # Whoever runs it started it from there; our own PATH may lead to another.
            place = self._started_from(link)
            if place is None or os.path.exists(place):
                return place
        try:
            return self._find(self._server.codex, self._server.search_path).path
        except CodexdrvError:
            return None

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


def is_outdated(seen: OnDisk, running: Stamp | None, link: Link) -> bool:
    """Say whether a start would bring another codex than the one that runs.

    Our own server was started from a file that we know; of another one, only the version is told.
    """
    if seen.version is None:
        return False
    if running is not None:
        return seen.stamp != running
    return link.version is not None and link.version != seen.version
