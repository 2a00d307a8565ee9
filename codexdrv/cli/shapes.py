"""What the commands print of a delivery: the JSON object, and the sentence."""

from datetime import UTC, datetime
from typing import Any

from codexdrv.bell import ring
from codexdrv.config import Config
from codexdrv.rules.lifecycle import Delivery, is_live
from codexdrv.rules.ownership import Phase


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
    where = f"{order.id} is {_PHASES.get(standing.phase, standing.phase)}"
    if standing.phase is Phase.SURFACED:
        kept = "stored" if standing.stored else "not yet read back"
        return (
            f"{where} {standing.turn or 'of which an operator spoke'} ({kept}), {_turn(delivery)}."
        )
    return f"{where}: {standing.why}." if standing.why else f"{where}."


def one_line(delivery: Delivery) -> str:
    """Say where a delivery stands, in one line of a list."""
    order, standing = delivery
    text = " ".join(order.text.split())
    head = text if len(text) <= PREVIEW_CHARACTERS else text[: PREVIEW_CHARACTERS - 1] + "…"
    state = standing.phase if standing.outcome in {None, "received"} else standing.outcome
    note = f"  [{standing.reason}]" if is_live(standing.phase) and standing.reason else ""
    return (
        f"{utc(order.admitted_at_ms)}  {order.id}  {order.thread}#{order.seq}"
        f"  {standing.phase}{'' if state == standing.phase else f'/{state}'}{note}  {head}"
    )


def rings(config: Config) -> bool:
    """Ring the supervisor of a configuration; say whether it is up."""
    return ring(config.state.directory)


def utc(unix_ms: int) -> str:
    """Write a time as RFC 3339, UTC, with milliseconds."""
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_PHASES = {
    Phase.QUEUED: "queued",
    Phase.PENDING: "on its way",
    Phase.UNCERTAIN: "in doubt",
    Phase.SURFACED: "in the thread, in turn",
    Phase.FAILED: "refused for good",
    Phase.CANCELLED: "cancelled",
}


def _turn(delivery: Delivery) -> str:
    outcome = delivery.standing.outcome
    return f"and that turn is {outcome}" if outcome == "running" else f"and that turn {outcome}"
