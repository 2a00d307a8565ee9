"""The end of a life in good order: what is waited for is told, and so is what was cut."""

from collections.abc import Sequence

import anyio
import structlog

from codexdrv.config import Listen, Spawn
from codexdrv.ids import ThreadId
from codexdrv.protocol.events import ThreadStatus
from supervisor.life import Life
from supervisor.spawning import OwnServer


AT_ONCE = "A second signal ends it at once."

log = structlog.get_logger()


async def take_leave(life: Life) -> Sequence[ThreadId]:
    """Send nothing more, and let what is open come to its end.

    Returns:
        The threads whose turns had the whole of `stop_grace_s`, and run on; only a server of our
        own ends with us.
    """
    driver, spawn = life.driver, life.config.server.spawn
    driver.hold()
    left: Sequence[ThreadId] = ()
    if spawn is not None:
        if begun := _begun(life):
            log.info("life.waiting", turns=len(begun), up_to_s=spawn.stop_grace_s, hint=AT_ONCE)
        with anyio.move_on_after(spawn.stop_grace_s) as patience:
            await driver.wait_for_turns()
        left = _begun(life) if patience.cancelled_caught else ()
    await driver.drain(answers_s=life.config.limits.drain_s)
    return left


def tell_cut(threads: Sequence[ThreadId], spawn: Spawn | None, own: OwnServer | None) -> None:
    """Say which turns have not come to their end, once the server is gone."""
    if not threads or spawn is None or own is None:
        return
    # On a socket, the server may have given them the same time once more, and they have ended.
    if spawn.listen is Listen.STDIO or own.was_cut:
        log.warning("turn.cut", threads=threads, stop_grace_s=spawn.stop_grace_s)


def _begun(life: Life) -> list[ThreadId]:
    watches = life.driver.threads().values()
    return [
        watch.thread
        for watch in watches
        # A turn of an earlier connection is known by the thread's status alone.
        if watch.state.turn or watch.state.status is ThreadStatus.ACTIVE
    ]
