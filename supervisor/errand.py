"""Settle what is in doubt, and leave: a life that dispatches nothing, and hangs up no bell."""

from collections.abc import Callable, Collection

import anyio
import structlog

from codexdrv.config import STOP_GRACE_S, Config, Listen, Server, Spawn
from codexdrv.errors import CodexdrvError, NoServer
from codexdrv.ids import ThreadId
from codexdrv.journal.journal import Journal
from codexdrv.lock import held_lock
from codexdrv.transport.unix import open_unix
from supervisor.life import begin
from supervisor.spawning import connecting


log = structlog.get_logger()


async def settle(
    config: Config,
    *,
    version: str,
    scope: Collection[ThreadId],
    wait: Callable[[], None],
) -> None:
    """Ask the server about what is in doubt in some threads, until `wait` returns.

    With no server alive, one of our own on the same home answers for as long as that takes.

    Args:
        config: all of it.
        version: ours.
        scope: the threads.
        wait: blocks, in a thread, until nothing is left to ask, or the time is up.

    Raises:
        AlreadyRunning: a supervisor holds the lock; it does this by itself.
        JournalError: the journal cannot be used.
        ConfigurationError, NoCodex: no server is alive, and there is no codex to start.
        LifeEnded: another supervisor has taken over.
    """
    directory = config.state.directory
    with Journal(directory) as journal, held_lock(directory):
        server = await server_to_ask(config.server)
        async with connecting(server) as connect:
            driver = begin(config, journal, connect, version=version, scope=scope).driver
            driver.hold()
            failures: list[CodexdrvError] = []
            async with anyio.create_task_group() as tasks:

                async def drive() -> None:
                    try:
                        await driver.run()
                    except CodexdrvError as error:
                        failures.append(error)
                        tasks.cancel_scope.cancel()

                tasks.start_soon(drive)
                await anyio.to_thread.run_sync(wait, abandon_on_cancel=True)
                tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]


async def server_to_ask(server: Server) -> Server:
    """Choose the server that answers: the one that lives, else one of our own, for us alone.

    Raises:
        UnsafeSocket, DeadlinePassed: there is one, and it cannot be asked.
    """
    if server.spawn is not None and server.spawn.listen is Listen.STDIO:
        return server
    try:
        async with open_unix(server.socket):
            return server._replace(spawn=None)
    except NoServer as error:
        log.info("server.missing", error=str(error))
    return server._replace(spawn=Spawn(Listen.STDIO, "decline", STOP_GRACE_S))
