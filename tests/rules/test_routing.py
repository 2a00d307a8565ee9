from itertools import product

import pytest

from codexdrv.protocol.events import ThreadStatus
from codexdrv.rules.lifecycle import WhenBusy
from codexdrv.rules.routing import (
    FENCES_MAX,
    RESUMES_MAX,
    RULES,
    SENDS_MAX,
    Action,
    Activity,
    Attempt,
    Budget,
    Situation,
    is_match,
    route,
    situation,
)
from codexdrv.rules.thread import RunningTurn, Subscription, ThreadState, TurnKind


ALL = [Situation(*values) for values in product(Subscription, Activity, WhenBusy, Budget)]
HEARD = {Subscription.SUBSCRIBED, Subscription.NEVER_USED}
"""Turns can be started here: it is listened to, or it will be after its first turn."""

TURNS = [None, *(RunningTurn("t1", kind) for kind in TurnKind)]
STATES = [
    ThreadState(status, subscription, turn)
    for status, subscription, turn in product(ThreadStatus, Subscription, TURNS)
]
ATTEMPTS = [
    Attempt(*values)
    for values in product(
        range(FENCES_MAX + 2), range(RESUMES_MAX + 2), range(SENDS_MAX + 2), [False, True]
    )
]


def where(action):
    return {found for found in ALL if route(found).action is action}


def such(is_so):
    return {found for found in ALL if is_so(found)}


@pytest.mark.parametrize("found", ALL, ids=str)
def test_every_situation_is_decided_by_the_first_rule_that_matches(found):
    matching = [rule for rule in RULES if is_match(rule, found)]
    assert route(found) is matching[0]


def test_every_rule_decides_a_situation():
    assert {route(found) for found in ALL} == set(RULES)


def test_every_rule_says_why_in_words_of_its_own():
    assert len({rule.why for rule in RULES}) == len(RULES)
    assert all(rule.why and rule.reason for rule in RULES)


def test_a_reason_stands_for_one_action():
    assert len({(rule.reason, rule.action) for rule in RULES}) == len({r.reason for r in RULES})


def test_a_message_is_refused_exactly_where_nothing_could_ever_be_proved():
    lost = {Subscription.GONE, Subscription.EPHEMERAL}
    assert where(Action.REFUSE) == such(lambda s: s.subscription in lost)


def test_a_thread_is_resumed_exactly_when_it_is_not_listened_to():
    assert where(Action.RESUME) == such(
        lambda s: s.subscription is Subscription.NONE and s.budget is not Budget.NO_RESUME
    )


def test_a_turn_is_started_exactly_when_the_thread_was_just_proved_quiet():
    assert where(Action.START) == such(
        lambda s: (
            s.subscription in HEARD
            and s.activity is Activity.QUIET
            and s.budget is not Budget.NO_SEND
        )
    )


def test_a_turn_is_steered_exactly_when_it_takes_input_and_the_caller_wants_it():
    assert where(Action.STEER) == such(
        lambda s: (
            s.subscription in HEARD
            and s.activity is Activity.BUSY
            and s.when_busy is WhenBusy.STEER
            and s.budget is not Budget.NO_SEND
        )
    )


def test_a_turn_is_interrupted_exactly_when_it_takes_input_and_the_caller_wants_it():
    assert where(Action.INTERRUPT) == such(
        lambda s: (
            s.subscription in HEARD
            and s.activity is Activity.BUSY
            and s.when_busy is WhenBusy.INTERRUPT
            and s.budget is not Budget.NO_SEND
        )
    )


def test_the_server_is_asked_exactly_when_nothing_is_proved():
    assert where(Action.FENCE) == such(
        lambda s: (
            s.subscription in HEARD
            and s.activity is Activity.UNPROVED
            and s.budget in {Budget.OPEN, Budget.NO_RESUME}
        )
    )


def test_a_message_is_held_where_waiting_may_help():
    blocked = {Subscription.ARCHIVED, Subscription.HELD_ELSEWHERE}
    spent = {Budget.NO_SEND, Budget.NO_FENCE}

    def is_held(found):
        if found.subscription not in HEARD:
            return found.subscription in blocked or (
                found.subscription is Subscription.NONE and found.budget is Budget.NO_RESUME
            )
        match found.activity:
            case Activity.BOUNDARY:
                return True
            case Activity.BUSY:
                return found.when_busy is WhenBusy.WAIT or found.budget is Budget.NO_SEND
            case Activity.QUIET:
                return found.budget is Budget.NO_SEND
            case Activity.UNPROVED:
                return found.budget in spent

    assert where(Action.HOLD) == such(is_held)


@pytest.mark.parametrize(
    ("found", "action", "reason"),
    [
        (("gone", "quiet", "steer", "open"), "refuse", "no_rollout"),
        (("ephemeral", "busy", "steer", "open"), "refuse", "ephemeral"),
        (("archived", "unproved", "steer", "open"), "hold", "archived"),
        (("held_elsewhere", "unproved", "steer", "open"), "hold", "active_writer"),
        (("none", "unproved", "steer", "open"), "resume", "not_subscribed"),
        (("none", "busy", "steer", "no_resume"), "hold", "restless"),
        (("subscribed", "boundary", "interrupt", "open"), "hold", "boundary"),
        (("subscribed", "busy", "wait", "open"), "hold", "busy"),
        (("subscribed", "busy", "wait", "no_send"), "hold", "busy"),
        (("subscribed", "busy", "interrupt", "open"), "interrupt", "interrupting"),
        (("subscribed", "busy", "steer", "no_fence"), "steer", "steer"),
        (("subscribed", "quiet", "wait", "no_fence"), "start", "start"),
        (("never_used", "quiet", "steer", "open"), "start", "start"),
        (("subscribed", "unproved", "steer", "open"), "fence", "unproved"),
        (("subscribed", "unproved", "steer", "no_fence"), "hold", "restless"),
        (("subscribed", "quiet", "steer", "no_send"), "hold", "restless"),
    ],
)
def test_the_rows_of_the_design(found, action, reason):
    subscription, activity, when_busy, budget = found
    rule = route(
        Situation(
            Subscription(subscription), Activity(activity), WhenBusy(when_busy), Budget(budget)
        )
    )
    assert (rule.action, rule.reason) == (action, reason)


@pytest.mark.parametrize("when_busy", WhenBusy)
@pytest.mark.parametrize("subscription", Subscription)
def test_subscription_and_wish_are_taken_as_they_are(subscription, when_busy):
    found = situation(ThreadState(subscription=subscription), Attempt(), when_busy)
    assert found == (subscription, Activity.UNPROVED, when_busy, Budget.OPEN)


@pytest.mark.parametrize(
    ("turn", "is_proved_quiet", "activity"),
    [
        (None, False, Activity.UNPROVED),
        (None, True, Activity.QUIET),
        *(
            (RunningTurn("t1", kind), is_proved_quiet, activity)
            for is_proved_quiet in (False, True)
            for kind, activity in [
                (TurnKind.REGULAR, Activity.BUSY),
                (TurnKind.COMPACTION, Activity.BOUNDARY),
                (TurnKind.REVIEW, Activity.BOUNDARY),
                (TurnKind.UNSTEERABLE, Activity.BOUNDARY),
            ]
        ),
    ],
)
@pytest.mark.parametrize("status", ThreadStatus)
def test_the_turn_decides_what_the_thread_does_and_its_status_never(
    turn, is_proved_quiet, activity, status
):
    state = ThreadState(status, Subscription.SUBSCRIBED, turn)
    attempt = Attempt(is_proved_quiet=is_proved_quiet)
    assert situation(state, attempt, WhenBusy.STEER).activity is activity


@pytest.mark.parametrize("subscription", [Subscription.SUBSCRIBED, Subscription.NEVER_USED])
@pytest.mark.parametrize(
    ("attempt", "budget"),
    [
        (Attempt(), Budget.OPEN),
        (Attempt(fences=FENCES_MAX - 1, sends=SENDS_MAX - 1), Budget.OPEN),
        (Attempt(resumes=RESUMES_MAX), Budget.OPEN),
        (Attempt(fences=FENCES_MAX), Budget.NO_FENCE),
        (Attempt(sends=SENDS_MAX), Budget.NO_SEND),
        (Attempt(fences=FENCES_MAX, sends=SENDS_MAX), Budget.NO_SEND),
        (Attempt(FENCES_MAX + 1, RESUMES_MAX + 1, SENDS_MAX + 1), Budget.NO_SEND),
    ],
)
def test_a_thread_that_is_heard_has_its_budget(subscription, attempt, budget):
    state = ThreadState(subscription=subscription)
    assert situation(state, attempt, WhenBusy.STEER).budget is budget


@pytest.mark.parametrize(
    ("attempt", "budget"),
    [
        (Attempt(resumes=RESUMES_MAX - 1), Budget.OPEN),
        (Attempt(resumes=RESUMES_MAX), Budget.NO_RESUME),
        (Attempt(FENCES_MAX, RESUMES_MAX), Budget.NO_RESUME),
        (Attempt(FENCES_MAX, RESUMES_MAX, SENDS_MAX), Budget.NO_RESUME),
        (Attempt(resumes=RESUMES_MAX - 1, sends=SENDS_MAX), Budget.NO_SEND),
    ],
)
def test_a_thread_that_is_not_heard_needs_a_resume_first(attempt, budget):
    state = ThreadState(subscription=Subscription.NONE)
    assert situation(state, attempt, WhenBusy.STEER).budget is budget


def test_an_attempt_fences_and_sends_twice_at_most():
    assert (FENCES_MAX, SENDS_MAX, RESUMES_MAX) == (2, 2, 2)
    assert Attempt() == (0, 0, 0, False)


def test_an_attempt_does_nothing_beyond_its_budget_so_it_ends():
    spent = {
        Action.FENCE: lambda attempt: attempt.fences < FENCES_MAX,
        Action.RESUME: lambda attempt: attempt.resumes < RESUMES_MAX,
        Action.START: lambda attempt: attempt.sends < SENDS_MAX,
        Action.STEER: lambda attempt: attempt.sends < SENDS_MAX,
        Action.INTERRUPT: lambda attempt: attempt.sends < SENDS_MAX,
    }
    for state, attempt, when_busy in product(STATES, ATTEMPTS, WhenBusy):
        action = route(situation(state, attempt, when_busy)).action
        assert action not in spent or spent[action](attempt), (state, attempt, when_busy)
