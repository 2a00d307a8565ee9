"""A delivery: what was ordered (never changes), and how it stands (the fold of its facts).

`fold` is the only way that a standing changes; the journal writes each fact and its fold in one
transaction, and a test replays one into the other.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from codexdrv.errors import IllegalMove
from codexdrv.ids import DeliveryId, ThreadId, TurnId
from codexdrv.rules.ownership import TERMINAL, Fact, Phase, TooLate, advance


OPERATOR = "operator"
"""The reason of what an operator said."""


class WhenBusy(StrEnum):
    """What the caller wants while a turn runs."""

    #: Put it into that turn.
    STEER = "steer"
    #: Hold it until the turn has ended.
    WAIT = "wait"
    #: End that turn first.
    INTERRUPT = "interrupt"


class Outcome(StrEnum):
    """What became of the turn that took the input."""

    #: Admitted.
    RECEIVED = "received"
    #: Surfaced; its turn runs.
    RUNNING = "running"
    COMPLETED = "completed"
    #: The turn failed; the input is in the thread all the same.
    FAILED = "failed"
    #: The turn was cut; the input is in the thread and is not replayed.
    INTERRUPTED = "interrupted"


class Order(NamedTuple):
    """What a caller entrusted to us."""

    id: DeliveryId
    thread: ThreadId
    #: The name that the caller used, if it named a target.
    target: str | None
    source: str | None
    text: str
    when_busy: WhenBusy
    #: A name for the position in its thread, from 1; 0 until it is admitted.
    seq: int
    #: Unix time, milliseconds.
    admitted_at_ms: int
    #: Queued for longer than until then, it fails; None: it waits for ever.
    expires_at_ms: int | None = None


class Standing(NamedTuple):
    """How a delivery stands."""

    phase: Phase
    #: One up with each fact.
    revision: int = 0
    #: Attempts begun.
    attempts: int = 0
    #: A stable word, and a sentence.
    reason: str | None = None
    why: str | None = None
    #: The turn that took it, from the echo.
    turn: TurnId | None = None
    #: The turn that the answer to the open attempt named; a hint.
    answered_turn: TurnId | None = None
    outcome: Outcome | None = Outcome.RECEIVED
    #: Read back from the thread's record.
    stored: bool = False
    #: Its outcome came after the caller had given up.
    late: bool = False
    #: The lane goes on without it.
    parked: bool = False
    #: It was parked before it surfaced or was queued again.
    out_of_order: bool = False
    #: The attempt that was begun last, as JSON (`Dispatch`); evidence needs it.
    dispatch: str | None = None
    #: Unix time of the last fact, milliseconds.
    changed_at_ms: int = 0


class Delivery(NamedTuple):
    """One row: what was ordered, and how it stands."""

    order: Order
    standing: Standing


class News(NamedTuple):
    """A fact, and what is known with it."""

    fact: Fact
    reason: str | None = None
    why: str | None = None
    turn: TurnId | None = None
    outcome: Outcome | None = None
    #: Only with `DISPATCHED`: the attempt's number, and the attempt as JSON.
    attempt: int | None = None
    dispatch: str | None = None
    #: What the witnesses said, as JSON, where evidence was weighed.
    witness: str | None = None


_KEEP_REASON = frozenset({Fact.STORED, Fact.TURN_ENDED, Fact.ANSWERED, Fact.PARKED})
_AFTER_SURFACED = frozenset({Fact.STORED, Fact.TURN_ENDED})
_OUTCOMES = {
    Phase.SURFACED: Outcome.RUNNING,
    Phase.FAILED: None,
    Phase.CANCELLED: None,
}


def fold(standing: Standing, news: News, *, now_ms: int) -> Standing:
    """Apply one fact.

    Raises:
        IllegalMove: the ownership table has a blank there, or it is no move at all.
    """
    phase = advance(standing.phase, news.fact)
    if isinstance(phase, TooLate):
        raise IllegalMove(f"A {standing.phase} delivery stays so: {phase}.")
    moved = _with_move(standing, phase, news)
    # Late word does not overwrite why a delivery ended.
    is_late = phase is standing.phase and phase in TERMINAL and news.fact not in _AFTER_SURFACED
    keeps = is_late or (news.fact in _KEEP_REASON and news.reason is None)
    return moved._replace(
        revision=standing.revision + 1,
        reason=standing.reason if keeps else news.reason,
        why=standing.why if keeps else news.why,
        changed_at_ms=now_ms,
    )


def _with_move(standing: Standing, phase: Phase, news: News) -> Standing:
    changes: dict[str, Any] = {}
    match news.fact:
        case Fact.DISPATCHED:
            changes["attempts"] = news.attempt or standing.attempts
            changes["dispatch"] = news.dispatch
            changes["answered_turn"] = None
        case Fact.ANSWERED:
            changes["answered_turn"] = news.turn
        case Fact.STORED:
            changes["stored"] = True
        case Fact.TURN_ENDED:
            changes["outcome"] = news.outcome
        case Fact.PARKED:
            changes["parked"] = True
        case _ if phase is not standing.phase:
            changes["turn"] = news.turn or standing.turn
            changes["outcome"] = _OUTCOMES.get(phase, Outcome.RECEIVED)
            if phase is Phase.SURFACED and changes["turn"] is None:
                # An operator's word, or a record that names no turn: none can be waited for.
                changes["outcome"] = None
            changes["parked"] = standing.parked and phase is Phase.UNCERTAIN
            # The lane went on without it, so whatever becomes of it comes out of order.
            changes["out_of_order"] = standing.out_of_order or standing.parked
        case _:
            pass
    return standing._replace(phase=phase, **changes)


def is_live(phase: str) -> bool:
    """Say whether a delivery still waits for something; a word that is no phase does."""
    return phase not in TERMINAL


def is_settled(standing: Standing) -> bool:
    """Say whether nothing more can be expected of a delivery.

    An operator's word is the end of it: no evidence is waited for.
    """
    if standing.phase is Phase.SURFACED and standing.reason != OPERATOR:
        return standing.stored and standing.outcome is not Outcome.RUNNING
    return standing.phase in TERMINAL


def is_expired(order: Order, *, now_ms: int) -> bool:
    """Say whether the caller does not want the input any more, if it is still queued."""
    return order.expires_at_ms is not None and now_ms >= order.expires_at_ms


EXPIRED = News(Fact.REFUSED, "expired", "it was still queued when its time was over")
"""What is then recorded."""


def is_same_request(order: Order, other: Order) -> bool:
    """Say whether a repeated id stands for the same request: target or thread as named, and text.

    The first one's options stand.
    """
    return (order.target, order.target or order.thread, order.text) == (
        other.target,
        other.target or other.thread,
        other.text,
    )
