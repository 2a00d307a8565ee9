"""What the commands print of a delivery: the JSON object, and the sentence."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from codexdrv.bell import is_hung, ring
from codexdrv.clock import now_ms
from codexdrv.config import Config
from codexdrv.ids import DeliveryId, ThreadId
from codexdrv.journal.journal import Journal
from codexdrv.rules.lifecycle import OPERATOR, Delivery, Outcome, Standing, is_live
from codexdrv.rules.ownership import Phase
from codexdrv.snapshot import load_snapshot
from codexdrv.story import utc


PREVIEW_CHARACTERS = 40
"""Of a message, in a list."""

ASKED = "the thread's turn waits for an answer: `codexdrv attention`"


class Scene(NamedTuple):
    """What is around a delivery when it is shown."""

    #: A supervisor heard the bell.
    is_up: bool
    #: Why the supervisor has no server; None: it has one, or nobody knows.
    problem: str | None
    #: Which delivery each thread's lane looks at.
    heads: Mapping[ThreadId, DeliveryId]
    #: The threads in which a question of the server is open.
    asked: frozenset[ThreadId] = frozenset()


def look_around(config: Config, journal: Journal, *, rings: bool = True) -> Scene:
    """See how the supervisor and its lanes stand.

    Args:
        config: names the state directory.
        journal: opened there.
        rings: tell the supervisor that something was written. A look must not: a ring hurries it.
    """
    is_up = (ring if rings else is_hung)(config.state.directory)
    snapshot = load_snapshot(config.state.directory) if is_up else None
    if snapshot is None:
        return Scene(is_up, None, journal.heads())
    # What was open a while ago may be answered.
    asked = frozenset[ThreadId]() if snapshot.is_stale(now_ms()) else snapshot.asked
    return Scene(is_up, snapshot.problem, journal.heads(), asked)


def explain(delivery: Delivery, scene: Scene) -> Delivery:
    """Give a delivery its reason, where it is not, or not only, its own.

    Nobody looks at it yet; or the turn that it waits for, or that took it, waits itself.
    """
    order, standing = delivery
    if standing.phase is Phase.QUEUED:
        reason, why = _unseen(delivery, scene)
        if reason is not None:
            return delivery._replace(standing=standing._replace(reason=reason, why=why))
    if order.thread in scene.asked and (is_live(standing.phase) or _is_running(standing)):
        why = f"{standing.why}; {ASKED}" if standing.why else ASKED
        return delivery._replace(standing=standing._replace(why=why))
    return delivery


def _unseen(delivery: Delivery, scene: Scene) -> tuple[str | None, str]:
    """Say why nobody looks at a queued delivery; no reason: somebody does."""
    order = delivery.order
    head = scene.heads.get(order.thread)
    if not scene.is_up:
        return "no_supervisor", "no supervisor is running"
    if scene.problem is not None:
        return "no_server", scene.problem.rstrip(".")
    if head is not None and head != order.id:
        return "behind", f"it waits behind {head}, which came before"
    return None, ""


def _is_running(standing: Standing) -> bool:
    return standing.phase is Phase.SURFACED and standing.outcome is Outcome.RUNNING


def delivery_object(
    delivery: Delivery, scene: Scene, *, is_duplicate: bool = False
) -> dict[str, Any]:
    """Lay a delivery out as the JSON object of the command line (docs/commands.md)."""
    order, standing = explain(delivery, scene)
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
        "supervisor": "up" if scene.is_up else "down",
        "reason": standing.reason,
        "why": standing.why,
        "attempts": standing.attempts,
        "admitted_at": utc(order.admitted_at_ms),
        "changed_at": utc(standing.changed_at_ms),
    }


def delivery_sentence(delivery: Delivery, scene: Scene) -> str:
    """Say where a delivery stands."""
    order, standing = explain(delivery, scene)
    where = f"{order.id} {_PHASES.get(standing.phase, f'is {standing.phase}')}"
    if standing.phase is not Phase.SURFACED or standing.turn is None:
        by = "an operator says: " if standing.reason == OPERATOR else ""
        return f"{where}: {by}{standing.why}." if standing.why else f"{where}."
    stored = "and stored" if standing.stored else "but not yet read back"
    ended = "runs" if standing.outcome is Outcome.RUNNING else f"is {standing.outcome}"
    if _is_running(standing) and order.thread in scene.asked:
        ended = "waits for an answer: `codexdrv attention`"
    return f"{where} {stored}: turn {standing.turn}, which {ended}."


def one_line(delivery: Delivery, scene: Scene) -> str:
    """Say where a delivery stands, in one line of a list; ids of our own making are aligned."""
    order, standing = explain(delivery, scene)
    text = " ".join(order.text.split())
    head = text if len(text) <= PREVIEW_CHARACTERS else text[: PREVIEW_CHARACTERS - 1] + "…"
    note = standing.reason if is_live(standing.phase) else standing.outcome
    state = f"{standing.phase}/{note}" if note else str(standing.phase)
    when = utc(order.admitted_at_ms)
    return f"{when}  {state:24}  {order.id:36}  {order.thread}#{order.seq}  {head}"


_PHASES = {
    Phase.QUEUED: "is queued",
    Phase.PENDING: "is on its way",
    Phase.UNCERTAIN: "is in doubt",
    Phase.SURFACED: "is in the thread",
    Phase.FAILED: "has failed",
    Phase.CANCELLED: "is cancelled",
}
