"""A server of our own: start it when a connection is wanted, and stop it when we stop.

It is started anew when it has ended; the pause before that is the driver's, as for any other
connection that did not come about.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
import structlog

from codexdrv.binary import Origin, find_binary
from codexdrv.config import Listen, Server, Spawn
from codexdrv.connect import Connect, Connection, attach
from codexdrv.errors import (
    LinkError,
    LinkLost,
    MalformedFrame,
    NoServer,
    ServerEnded,
    UnsafeSocket,
)
from codexdrv.transport.channel import Channel
from codexdrv.transport.child import Child
from codexdrv.transport.unix import open_unix
from codexdrv.wire.jsonl import JsonlFraming
from supervisor.deaths import Deaths
from supervisor.leftover import forget_server, reap_server
from supervisor.rules import HUNG_S, Silence
from supervisor.starting import Find, Starts


READY_TIMEOUT_S = 20.0
"""A start takes 0.1 s; a cold disk has 360 MB to read."""

READY_POLL_S = 0.02
"""Much less than a start takes; the wait ends at once when the server does."""

EXIT_NOTICE_S = 0.5
"""A server that ends closes its connections first."""

SLOW_STOP_S = 1.0
"""A server without turns goes within milliseconds."""

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
        self._starts = Starts(server, spawn, find, directory)
        self._spawn = spawn
        self._directory = directory
        self._child: Child | None = None
        self._has_reaped = directory is None
        #: What is waited for before one is started, in a sentence, and who is told when it changes.
        self.waits_for: str | None = None
        self.on_change: Callable[[], None] = lambda: None
        #: Says whether the last stop came before it was ready to end.
        self.was_cut = False
        #: The one that ends, or has ended, by us: that is no death.
        self._leaving: Child | None = None
        self._deaths = Deaths(spawn.deaths_max)
        #: Of the one on a socket; over stdio, none outlives a silent connection.
        self._silence = Silence(0.0, 0.0)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """Connect to the server, starting it where it does not run.

        Raises:
            LinkError: it could not be started, or does not listen, or the connection ended.
            ServerKeepsDying: it has died, and there is no point in another.
        """
        over_stdio = self._spawn.listen is Listen.STDIO
        opening = self._connect_stdio() if over_stdio else self._connect_unix()
        try:
            async with opening as connection:
                yield connection
        except (LinkLost, MalformedFrame) as error:
            child = self._child
            if child is None or not await self._has_died(child):
                raise
            await self._bury()
            if isinstance(error, ServerEnded):
                raise
            raise ServerEnded(
                f"{error} codex app-server has ended: {child.why_it_ended()}"
            ) from error

    @property
    def origin(self) -> Origin | None:
        """What was started last."""
        return self._starts.origin

    @property
    def pid(self) -> int | None:
        """The process that runs, as far as we have seen."""
        return self._child.pid if self._child else None

    async def _has_died(self, child: Child) -> bool:
        if child is self._leaving or not await child.ended_within(EXIT_NOTICE_S):
            return False
        return child is not self._leaving

    async def renew(self) -> None:
        """Stop the server that runs, for the next connection to start what lies on disk now."""
        with anyio.CancelScope(shield=True):
            await self.stop()

    async def stop(self) -> None:
        """Stop the server; it may finish its turn first (`stop_grace_s`). Not to be cancelled."""
        child = self._leaving = self._child
        if child is not None:
            is_running = not child.has_ended()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._tell_slow, child)
                is_in_time = await child.stop(self._spawn.stop_grace_s)
                tasks.cancel_scope.cancel()
            if self._child is not child:
                return  # A connection that came meanwhile has put it away, and started another.
            # Only now: whoever was cancelled meanwhile leaves it for the next one to stop.
            self._child = None
            if self._directory is not None:
                forget_server(self._directory)
            self.was_cut = not is_in_time
            how = child.how_it_ended()
            if is_running:
                tell = log.info if is_in_time else log.warning
                tell("server.stopped", server_pid=child.pid, how=how, in_time=is_in_time)
            else:
                tell = log.warning if child.has_failed else log.info
                tell("server.ended", server_pid=child.pid, how=how)

    async def _tell_slow(self, child: Child) -> None:
        await anyio.sleep(SLOW_STOP_S)
        # On a socket, it is for the turns of all its clients.
        log.info("server.stopping", server_pid=child.pid, up_to_s=self._spawn.stop_grace_s)

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
        """Put the last one away: at its death, or else before another is started.

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
            self._deaths.count(child, why=why)

    async def _reap(self) -> None:
        """End what an earlier life left, once."""
        if self._directory is not None and not self._has_reaped:
            await reap_server(
                self._directory, grace_s=self._spawn.stop_grace_s, tell=self._tell_wait
            )
            self._has_reaped = True

    def _tell_wait(self, sentence: str | None) -> None:
        self.waits_for = sentence
        self.on_change()

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
            raise ServerEnded(f"codex app-server has ended: {child.why_it_ended()}")
        raise NoServer(
            f"codex app-server does not listen at {self._server.socket} after"
            f" {READY_TIMEOUT_S:g} s.",
            hint="Its own words are in the log.",
        )

    def _start(self, arguments: Sequence[str]) -> Child:
        self._child = child = self._starts.start(arguments)
        self._silence = Silence(0.0, anyio.current_time())
        return child


def _another(socket: str, pid: int) -> LinkError:
    # Not NoServer: there is one, only not ours.
    return UnsafeSocket(
        f"A server that is not ours listens at {socket} already (pid {pid}).",
        hint='Attach to it ([server] mode = "attach"), stop it, or name another socket.',
    )
