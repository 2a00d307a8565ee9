"""What to do with the input at the head of a lane: `route` walks one table, first match wins.

A `Situation` is small enums only, so a test walks all of it (DESIGN.md, "Routing").
"""

from enum import StrEnum
from typing import NamedTuple

from codexdrv.rules.lifecycle import WhenBusy
from codexdrv.rules.thread import Subscription, ThreadState, TurnKind


FENCES_MAX = 2
"""Fences an attempt: one to ask, one more when the answer was that the thread is not loaded."""
RESUMES_MAX = 2
"""A thread that is unloaded between two resumes is somebody else's business for now."""
SENDS_MAX = 2
"""Mutating requests an attempt; the second only after the first was surely not admitted."""


class Activity(StrEnum):
    """What the thread does, as far as we know."""

    #: Believed quiet, or nothing is known: the fence decides.
    UNPROVED = "unproved"
    #: The fence, or a refusal, just said that no turn runs.
    QUIET = "quiet"
    #: A turn that takes input runs, and its id is known.
    BUSY = "busy"
    #: Compaction, review, or a turn that refused to be steered.
    BOUNDARY = "boundary"


class Budget(StrEnum):
    """What this attempt may still do."""

    OPEN = "open"
    #: No more fences.
    NO_FENCE = "no_fence"
    #: No more resumes, and one is needed.
    NO_RESUME = "no_resume"
    #: No more mutating requests.
    NO_SEND = "no_send"


class Action(StrEnum):
    """What the lane does next."""

    RESUME = "resume"
    FENCE = "fence"
    START = "start"
    STEER = "steer"
    INTERRUPT = "interrupt"
    #: Leave it queued; look again after a pause, or when the thread moves.
    HOLD = "hold"
    #: Refused for good.
    REFUSE = "refuse"


class Situation(NamedTuple):
    """All that the decision depends on."""

    subscription: Subscription
    activity: Activity
    when_busy: WhenBusy
    budget: Budget


class Rule(NamedTuple):
    """A row: what it matches (None matches anything), what to do, and why."""

    subscription: Subscription | None
    activity: Activity | None
    when_busy: WhenBusy | None
    budget: Budget | None
    action: Action
    #: A stable word for programs and tests.
    reason: str
    #: A sentence for people.
    why: str


RULES = (
    Rule(
        Subscription.GONE, None, None, None, Action.REFUSE, "no_rollout",
        "the server has no record of this thread: it was deleted, or never used before a restart",
    ),
    Rule(
        Subscription.EPHEMERAL, None, None, None, Action.REFUSE, "ephemeral",
        "the thread is ephemeral: it keeps no record, so nothing could be proved",
    ),
    Rule(
        Subscription.ARCHIVED, None, None, None, Action.HOLD, "archived",
        "the thread is archived; unarchive it and the message goes",
    ),
    Rule(
        Subscription.HELD_ELSEWHERE, None, None, None, Action.HOLD, "active_writer",
        "another server process has this thread open",
    ),
    Rule(
        Subscription.NONE, None, None, Budget.NO_RESUME, Action.HOLD, "restless",
        "the thread does not stay loaded: pause, then look again",
    ),
    Rule(
        Subscription.NONE, None, None, None, Action.RESUME, "not_subscribed",
        "this connection does not listen to the thread yet",
    ),
    Rule(
        None, Activity.BOUNDARY, None, None, Action.HOLD, "boundary",
        "the running turn takes no input (compaction, review): wait for its end",
    ),
    Rule(
        None, Activity.BUSY, WhenBusy.WAIT, None, Action.HOLD, "busy",
        "a turn runs and the message is to wait for its end",
    ),
    Rule(
        None, None, None, Budget.NO_SEND, Action.HOLD, "restless",
        "the thread changed twice while we tried: pause, then look again",
    ),
    Rule(
        None, Activity.BUSY, WhenBusy.INTERRUPT, None, Action.INTERRUPT, "interrupting",
        "a turn runs, and the message is to replace it",
    ),
    Rule(
        None, Activity.BUSY, None, None, Action.STEER, "steer",
        "a turn runs that takes input",
    ),
    Rule(
        None, Activity.QUIET, None, None, Action.START, "start",
        "the server says that no turn runs",
    ),
    Rule(
        None, None, None, Budget.NO_FENCE, Action.HOLD, "restless",
        "the thread changed twice while we asked: pause, then look again",
    ),
    Rule(
        None, None, None, None, Action.FENCE, "unproved",
        "nobody knows for certain what the thread does",
    ),
)  # fmt: skip
"""First match wins; the last row matches everything."""


def route(situation: Situation) -> Rule:
    """Find the first rule that matches."""
    return next(rule for rule in RULES if is_match(rule, situation))


def is_match(rule: Rule, situation: Situation) -> bool:
    """Say whether a rule's conditions hold."""
    return all(want is None or want == got for want, got in zip(rule[:4], situation, strict=True))


class Attempt(NamedTuple):
    """What an attempt has done so far, and what it was just told."""

    fences: int = 0
    resumes: int = 0
    sends: int = 0
    #: The server said that no turn runs, and no news has come since.
    is_proved_quiet: bool = False


def situation(state: ThreadState, attempt: Attempt, when_busy: WhenBusy) -> Situation:
    """Put the thread, the attempt and the caller's wish into one value."""
    return Situation(
        state.subscription, _activity(state, attempt), when_busy, _budget(state, attempt)
    )


def _activity(state: ThreadState, attempt: Attempt) -> Activity:
    if state.turn is None:
        return Activity.QUIET if attempt.is_proved_quiet else Activity.UNPROVED
    return Activity.BUSY if state.turn.kind is TurnKind.REGULAR else Activity.BOUNDARY


def _budget(state: ThreadState, attempt: Attempt) -> Budget:
    # First: whatever else is used up, an attempt does not resume without end.
    if state.subscription is Subscription.NONE and attempt.resumes >= RESUMES_MAX:
        return Budget.NO_RESUME
    if attempt.sends >= SENDS_MAX:
        return Budget.NO_SEND
    return Budget.NO_FENCE if attempt.fences >= FENCES_MAX else Budget.OPEN
