"""A server of our own: start it when a connection is wanted, and stop it when we stop.

It is started anew when it has ended; the pause before that is the driver's, as for any other
connection that did not come about.
"""

import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
import structlog

from codexdrv.binary import Binary, Stamp, find_binary, stamp_of
from codexdrv.config import Listen, Server, Spawn
from codexdrv.connect import Connect, Connection, attach
from codexdrv.errors import (
    ConfigurationError,
    LinkError,
    LinkLost,
    MalformedFrame,
    NoCodex,
    NoServer,
    ServerEnded,
    ServerKeepsDying,
    UnsafeSocket,
)
from codexdrv.transport.channel import Channel
from codexdrv.transport.child import Child
from codexdrv.transport.unix import open_unix
from codexdrv.wire.jsonl import JsonlFraming
from supervisor.leftover import forget_server, note_server, reap_server
from supervisor.remarks import Remarks
from supervisor.rules import DEATHS_WINDOW_S, HUNG_S, Silence, is_given_up, recent_deaths


READY_TIMEOUT_S = 20.0
"""A start takes 0.1 s; a cold disk has 360 MB to read."""

READY_POLL_S = 0.02
"""Much less than a start takes; the wait ends at once when the server does."""

EXIT_NOTICE_S = 0.5
"""A server that ends closes its connections first."""

LAST_WORDS_MAX = 16_384
"""Characters of its stderr in an error."""

Find = Callable[[str | None, str], Binary]

log = structlog.get_logger()


@asynccontextmanager
async def connecting(
    server: Server, *, directory: str | None = None, find: Find = find_binary
) -> AsyncIterator[Connect]:
    """Say how to connect: to the server that runs, or to one of our own for as long as we are here.

    Args:
        server: the configuration.
        directory: where a server of our own is noted, for whoever comes after us; None: nowhere.
        find: how codex is found, from `[server] codex` and $PATH.

    Raises:
        ConfigurationError, NoCodex: there is no codex to start, as far as can be seen now.
    """
    async with hosting(server, directory=directory, find=find) as own:
        yield way_to(server, own)


def way_to(server: Server, own: "OwnServer | None") -> Connect:
    """Say how to connect: to our own server, or to the one that somebody else runs."""
    return own.connect if own else lambda: attach(server.socket)


@asynccontextmanager
async def hosting(
    server: Server, *, directory: str | None = None, find: Find = find_binary
) -> AsyncIterator["OwnServer | None"]:
    """Have a server of our own for as long as we are here, if we are to have one; see above."""
    if server.spawn is None:
        yield None
        return
    find(server.codex, server.search_path)
    own = OwnServer(server, server.spawn, find, directory)
    try:
        yield own
    finally:
        with anyio.CancelScope(shield=True):
            await own.stop()


class OwnServer:
    """The server of one life, one process at a time."""

    def __init__(
        self, server: Server, spawn: Spawn, find: Find, directory: str | None = None
    ) -> None:
        self._server = server
        self._find = find
        self._spawn = spawn
        self._directory = directory
        self._child: Child | None = None
        self._has_reaped = directory is None
        #: Which file was started last.
        self.stamp: Stamp | None = None
        #: The one that ends, or has ended, by us: that is no death.
        self._leaving: Child | None = None
        self._deaths: tuple[float, ...] = ()
        #: Of the one on a socket; over stdio, none outlives a silent connection.
        self._silence = Silence(0.0, 0.0)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """Connect to the server, starting it where it does not run.

        Raises:
            LinkError: it could not be started, or does not listen, or the connection ended.
        """
        over_stdio = self._spawn.listen is Listen.STDIO
        opening = self._connect_stdio() if over_stdio else self._connect_unix()
        try:
            async with opening as connection:
                yield connection
        except (LinkLost, MalformedFrame) as error:
            child = self._child
            if child is None or child is self._leaving:
                raise
            if not await child.ended_within(EXIT_NOTICE_S):
                raise
            raise ServerEnded(
                f"{error} codex app-server has ended: {child.how_it_ended()}"
            ) from error

    async def renew(self) -> None:
        """Stop the server that runs, for the next connection to start what lies on disk now."""
        with anyio.CancelScope(shield=True):
            await self.stop()

    async def stop(self) -> None:
        """Stop the server; it may finish its turn first (`stop_grace_s`). Not to be cancelled."""
        child = self._leaving = self._child
        if child is not None:
            is_running = not child.has_ended()
            await child.stop(self._spawn.stop_grace_s)
            if self._child is not child:
                return  # A connection that came meanwhile has put it away, and started another.
            # Only now: whoever was cancelled meanwhile leaves it for the next one to stop.
            self._child = None
            if self._directory is not None:
                forget_server(self._directory)
            log.info(
                "server.stopped" if is_running else "server.ended",
                server_pid=child.pid,
                how=child.how_it_ended(),
            )

    @asynccontextmanager
    async def _connect_stdio(self) -> AsyncIterator[Connection]:
        # Its pipes can be used once: a new connection is a new server.
        await self._bury()
        await self._reap()
        child = self._start(())
        framing = JsonlFraming()
        try:
            yield Connection(Channel(child.stream(), framing), child.identity, child.pid)
        finally:
            if not framing.is_closed:
                # Its pipes have not ended: it is we who leave, and it ends by that.
                self._leaving = child

    @asynccontextmanager
    async def _connect_unix(self) -> AsyncIterator[Connection]:
        child = self._child
        self._silence = self._silence.at(anyio.current_time())
        if child is None or child.has_ended() or self._hangs(child):
            await self._bury()
            await self._reap()
            await self._refuse_other()
            child = self._start(("--listen", f"unix://{self._server.socket}"))
        try:
            async with AsyncExitStack() as opened:
                connection = await self._attach_when_ready(child, opened)
                if connection.pid != child.pid:
                    raise _another(self._server.socket, connection.pid)
                try:
                    yield connection
                finally:
                    heard_s = connection.channel.last_message_at
                    self._silence = self._silence.at(anyio.current_time(), heard_s=heard_s)
        except UnsafeSocket:
            # It was not asked for a sign of life.
            self._silence = Silence(0.0, anyio.current_time())
            raise

    def _hangs(self, child: Child) -> bool:
        # One that we stop may be silent for as long as its turns take.
        return child is not self._leaving and not child.has_ended() and self._silence.is_hung

    async def _bury(self) -> None:
        """Put the last one away, before another is started.

        Raises:
            ServerKeepsDying: there is no point in another.
        """
        child = self._child
        if child is None:
            return
        is_death = child is not self._leaving
        why = f"it answered nothing for {HUNG_S / 60:g} minutes: " if self._hangs(child) else ""
        if why:
            log.warning("server.hung", server_pid=child.pid, silent_s=round(self._silence.lasted_s))
        await self.stop()
        if is_death:
            now_s = anyio.current_time()
            self._deaths = (*recent_deaths(self._deaths, now_s=now_s), now_s)
            if is_given_up(self._deaths, deaths_max=self._spawn.deaths_max, now_s=now_s):
                raise _hopeless(child, len(self._deaths), why)

    async def _reap(self) -> None:
        """End what an earlier life left, once."""
        if self._directory is not None and not self._has_reaped:
            await reap_server(self._directory, grace_s=self._spawn.stop_grace_s)
            self._has_reaped = True

    def _note(self, child: Child) -> None:
        """Note it for whoever comes after us; without the note, nobody would end it then."""
        identity = child.identity
        if self._directory is None or identity is None:
            return
        try:
            note_server(self._directory, identity)
        except OSError as error:
            log.error("server.not_noted", error=str(error))

    async def _refuse_other(self) -> None:
        """Leave a server alone that listens already; ours would only fail beside it."""
        with suppress(NoServer):
            async with open_unix(self._server.socket) as link:
                raise _another(self._server.socket, link.pid)

    async def _attach_when_ready(self, child: Child, opened: AsyncExitStack) -> Connection:
        with anyio.move_on_after(READY_TIMEOUT_S):
            while not child.has_ended():
                with suppress(NoServer):
                    return await opened.enter_async_context(attach(self._server.socket))
                await anyio.sleep(READY_POLL_S)
            raise ServerEnded(f"codex app-server has ended: {child.how_it_ended()}")
        raise NoServer(
            f"codex app-server does not listen at {self._server.socket} after"
            f" {READY_TIMEOUT_S:g} s.",
            hint="Its own words are in the log.",
        )

    def _start(self, arguments: Sequence[str]) -> Child:
        home = self._server.codex_home
        if not os.path.isdir(home):
            raise NoServer(
                f"The Codex home {home} is not there.",
                hint="Log in with `codex login`, or name it: [server] codex_home.",
            )
        try:
            # Each time: an upgrade may have moved it.
            binary = self._find(self._server.codex, self._server.search_path)
        except (ConfigurationError, NoCodex) as error:
            raise NoServer(error.message, hint=error.hint) from error
        stamp = stamp_of(binary.path)
        child = Child(
            (binary.path, "app-server", *arguments),
            environment=self._server.environment,
            directory=home,
            on_stderr=Remarks(time.monotonic).hear,
            has_pipes=self._spawn.listen is Listen.STDIO,
        )
        log.info("server.started", server_pid=child.pid, codex=binary.path, home=home)
        self._child, self.stamp = child, stamp
        self._silence = Silence(0.0, anyio.current_time())
        self._note(child)
        return child


def _hopeless(child: Child, deaths: int, why: str) -> ServerKeepsDying:
    said = child.last_words[-LAST_WORDS_MAX:]
    return ServerKeepsDying(
        f"codex app-server has died {deaths} times within {DEATHS_WINDOW_S / 60:g} minutes;"
        f" the last time: {why}{child.how_it_ended()}."
        + (f" Its last words:\n{said}" if said else ""),
        hint="Mend that and start the supervisor again; `codexdrv doctor` looks at the rest.",
    )


def _another(socket: str, pid: int) -> LinkError:
    # Not NoServer: there is one, only not ours.
    return UnsafeSocket(
        f"A server that is not ours listens at {socket} already (pid {pid}).",
        hint='Attach to it ([server] mode = "attach"), stop it, or name another socket.',
    )
