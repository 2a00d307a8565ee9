"""Run one life: take the lock, number the life, hang up the bell, drive, and stop in good order."""

import os
import signal
import socket
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import anyio
import structlog

from codexdrv import bell
from codexdrv.clock import now_ms
from codexdrv.config import Config
from codexdrv.connect import Connect
from codexdrv.driver import Driver
from codexdrv.engine.worker import in_one_thread
from codexdrv.errors import CodexdrvError, JournalError, JournalUnusable
from codexdrv.ids import ThreadId
from codexdrv.journal.journal import Journal
from codexdrv.lock import held_lock
from codexdrv.paths import short_socket_path
from codexdrv.protocol.questions import Policy
from codexdrv.transport.peer import identify
from supervisor.picture import draw, write_snapshot
from supervisor.spawning import connecting


ONCE_POLL_S = 0.1
"""How soon `--once` sees that all is done; a look costs a millisecond."""

PRUNE_INTERVAL_S = 24 * 3600.0
"""Rows are kept for 30 days; a day more does not matter."""

log = structlog.get_logger()


async def serve(config: Config, *, version: str, once_s: float | None = None) -> str | None:
    """Supervise until SIGTERM or SIGINT; a second signal ends the process at once.

    Args:
        config: all of it.
        version: ours.
        once_s: end by itself when nothing is owed any more, or after so many seconds, or when
            there is no server. One of our own first finishes the turns that run in it.

    Returns:
        Why there was no server at the end; None if there was one.

    Raises:
        AlreadyRunning: another supervisor holds the lock of this state directory.
        JournalError: the journal cannot be used.
        ConfigurationError, NoCodex: there is no codex to start.
        LifeEnded: another supervisor has taken over.
    """
    # As the default is: else the ends of our children are lost to us, and to theirs.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stop = anyio.Event()
    failures: list[CodexdrvError] = []
    problem: str | None = None
    async with anyio.create_task_group() as tasks:
        # To the very end: while a server of our own finishes its turns, too.
        tasks.start_soon(_hear_signals, stop)
        try:
            problem = await _live(config, version, once_s, stop)
        except CodexdrvError as error:
            failures.append(error)
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    return problem


async def _hear_signals(stop: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("life.stopping", signal=signal.Signals(number).name)
            break
    # A second one ends us at once; the kernel tells a server of our own.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)
    stop.set()


async def _live(
    config: Config, version: str, once_s: float | None, stop: anyio.Event
) -> str | None:
    directory = config.state.directory
    # The journal first: it makes the directory, and checks that it is safe.
    with Journal(directory) as journal, held_lock(directory), hung_bell(directory) as ringer:
        async with connecting(config.server, directory=directory) as connect:
            driver, number, began_ms = begin(config, journal, connect, version=version)
            life = _Life(config, journal, driver, number, began_ms, version)
            problem = await _run(life, ringer, once_s, stop)
        log.info("life.ended")
    return problem


class _Life(NamedTuple):
    """The parts of one run."""

    config: Config
    journal: Journal
    driver: Driver
    number: int
    began_ms: int
    version: str


def begin(
    config: Config,
    journal: Journal,
    connect: Connect,
    *,
    version: str,
    scope: Collection[ThreadId] | None = None,
) -> tuple[Driver, int, int]:
    """Begin a life in the journal, under the lock; return its driver, number, and time.

    Raises:
        JournalError: the journal cannot be used; nothing was written.
    """
    # Before the first write: a life must not begin in what is broken.
    journal.check()
    began_ms = now_ms()
    identity = identify(os.getpid())
    number = journal.begin_life(
        (os.getpid(), identity.start_ticks, identity.boot_id)
        if identity
        else (os.getpid(), None, None),
        version,
        now_ms=began_ms,
    )
    structlog.contextvars.bind_contextvars(life=number)
    spawn = config.server.spawn
    mode = "attach" if spawn is None else "spawn"
    log.info("life.begun", state=config.state.directory, socket=config.server.socket, mode=mode)
    driver = Driver(
        config,
        journal,
        connect=connect,
        policy=Policy(spawn.approvals) if spawn else Policy.LEAVE,
        life=number,
        began_ms=began_ms,
        version=version,
        in_thread=in_one_thread(),
        scope=scope,
    )
    return driver, number, began_ms


async def _run(
    life: _Life, ringer: socket.socket, once_s: float | None, stop: anyio.Event
) -> str | None:
    """Run all parts until it is time to stop, or until one of them fails; return the problem."""
    failures: list[CodexdrvError] = []
    async with anyio.create_task_group() as tasks:

        async def drive() -> None:
            try:
                await life.driver.run()
            except CodexdrvError as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

        tasks.start_soon(drive)
        tasks.start_soon(_hear_bell, life, ringer)
        tasks.start_soon(_keep_snapshot, life)
        tasks.start_soon(_prune, life)
        await _until_stopped(life, once_s, stop)
        # A server of our own ends with us, and with it the turns that run.
        spawn = life.config.server.spawn
        turns_s = spawn.stop_grace_s if spawn else 0.0
        await life.driver.drain(answers_s=life.config.limits.drain_s, turns_s=turns_s)
        problem = life.driver.link().problem
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    return problem


async def _until_stopped(life: _Life, once_s: float | None, stop: anyio.Event) -> None:
    """Wait until a signal tells us to stop, or nothing is left to do once."""
    async with anyio.create_task_group() as waits:

        async def wait_for_signal() -> None:
            await stop.wait()
            waits.cancel_scope.cancel()

        waits.start_soon(wait_for_signal)
        if once_s is not None:
            await _until_drained(life, once_s)
            waits.cancel_scope.cancel()


async def _until_drained(life: _Life, timeout_s: float) -> None:
    with anyio.move_on_after(timeout_s):
        while not life.driver.is_without_server:
            # Beside the dispatcher's own thread: a look, at a journal that others write too.
            if await anyio.to_thread.run_sync(lambda: _count_owed(life)) == 0:
                break
            await anyio.sleep(ONCE_POLL_S)
    if life.config.server.spawn is not None:
        await life.driver.wait_for_turns()


def _count_owed(life: _Life) -> int | None:
    """Count what is owed; None where it cannot be read now."""
    try:
        with Journal(life.config.state.directory) as journal:
            return journal.owed()
    except JournalError as error:
        log.error("journal.unreadable", error=str(error))
        return None


async def _hear_bell(life: _Life, ringer: socket.socket) -> None:
    while True:
        await anyio.wait_readable(ringer)
        with suppress(BlockingIOError):
            while True:
                ringer.recv(1)
        life.driver.ring()


async def _keep_snapshot(life: _Life) -> None:
    while True:
        picture = draw(life.driver, life=life.number, began_ms=life.began_ms, version=life.version)
        try:
            write_snapshot(life.config.state.directory, picture)
        except OSError as error:
            log.error("snapshot.unwritable", error=str(error))
        with anyio.move_on_after(life.config.limits.snapshot_s):
            await life.driver.wait_for_change()


async def _prune(life: _Life) -> None:
    while True:
        try:
            buried = await anyio.to_thread.run_sync(lambda: _prune_once(life))
            if buried:
                log.info("journal.pruned", deliveries=buried)
        except CodexdrvError as error:
            log.error("journal.not_pruned", error=str(error))
        await anyio.sleep(PRUNE_INTERVAL_S)


def _prune_once(life: _Life) -> int:
    with Journal(life.config.state.directory) as journal:
        return journal.prune(now_ms=now_ms())


@contextmanager
def hung_bell(directory: str) -> Iterator[socket.socket]:
    """Hang up the bell, under the lock: what an earlier life left is taken down first.

    Raises:
        JournalUnusable: something else is in its place, or the disk is full.
    """
    path = f"{directory}/{bell.FILE_NAME}"
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ringer:
        ringer.setblocking(False)
        try:
            with short_socket_path(path) as short:
                ringer.bind(short)
            os.chmod(path, 0o600)
        except OSError as error:
            raise JournalUnusable(
                f"The bell {path} cannot be hung up: {error.strerror}.",
                hint="Move it away, if it is no socket of ours; else make room on the disk.",
            ) from error
        try:
            yield ringer
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)
