"""Run one life: take the lock, number the life, hang up the bell, drive, and stop in good order."""

import os
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import anyio
import structlog

from codexdrv import bell
from codexdrv.config import Config
from codexdrv.driver import Driver, now_ms
from codexdrv.engine.worker import in_one_thread
from codexdrv.errors import CodexdrvError
from codexdrv.journal.journal import Journal
from codexdrv.lock import held_lock
from codexdrv.paths import short_socket_path
from codexdrv.transport.peer import identify
from supervisor.picture import draw, write_snapshot


PRUNE_INTERVAL_S = 24 * 3600.0
"""Rows are kept for 30 days; a day more does not matter."""

log = structlog.get_logger()


async def serve(config: Config, *, version: str) -> None:
    """Supervise until SIGTERM or SIGINT; a second signal ends the process at once.

    Raises:
        AlreadyRunning: another supervisor holds the lock of this state directory.
        JournalError: the journal cannot be used.
        LifeEnded: another supervisor has taken over.
    """
    directory = config.state.directory
    # The journal first: it makes the directory, and checks that it is safe.
    with Journal(directory) as journal, held_lock(directory), hung_bell(directory) as ringer:
        began_ms = now_ms()
        identity = identify(os.getpid())
        life = journal.begin_life(
            (os.getpid(), identity.start_ticks, identity.boot_id)
            if identity
            else (os.getpid(), None, None),
            version,
            now_ms=began_ms,
        )
        structlog.contextvars.bind_contextvars(life=life)
        log.info("life.begun", state=directory, socket=config.server.socket)
        driver = Driver(
            config,
            journal,
            life=life,
            began_ms=began_ms,
            version=version,
            in_thread=in_one_thread(),
        )
        await _run(_Life(config, journal, driver, life, began_ms, version), ringer)
        log.info("life.ended")


class _Life(NamedTuple):
    """The parts of one run."""

    config: Config
    journal: Journal
    driver: Driver
    number: int
    began_ms: int
    version: str


async def _run(life: _Life, ringer: socket.socket) -> None:
    """Run all parts until a signal, or until one of them fails."""
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
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                log.info("life.stopping", signal=signal.Signals(number).name)
                break
        # From here on the default handlers are back: a second signal ends us at once.
        await life.driver.drain(life.config.limits.drain_s)
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]


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
    """Hang up the bell, under the lock: what an earlier life left is taken down first."""
    path = f"{directory}/{bell.FILE_NAME}"
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ringer:
        ringer.setblocking(False)
        with short_socket_path(path) as short:
            ringer.bind(short)
        os.chmod(path, 0o600)
        try:
            yield ringer
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)
