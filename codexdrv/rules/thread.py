"""What we know of a thread: `reduce` folds the server's news into a live view.

The view is never stored: a generation begins with one that knows nothing. Notifications come
first; what a response says is folded in as an event too, and never takes back newer news.
"""

from enum import StrEnum
from typing import NamedTuple

from codexdrv.ids import TurnId
from codexdrv.protocol.events import (
    Event,
    ItemCompleted,
    ItemKind,
    ItemStarted,
    StatusChanged,
    ThreadClosed,
    ThreadMoved,
    ThreadStatus,
    TurnEnded,
    TurnStarted,
)


FINISHED_TURNS_MAX = 16
"""Late items come within the next turn or two; more would only be memory."""


class TurnKind(StrEnum):
    """Whether the turn that runs takes input."""

    REGULAR = "regular"
    COMPACTION = "compaction"
    REVIEW = "review"
    #: It refused to be steered, and we do not know why.
    UNSTEERABLE = "unsteerable"


class Subscription(StrEnum):
    """Whether this generation gets the thread's turns and items."""

    #: Not asked, or lost.
    NONE = "none"
    SUBSCRIBED = "subscribed"
    #: The server knows it, but it never had a turn: it cannot be resumed yet.
    NEVER_USED = "never_used"
    #: The server does not know it, or has no record of it.
    GONE = "gone"
    ARCHIVED = "archived"
    #: Another server process holds it.
    HELD_ELSEWHERE = "held_elsewhere"
    #: It leaves no record, so nothing could ever be proved.
    EPHEMERAL = "ephemeral"


OBSTACLES = {
    Subscription.NONE: "it was unloaded at once",
    Subscription.NEVER_USED: "it was never used, so it cannot be resumed yet",
    Subscription.GONE: "the server has no record of it",
    Subscription.ARCHIVED: "it is archived",
    Subscription.HELD_ELSEWHERE: "another server process has it open",
    Subscription.EPHEMERAL: "it is ephemeral",
}
"""Why a resume may leave us without a subscription; each may pass."""


class RunningTurn(NamedTuple):
    """The turn that runs, as far as we know."""

    id: TurnId
    kind: TurnKind


class ThreadState(NamedTuple):
    """A thread, as known now."""

    status: ThreadStatus = ThreadStatus.UNKNOWN
    subscription: Subscription = Subscription.NONE
    turn: RunningTurn | None = None
    #: An approval or a question is open.
    is_waiting: bool = False
    #: Turns that ended, newest last: a late item of one of them is no sign of life.
    finished: tuple[TurnId, ...] = ()


_KINDS = {
    ItemKind.CONTEXT_COMPACTION: TurnKind.COMPACTION,
    ItemKind.ENTERED_REVIEW: TurnKind.REVIEW,
}
"""What an item shows of its turn; any other shows that the turn takes input."""
_UNTIL_THE_END = frozenset({TurnKind.REVIEW, TurnKind.UNSTEERABLE})
"""Not so compaction: a long turn compacts on its way and takes input again, in all versions."""


def reduce(state: ThreadState, event: Event) -> ThreadState:
    """Fold one event of this thread into what is known of it."""
    match event:
        case StatusChanged(status=ThreadStatus.NOT_LOADED) | ThreadClosed() | ThreadMoved():
            return lost_thread(state)
        case StatusChanged(status=status, waiting=waiting):
            # `idle` does not end a turn; `turn/completed` does (WIRE-FACTS, "Turns").
            return state._replace(status=status, is_waiting=waiting)
        case TurnStarted(turn=turn):
            return _with_turn(state, turn, None)
        case ItemStarted(turn=turn, kind=kind) | ItemCompleted(turn=turn, kind=kind):
            return _with_turn(state, turn, _KINDS.get(kind, TurnKind.REGULAR))
        case TurnEnded(turn=turn):
            return end_turn(state, turn)
        case _:
            return state


def end_turn(state: ThreadState, turn: TurnId) -> ThreadState:
    """Take a turn as ended, and remember it; one that did not run leaves the running one."""
    if turn in state.finished:
        return state
    finished = (*state.finished, turn)[-FINISHED_TURNS_MAX:]
    still = None if state.turn is None or state.turn.id == turn else state.turn
    return state._replace(turn=still, finished=finished)


def found_turn(state: ThreadState, turn: TurnId) -> ThreadState:
    """Take it from the server's own queue that this turn runs now, whatever we believed."""
    if state.turn is not None and state.turn.id == turn:
        return state
    finished = tuple(ended for ended in state.finished if ended != turn)
    return state._replace(turn=RunningTurn(turn, TurnKind.REGULAR), finished=finished)


def found_quiet(state: ThreadState, believed: TurnId | None) -> ThreadState:
    """Take it from the server's own queue that no turn runs: compare and clear.

    Args:
        state: what is known now.
        believed: the turn that was known when the question was asked; one that began since stays.
    """
    if believed is None or state.turn is None or state.turn.id != believed:
        return state
    return end_turn(state, believed)


def lost_thread(state: ThreadState) -> ThreadState:
    """Take it that the server has unloaded the thread, or that we do not listen to it."""
    return ThreadState(ThreadStatus.NOT_LOADED, finished=state.finished)


def found_unsteerable(state: ThreadState, turn_kind: str) -> ThreadState:
    """Take it from a refusal that the running turn takes no input."""
    kind = {"compact": TurnKind.COMPACTION, "review": TurnKind.REVIEW}.get(
        turn_kind, TurnKind.UNSTEERABLE
    )
    return state if state.turn is None else state._replace(turn=state.turn._replace(kind=kind))


def _with_turn(state: ThreadState, turn: TurnId, kind: TurnKind | None) -> ThreadState:
    """Take it that a turn runs; `kind` is what an item of it shows, None if nothing does."""
    running = state.turn
    if turn in state.finished:
        return state
    if running is not None and running.id == turn:
        kind = running.kind if kind is None or running.kind in _UNTIL_THE_END else kind
    elif running is not None and running.kind is TurnKind.REVIEW:
        # A review has a turn of its own inside, whose end is never told.
        return state
    return state._replace(turn=RunningTurn(turn, kind or TurnKind.REGULAR))
