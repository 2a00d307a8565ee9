"""What the commands print of a delivery: the JSON object, and the sentence."""

from typing import Any

from codexdrv.bell import ring
from codexdrv.config import Config
from codexdrv.rules.lifecycle import Delivery, Outcome, is_live
from codexdrv.rules.ownership import Phase
from codexdrv.story import utc


PREVIEW_CHARACTERS = 40
"""Of a message, in a list."""


def delivery_object(
    delivery: Delivery, *, is_up: bool, is_duplicate: bool = False
) -> dict[str, Any]:
    """Lay a delivery out as the JSON object of the command line (docs/commands.md)."""
    order, standing = delivery
    return {
        "id": order.id,
        "thread": order.thread,
        "target": order.target,
        "source": order.source,
        "seq": order.seq,
        "phase": standing.phase,
        "outcome": standing.outcome,
        "stored": standing.stored,
        "late": standing.late,
        "duplicate": is_duplicate,
        "turn": standing.turn,
        "supervisor": "up" if is_up else "down",
        "reason": standing.reason,
        "why": standing.why,
        "attempts": standing.attempts,
        "admitted_at": utc(order.admitted_at_ms),
        "changed_at": utc(standing.changed_at_ms),
    }


def delivery_sentence(delivery: Delivery) -> str:
    """Say where a delivery stands."""
    order, standing = delivery
    where = f"{order.id} {_PHASES.get(standing.phase, f'is {standing.phase}')}"
    if standing.phase is not Phase.SURFACED or standing.turn is None:
        by = "an operator says: " if standing.reason == "operator" else ""
        return f"{where}: {by}{standing.why}." if standing.why else f"{where}."
    stored = "and stored" if standing.stored else "but not yet read back"
    ended = "runs" if standing.outcome is Outcome.RUNNING else f"is {standing.outcome}"
    return f"{where} {stored}: turn {standing.turn}, which {ended}."


def one_line(delivery: Delivery) -> str:
    """Say where a delivery stands, in one line of a list."""
    order, standing = delivery
    text = " ".join(order.text.split())
    head = text if len(text) <= PREVIEW_CHARACTERS else text[: PREVIEW_CHARACTERS - 1] + "…"
    outcome = f", {standing.outcome}" if standing.phase is Phase.SURFACED else ""
    held = f" ({standing.reason})" if is_live(standing.phase) and standing.reason else ""
    where = f"{order.thread}#{order.seq}"
    when = utc(order.admitted_at_ms)
    return f"{when}  {order.id}  {where}  {standing.phase}{outcome}{held}  {head}"


def rings(config: Config) -> bool:
    """Ring the supervisor of a configuration; say whether it is up."""
    return ring(config.state.directory)


_PHASES = {
    Phase.QUEUED: "is queued",
    Phase.PENDING: "is on its way",
    Phase.UNCERTAIN: "is in doubt",
    Phase.SURFACED: "is in the thread",
    Phase.FAILED: "has failed",
    Phase.CANCELLED: "is cancelled",
}
