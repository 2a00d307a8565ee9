"""The resident process: take the lock, begin a life, drive, and stop in good order."""

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import anyio
import structlog

from codexdrv.config import Config
from codexdrv.errors import CodexdrvError
from codexdrv.ids import ThreadId
from codexdrv.journal.journal import Journal
from codexdrv.lock import held_lock
from codexdrv.snapshot import load_snapshot
from supervisor.farewell import take_leave, tell_cut
from supervisor.life import Life, begin
from supervisor.picture import end_snapshot, say
from supervisor.readiness import Readiness
from supervisor.ringer import hear_bell, hung_bell
from supervisor.signals import Signals
from supervisor.spawning import OwnServer, hosting, way_to
from supervisor.units import longest_stop_s
from supervisor.upgrade import Upgrade
from supervisor.upkeep import (
    Look,
    beat,
    count_owed,
    follow_configuration,
    follow_upgrades,
    keep_snapshot,
    look_around,
    prune,
)


ONCE_POLL_S = 0.1
"""How soon `--once` sees that all is done; a look costs a millisecond."""

log = structlog.get_logger()


class Terms(NamedTuple):
    """How a supervisor is run."""

    #: Ours.
    version: str
    #: Reads the configuration anew, when SIGHUP asks for it.
    reload: Callable[[], Config]
    #: What the service manager has told us (`Readiness`).
    environment: Mapping[str, str]
    #: End when nothing is owed any more, or after so many seconds; None: stay.
    once_s: float | None = None


async def serve(config: Config, terms: Terms) -> str | None:
    """Supervise until SIGTERM or SIGINT; a second signal ends the process at once.

    With `terms.once_s` it ends by itself, also when there is no server; one of our own first
    finishes the turns that run in it.

    Returns:
        Why there was no server at the end; None if there was one.

    Raises:
        AlreadyRunning: another supervisor holds the lock of this state directory.
        JournalError: the journal cannot be used.
        ConfigurationError, NoCodex: there is no codex to start.
        ServerKeepsDying: a server of our own; starting it once more is no use.
        LifeEnded: another supervisor has taken over.
    """
    failures: list[CodexdrvError] = []
    problem: str | None = None
    signals = Signals()
    async with anyio.create_task_group() as tasks:
        # From before the first step to the very end, while a server of our own finishes its turns.
        await tasks.start(signals.hear)
        try:
            problem = await _live(config, terms, signals)
        except CodexdrvError as error:
            failures.append(error)
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    return problem


class _Parts(NamedTuple):
    """What a life has around it."""

    terms: Terms
    signals: Signals
    ringer: socket.socket
    own: OwnServer | None
    upgrade: Upgrade
    readiness: Readiness


class _Left(NamedTuple):
    """What a life leaves when it stops."""

    #: Threads whose turns have not ended.
    running: Sequence[ThreadId]
    #: Why there is no server; None: there is one.
    problem: str | None


async def _live(config: Config, terms: Terms, signals: Signals) -> str | None:
    directory = config.state.directory
    readiness = Readiness(terms.environment)
    # The journal first: it makes the directory, and checks that it is safe.
    with Journal(directory) as journal, held_lock(directory), hung_bell(directory) as ringer:
        async with hosting(config.server, directory=directory) as own:
            last = load_snapshot(directory)
            life = begin(
                config,
                journal,
                way_to(config.server, own),
                version=terms.version,
                asked_since=last.asked_since if last else {},
            )
            upgrade = Upgrade(config.server)
            if own is not None:
                own.on_change = life.driver.notify
                signals.server_pid = lambda: own.pid
            parts = _Parts(terms, signals, ringer, own, upgrade, readiness)
            left = await _run(life, parts)
        tell_cut(left.running, config.server.spawn, own)
        end_snapshot(directory)
        log.info("life.ended")
    return left.problem


async def _run(life: Life, parts: _Parts) -> _Left:
    """Run all parts until it is time to stop, or until one of them fails."""
    look = partial(look_around, life, parts.upgrade, parts.own)
    failures: list[CodexdrvError] = []
    driver, readiness = life.driver, parts.readiness
    async with anyio.create_task_group() as tasks:

        async def run_part(part: Callable[[], Awaitable[None]]) -> None:
            try:
                await part()
            except CodexdrvError as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

        for part in (
            driver.run,
            lambda: hear_bell(parts.ringer, driver.ring),
            lambda: keep_snapshot(life, look, readiness),
            lambda: beat(readiness),
            lambda: _follow_configuration(life, parts, look),
            lambda: follow_upgrades(life, parts.upgrade, parts.own),
            lambda: prune(life),
        ):
            tasks.start_soon(run_part, part)
        # Who delivers finds us now, whether there is a server or not.
        readiness.ready(say(look()))
        await _until_stopped(life, parts)
        # A server of our own ends with us, and with it the turns that run.
        spawn = life.config.server.spawn
        grace_s = spawn.stop_grace_s if spawn else None
        readiness.stopping(takes_s=longest_stop_s(grace_s))
        left = _Left(await take_leave(life), driver.link().problem)
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    return left


def _follow_configuration(life: Life, parts: _Parts, look: Look) -> Awaitable[None]:
    return follow_configuration(
        life,
        parts.signals,
        parts.terms.reload,
        look=look,
        upgrade=parts.upgrade,
        readiness=parts.readiness,
    )


async def _until_stopped(life: Life, parts: _Parts) -> None:
    """Wait until a signal tells us to stop, or nothing is left to do once."""
    async with anyio.create_task_group() as waits:

        async def wait_for_signal() -> None:
            await parts.signals.stop.wait()
            waits.cancel_scope.cancel()

        waits.start_soon(wait_for_signal)
        if parts.terms.once_s is not None:
            await _until_drained(life, parts.terms.once_s)
            waits.cancel_scope.cancel()


async def _until_drained(life: Life, timeout_s: float) -> None:
    with anyio.move_on_after(timeout_s):
        while not life.driver.is_without_server:
            # Beside the dispatcher's own thread: a look, at a journal that others write too.
            if await anyio.to_thread.run_sync(lambda: count_owed(life.config)) == 0:
                break
            await anyio.sleep(ONCE_POLL_S)
    if life.config.server.spawn is not None:
        await life.driver.wait_for_turns()
