"""What the resident process does beside driving: say how it is, and keep things in order."""

from collections.abc import Callable
from typing import Any

import anyio
import structlog

from codexdrv.clock import now_ms
from codexdrv.config import Config
from codexdrv.engine.trouble import Trouble
from codexdrv.errors import CodexdrvError, JournalError
from codexdrv.journal.journal import Journal
from supervisor.life import Life
from supervisor.picture import draw, say, write_snapshot
from supervisor.readiness import Readiness
from supervisor.signals import Signals
from supervisor.spawning import OwnServer
from supervisor.upgrade import Upgrade


PRUNE_INTERVAL_S = 24 * 3600.0
"""Rows are kept for 30 days; a day more does not matter."""

UPGRADE_INTERVAL_S = 60.0
"""A look is some system calls; an upgrade is a matter of days."""

QUIET_INTERVAL_S = 5.0
"""While a newer codex waits for a quiet moment."""

Look = Callable[[], dict[str, Any]]
"""See how all stands now."""

log = structlog.get_logger()


def look_around(life: Life, upgrade: Upgrade, own: OwnServer | None) -> dict[str, Any]:
    """See how all stands; what a server of our own waits for, it alone knows."""
    picture = draw(life, upgrade)
    if own is not None and own.waits_for is not None:
        picture["server"]["problem"] = own.waits_for
    return picture


async def keep_snapshot(life: Life, look: Look, readiness: Readiness) -> None:
    """Write the status file every few seconds, and at once when something has changed."""
    trouble = Trouble("snapshot.unwritable", "snapshot.writable")
    said = ""
    while True:
        picture = look()
        try:
            write_snapshot(life.config.state.directory, picture)
            trouble.end()
        except OSError as error:
            trouble.note(str(error))
        if (sentence := say(picture)) != said:
            said = sentence
            readiness.status(said)
        with anyio.move_on_after(life.config.limits.snapshot_s):
            await life.driver.wait_for_change()


async def beat(readiness: Readiness) -> None:
    """Tell the service manager's watchdog, where there is one, that the loop goes round."""
    while readiness.watchdog_interval_s is not None:
        readiness.watchdog()
        await anyio.sleep(readiness.watchdog_interval_s)


async def follow_configuration(
    life: Life,
    signals: Signals,
    reload: Callable[[], Config],
    *,
    look: Look,
    upgrade: Upgrade,
    readiness: Readiness,
) -> None:
    """Read the configuration anew when asked to; a wrong one changes nothing."""
    while True:
        await signals.wait_for_reload()
        readiness.reloading()
        try:
            found = reload()
        except CodexdrvError as error:
            log.error("configuration.refused", error=error.message, hint=error.hint)
        else:
            apply(life, found)
        upgrade.hurry()
        readiness.ready(say(look()))


def apply(life: Life, found: Config) -> None:
    """Take the targets of a configuration; say what else would want a restart."""
    before = set(life.driver.targets)
    life.driver.retarget(found.targets)
    log.info(
        "configuration.reloaded",
        targets=len(found.targets),
        added=sorted(set(found.targets) - before),
        removed=sorted(before - set(found.targets)),
    )
    parts = ("server", "state", "limits")
    changed = [name for name in parts if getattr(found, name) != getattr(life.config, name)]
    if changed:
        log.warning("configuration.needs_restart", tables=changed)


async def follow_upgrades(life: Life, upgrade: Upgrade, own: OwnServer | None) -> None:
    """Notice another codex on disk; restart a server of our own with it when nothing is owed."""
    patience = Trouble("renewal.held_up", "renewal.freed")
    while True:
        link = life.driver.link()
        if not link.is_connected:
            await life.driver.wait_for_change()
            continue
        if await upgrade.look(link, own.origin if own else None):
            life.driver.notify()
        if own is None or not upgrade.is_upgrade:
            await upgrade.pause(UPGRADE_INTERVAL_S)
        elif await _is_quiet(life):
            patience.end()
            log.info("server.renewed", running=link.version, on_disk=upgrade.version)
            await own.renew()
        else:
            patience.note("a turn runs, or an input is owed")
            await upgrade.pause(QUIET_INTERVAL_S)


async def _is_quiet(life: Life) -> bool:
    """Say whether nobody would miss the server for a second: no input is owed, no turn runs."""
    owed = await anyio.to_thread.run_sync(lambda: count_owed(life.config))
    return owed == 0 and not await life.driver.runs_turns()


def count_owed(config: Config) -> int | None:
    """Count what is owed; None where it cannot be read now."""
    try:
        with Journal(config.state.directory) as journal:
            return journal.owed()
    except JournalError as error:
        # The driver, which reads it all the time, tells it once.
        log.debug("owed.unknown", error=str(error))
        return None


async def prune(life: Life) -> None:
    """Bury what was settled long ago, once a day."""
    while True:
        try:
            buried = await anyio.to_thread.run_sync(lambda: _prune_once(life.config))
            if buried:
                log.info("journal.pruned", deliveries=buried)
        except CodexdrvError as error:
            log.error("journal.not_pruned", error=str(error))
        await anyio.sleep(PRUNE_INTERVAL_S)


def _prune_once(config: Config) -> int:
    with Journal(config.state.directory) as journal:
        return journal.prune(now_ms=now_ms())
