"""Who owns an input: the one table of phases and facts (DESIGN.md, "Ownership").

`advance` is the whole machine. A blank is an illegal move and raises; `docs/states.md` is
rendered from `TRANSITIONS`.
"""

from enum import StrEnum

from codexdrv.errors import IllegalMove


class Phase(StrEnum):
    """Who owns the input now; durable."""

    #: Ours: not sent, or proved not to have arrived.
    QUEUED = "queued"
    #: On its way: `pending` was written before the first byte.
    PENDING = "pending"
    #: It may have arrived; only evidence can tell, never a second send.
    UNCERTAIN = "uncertain"
    #: The server's: a user message with our id is in a turn.
    SURFACED = "surfaced"
    #: Refused for good; it is not in the thread.
    FAILED = "failed"
    #: Taken back by the caller before it was sent.
    CANCELLED = "cancelled"


class Fact(StrEnum):
    """What became true of a delivery; each one is a row that stays."""

    #: The bytes are about to be written; committed before they are.
    DISPATCHED = "dispatched"
    #: The server accepted the request; that is no proof of anything more.
    ANSWERED = "answered"
    #: A user message with our id and our text is in a turn.
    SURFACED = "surfaced"
    #: Not admitted, or not sent for now; may be sent later.
    HELD = "held"
    #: Refused for good, or expired.
    REFUSED = "refused"
    #: Nobody can say whether it arrived.
    IN_DOUBT = "in_doubt"
    #: Proved absent.
    ABSENT = "absent"
    #: The caller took it back.
    CANCELLED = "cancelled"
    #: An operator says that it is in the thread.
    RESOLVED_SURFACED = "resolved_surfaced"
    #: An operator says that it is not in the thread: send it (again).
    RESOLVED_ABSENT = "resolved_absent"
    #: An operator gives it up.
    RESOLVED_FAILED = "resolved_failed"
    #: In doubt for so long that the lane goes on without it.
    PARKED = "parked"
    #: Read back from the thread's record.
    STORED = "stored"
    #: The turn that took it ended.
    TURN_ENDED = "turn_ended"


class TooLate(StrEnum):
    """An answer to the caller instead of a move: the phase stays, nothing is recorded."""

    ON_ITS_WAY = "too late: it may be on its way"
    ENDED = "too late: it has ended"


TERMINAL = frozenset({Phase.SURFACED, Phase.FAILED, Phase.CANCELLED})
"""Nothing leaves these but by late evidence, or by an operator's force."""

_Q, _P, _U = Phase.QUEUED, Phase.PENDING, Phase.UNCERTAIN
_S, _F, _C = Phase.SURFACED, Phase.FAILED, Phase.CANCELLED

TRANSITIONS: dict[tuple[Phase, Fact], Phase | TooLate] = {
    (_Q, Fact.DISPATCHED): _P,
    (_Q, Fact.SURFACED): _S,
    (_Q, Fact.HELD): _Q,
    (_Q, Fact.REFUSED): _F,
    # Late word of an attempt that was already settled changes nothing.
    (_Q, Fact.IN_DOUBT): _Q,
    (_Q, Fact.ABSENT): _Q,
    (_Q, Fact.CANCELLED): _C,
    (_Q, Fact.RESOLVED_FAILED): _F,
    (_P, Fact.ANSWERED): _P,
    (_P, Fact.SURFACED): _S,
    (_P, Fact.HELD): _Q,
    (_P, Fact.REFUSED): _F,
    # The write may have arrived: never resend before asking the server.
    (_P, Fact.IN_DOUBT): _U,
    (_P, Fact.ABSENT): _Q,
    (_P, Fact.CANCELLED): TooLate.ON_ITS_WAY,
    (_P, Fact.RESOLVED_SURFACED): _S,
    (_P, Fact.RESOLVED_ABSENT): _Q,
    (_P, Fact.RESOLVED_FAILED): _F,
    #
    # The late answer of the attempt that is open is the best proof there is.
    (_U, Fact.ANSWERED): _U,
    (_U, Fact.SURFACED): _S,
    (_U, Fact.HELD): _Q,
    (_U, Fact.REFUSED): _F,
    (_U, Fact.IN_DOUBT): _U,
    (_U, Fact.ABSENT): _Q,
    (_U, Fact.CANCELLED): TooLate.ON_ITS_WAY,
    (_U, Fact.RESOLVED_SURFACED): _S,
    (_U, Fact.RESOLVED_ABSENT): _Q,
    (_U, Fact.RESOLVED_FAILED): _F,
    (_U, Fact.PARKED): _U,
    #
    # Surfaced beats everything, also late.
    (_F, Fact.ANSWERED): _F,
    (_F, Fact.SURFACED): _S,
    (_F, Fact.HELD): _F,
    (_F, Fact.REFUSED): _F,
    (_F, Fact.IN_DOUBT): _F,
    (_F, Fact.ABSENT): _F,
    (_F, Fact.CANCELLED): TooLate.ENDED,
    (_F, Fact.RESOLVED_ABSENT): _Q,
    (_C, Fact.ANSWERED): _C,
    (_C, Fact.SURFACED): _S,
    (_C, Fact.HELD): _C,
    (_C, Fact.REFUSED): _C,
    (_C, Fact.IN_DOUBT): _C,
    (_C, Fact.ABSENT): _C,
    (_C, Fact.CANCELLED): _C,
    (_C, Fact.RESOLVED_ABSENT): _Q,
    (_S, Fact.ANSWERED): _S,
    (_S, Fact.SURFACED): _S,
    (_S, Fact.HELD): _S,
    (_S, Fact.REFUSED): _S,
    (_S, Fact.IN_DOUBT): _S,
    (_S, Fact.ABSENT): _S,
    (_S, Fact.CANCELLED): TooLate.ENDED,
    (_S, Fact.STORED): _S,
    (_S, Fact.TURN_ENDED): _S,
}
"""(phase, fact) → the phase after it; every blank is an illegal move."""

FORCED = frozenset(
    {(_P, Fact.RESOLVED_ABSENT), (_F, Fact.RESOLVED_ABSENT), (_C, Fact.RESOLVED_ABSENT)}
)
"""Moves that an operator has to force: what is on its way, or had ended, is sent again."""


def advance(phase: Phase, fact: Fact) -> Phase | TooLate:
    """Say which phase a fact leads to.

    Raises:
        IllegalMove: the table has a blank there.
    """
    try:
        return TRANSITIONS[phase, fact]
    except KeyError:
        raise IllegalMove(f"A {phase} delivery cannot become {fact}.") from None


class Duty(StrEnum):
    """What the dispatcher owes the oldest live delivery of a thread."""

    #: Route it.
    DISPATCH = "dispatch"
    #: An attempt is open: its facts will come.
    WAIT = "wait"
    #: Look for it in the thread; never send it.
    RECONCILE = "reconcile"
    #: Leave it alone.
    NOTHING = "nothing"


def duty(phase: str, *, is_open: bool) -> Duty:
    """Say what is owed; a function of what is stored, so that a restart is no special path.

    Args:
        phase: as stored; a word that is no phase is live and never replayed.
        is_open: the attempt belongs to the generation that asks.
    """
    match phase:
        case Phase.QUEUED:
            return Duty.DISPATCH
        case Phase.PENDING:
            return Duty.WAIT if is_open else Duty.RECONCILE
        case Phase.UNCERTAIN:
            return Duty.RECONCILE
        case _:
            return Duty.NOTHING
