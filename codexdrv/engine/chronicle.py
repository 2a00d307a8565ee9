"""What the log says of deliveries: one line for each that is settled; never a text."""

from typing import Any

import structlog

from codexdrv.rules.lifecycle import Delivery, Outcome
from codexdrv.rules.ownership import Phase


log = structlog.get_logger()


def tell(delivery: Delivery) -> None:
    """Log what has become true of a delivery.

    Its end is the one line that everybody sees; doubt is a warning, because somebody may have to
    look; every step on the way is for `--verbose`.
    """
    fields = _fields(delivery)
    if is_settled(delivery):
        failed = delivery.standing.phase is Phase.FAILED
        (log.warning if failed else log.info)("delivery.settled", **fields)
    elif delivery.standing.phase is Phase.UNCERTAIN:
        log.warning("delivery.doubted", **fields)
    else:
        log.debug("delivery.recorded", **fields)


def is_settled(delivery: Delivery) -> bool:
    """Say whether nothing more is owed: it failed, or is stored and its turn is over."""
    standing = delivery.standing
    if standing.phase is Phase.SURFACED:
        return standing.stored and standing.outcome not in {None, Outcome.RUNNING}
    return standing.phase in {Phase.FAILED, Phase.CANCELLED}


def _fields(delivery: Delivery) -> dict[str, Any]:
    order, standing = delivery
    return {
        "delivery_id": order.id,
        "thread_id": order.thread,
        "phase": standing.phase,
        "outcome": standing.outcome,
        "reason": standing.reason,
        "why": standing.why,
        "turn_id": standing.turn,
        "stored": standing.stored,
        "attempts": standing.attempts,
        "after_ms": standing.changed_at_ms - order.admitted_at_ms,
    }
