import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codexdrv.ids import ThreadId, TurnId
from codexdrv.protocol.events import (
    ItemCompleted,
    ItemKind,
    ItemStarted,
    StatusChanged,
    ThreadClosed,
    ThreadMoved,
    ThreadStatus,
    TurnEnded,
    TurnStarted,
    TurnStatus,
    Unrecognized,
    Warned,
)
from codexdrv.rules.thread import (
    FINISHED_TURNS_MAX,
    RunningTurn,
    Subscription,
    ThreadState,
    TurnKind,
    end_turn,
    found_quiet,
    found_turn,
    found_unsteerable,
    lost_thread,
    reduce,
)


# The same examples every time, however slow the machine.
STEADY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
THREAD = ThreadId("01a22d0b-8d92-7622-a61b-221d9b94b56e")
T1, T2, T3 = TurnId("t1"), TurnId("t2"), TurnId("t3")
HEARD = ThreadState(ThreadStatus.IDLE, Subscription.SUBSCRIBED)

ACTIVE = StatusChanged(THREAD, ThreadStatus.ACTIVE, waiting=False)
IDLE = StatusChanged(THREAD, ThreadStatus.IDLE, waiting=False)
BROKEN = StatusChanged(THREAD, ThreadStatus.SYSTEM_ERROR, waiting=False)
UNLOADED = StatusChanged(THREAD, ThreadStatus.NOT_LOADED, waiting=False)
ASKING = StatusChanged(THREAD, ThreadStatus.ACTIVE, waiting=True)

SAID, ANSWERED = ItemKind.USER_MESSAGE, ItemKind.AGENT_MESSAGE
COMPACTED, RAN = ItemKind.CONTEXT_COMPACTION, ItemKind.OTHER
REVIEW_BEGAN, REVIEW_ENDED = ItemKind.ENTERED_REVIEW, ItemKind.EXITED_REVIEW


def began(turn):
    return TurnStarted(THREAD, turn)


def ended(turn, status=TurnStatus.COMPLETED):
    return TurnEnded(THREAD, turn, status)


def started(turn, kind):
    return ItemStarted(THREAD, turn, kind)


def completed(turn, kind):
    return ItemCompleted(THREAD, turn, kind, "", None)


def item(turn, kind):
    return [started(turn, kind), completed(turn, kind)]


def told(*events, state=HEARD):
    for event in events:
        state = reduce(state, event)
    return state


def kinds(*events, state=HEARD):
    """List what is known of the running turn after each event."""
    seen = []
    for event in events:
        state = reduce(state, event)
        seen.append(state.turn and (state.turn.id, str(state.turn.kind)))
    return seen


def test_at_first_nothing_is_known():
    assert ThreadState() == (ThreadStatus.UNKNOWN, Subscription.NONE, None, False, ())


def test_a_regular_turn_takes_input_from_its_start_to_its_end():
    # 0.144.5, 0.163.0 and 0.171.0 alike.
    assert kinds(
        ACTIVE,
        began(T1),
        *item(T1, SAID),
        *item(T1, ANSWERED),
        IDLE,
        ended(T1),
    ) == [None, *[(T1, "regular")] * 6, None]


def test_idle_does_not_end_a_turn():
    state = told(ACTIVE, began(T1), IDLE)
    assert state.turn == RunningTurn(T1, TurnKind.REGULAR)
    assert state.status is ThreadStatus.IDLE


def test_active_does_not_begin_one():
    assert told(ACTIVE).turn is None


@pytest.mark.parametrize("status", TurnStatus)
def test_a_turn_ends_however_it_ended(status):
    assert told(began(T1), ended(T1, status)).turn is None


def test_a_turn_that_was_begun_before_we_listened_shows_by_its_items():
    assert told(started(T1, ANSWERED)).turn == RunningTurn(T1, TurnKind.REGULAR)
    assert told(completed(T1, SAID)).turn == RunningTurn(T1, TurnKind.REGULAR)


@pytest.mark.parametrize(
    "late", [began(T1), *item(T1, SAID), *item(T1, ANSWERED), *item(T1, COMPACTED)]
)
def test_a_late_word_of_a_finished_turn_does_not_revive_it(late):
    over = told(began(T1), ended(T1))
    assert told(late, state=over) == over
    later = told(began(T2), state=over)
    assert told(late, state=later) == later


def test_the_end_of_a_turn_leaves_another_one_running():
    assert told(began(T1), began(T2), ended(T1)).turn == RunningTurn(T2, TurnKind.REGULAR)


def test_the_end_of_a_turn_that_we_never_saw_is_remembered():
    assert told(ended(T1), began(T1)).turn is None


def test_a_terminal_error_ends_the_turn_once():
    state = told(ACTIVE, began(T1), *item(T1, SAID), ended(T1, TurnStatus.FAILED))
    assert state.turn is None
    cleaned = told(BROKEN, ended(T1, TurnStatus.FAILED), state=state)
    assert cleaned == state._replace(status=ThreadStatus.SYSTEM_ERROR)


def test_a_failed_turn_is_followed_by_the_next():
    state = told(began(T1), ended(T1, TurnStatus.FAILED), BROKEN, ACTIVE, began(T2))
    assert state.turn == RunningTurn(T2, TurnKind.REGULAR)


def test_compaction_that_was_asked_for_is_a_boundary_until_its_turn_ends():
    assert kinds(
        ACTIVE,
        began(T1),
        started(T1, COMPACTED),
        completed(T1, COMPACTED),
        IDLE,
        ended(T1),
    ) == [None, (T1, "regular"), *[(T1, "compaction")] * 3, None]


def test_compaction_at_the_start_of_a_turn_is_a_boundary_until_its_first_message():
    assert kinds(
        began(T1), *item(T1, COMPACTED), *item(T1, SAID), *item(T1, ANSWERED), IDLE, ended(T1)
    ) == [(T1, "regular"), *[(T1, "compaction")] * 2, *[(T1, "regular")] * 5, None]


def test_compaction_on_the_way_is_a_boundary_until_the_turn_goes_on():
    # 0.144.5 tells the end of a command only after the compaction has begun.
    assert kinds(
        began(T1),
        completed(T1, SAID),
        started(T1, RAN),
        started(T1, COMPACTED),
        completed(T1, RAN),
        completed(T1, COMPACTED),
        started(T1, ANSWERED),
        ended(T1),
    ) == [
        *[(T1, "regular")] * 3,
        (T1, "compaction"),
        (T1, "regular"),
        (T1, "compaction"),
        (T1, "regular"),
        None,
    ]


def test_a_start_that_is_told_late_says_nothing_of_the_kind():
    assert told(started(T1, COMPACTED), began(T1)).turn == RunningTurn(T1, TurnKind.COMPACTION)


def test_a_review_is_a_boundary_until_its_turn_ends_although_another_begins_inside():
    # All versions: T2 begins and is never heard of again.
    assert kinds(
        *item(T1, REVIEW_BEGAN),
        ACTIVE,
        began(T2),
        *item(T1, SAID),
        started(T1, ANSWERED),
        *item(T1, REVIEW_ENDED),
        *item(T1, ANSWERED),
        IDLE,
        ended(T1),
    ) == [*[(T1, "review")] * 12, None]


def test_compaction_inside_a_review_does_not_open_it():
    state = told(*item(T1, REVIEW_BEGAN), *item(T1, COMPACTED), *item(T1, ANSWERED))
    assert state.turn == RunningTurn(T1, TurnKind.REVIEW)


def test_the_turn_after_a_boundary_takes_input():
    for kind in (COMPACTED, REVIEW_BEGAN):
        state = told(*item(T1, kind), ended(T1), began(T2))
        assert state.turn == RunningTurn(T2, TurnKind.REGULAR)


@pytest.mark.parametrize("event", [UNLOADED, ThreadClosed(THREAD), ThreadMoved(THREAD)])
def test_a_thread_that_is_unloaded_closed_or_moved_is_not_listened_to_any_more(event):
    state = told(began(T1), ended(T1), ASKING, began(T2), event)
    assert state == ThreadState(ThreadStatus.NOT_LOADED, Subscription.NONE, finished=(T1,))


def test_an_unload_is_told_twice_and_means_one():
    once = told(began(T1), IDLE, UNLOADED)
    assert told(ThreadClosed(THREAD), state=once) == once


@pytest.mark.parametrize("subscription", Subscription)
def test_a_status_does_not_change_what_is_listened_to(subscription):
    state = ThreadState(subscription=subscription)
    for event in (ACTIVE, IDLE, BROKEN, ASKING):
        assert reduce(state, event).subscription is subscription


def test_an_open_question_is_open_until_the_status_says_otherwise():
    state = told(began(T1), ASKING)
    assert state.is_waiting
    assert told(started(T1, ANSWERED), state=state).is_waiting
    assert not told(ACTIVE, state=state).is_waiting


@pytest.mark.parametrize("event", [Unrecognized("codex/of/tomorrow"), Warned(THREAD, "Heads up")])
def test_other_news_changes_nothing(event):
    state = told(began(T1), ASKING)
    assert reduce(state, event) is state


def test_only_the_newest_finished_turns_are_remembered():
    turns = [TurnId(f"t{number}") for number in range(FINISHED_TURNS_MAX + 3)]
    state = told(*map(ended, turns))
    assert state.finished == tuple(turns[3:])


def test_a_turn_that_ended_twice_is_remembered_once():
    assert told(ended(T1), ended(T1)).finished == (T1,)


def test_what_the_fence_found_runs_whatever_was_believed():
    assert found_turn(HEARD, T1).turn == RunningTurn(T1, TurnKind.REGULAR)
    assert found_turn(told(began(T1)), T2).turn == RunningTurn(T2, TurnKind.REGULAR)
    assert found_turn(told(began(T1), ended(T1)), T1).turn == RunningTurn(T1, TurnKind.REGULAR)


def test_a_turn_that_was_found_again_ends_again():
    state = found_turn(told(began(T1), ended(T1)), T1)
    assert told(ended(T1), state=state).turn is None


@pytest.mark.parametrize("kind", [COMPACTED, REVIEW_BEGAN])
def test_a_boundary_that_was_found_stays_one(kind):
    state = told(started(T1, kind))
    assert found_turn(state, T1) == state


def test_a_quiet_thread_ends_the_turn_that_was_believed_to_run():
    state = found_quiet(told(began(T1)), T1)
    assert state.turn is None
    assert told(started(T1, ANSWERED), state=state).turn is None


@pytest.mark.parametrize("believed", [None, T1])
def test_a_turn_that_began_since_the_question_stays(believed):
    state = told(began(T1), ended(T1), began(T2))
    assert found_quiet(state, believed) is state


def test_a_quiet_thread_says_nothing_of_the_turn_that_took_over_meanwhile():
    state = told(began(T1), began(T2))
    assert found_quiet(state, T1) is state


def test_a_quiet_thread_that_was_believed_quiet_is_nothing_new():
    assert found_quiet(HEARD, None) is HEARD
    assert found_quiet(HEARD, T1) is HEARD


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("compact", TurnKind.COMPACTION),
        ("review", TurnKind.REVIEW),
        ("", TurnKind.UNSTEERABLE),
        ("nap", TurnKind.UNSTEERABLE),
    ],
)
def test_a_turn_that_refused_to_be_steered_is_a_boundary(word, kind):
    state = found_unsteerable(told(began(T1)), word)
    assert state.turn == RunningTurn(T1, kind)
    assert told(IDLE, state=state).turn == RunningTurn(T1, kind)
    assert told(ended(T1), state=state).turn is None


@pytest.mark.parametrize("word", ["review", "nap"])
def test_what_refused_to_be_steered_is_not_tried_again_for_an_item(word):
    state = found_unsteerable(told(began(T1)), word)
    assert told(*item(T1, ANSWERED), state=state).turn == state.turn


def test_a_refusal_of_a_turn_that_has_ended_says_nothing():
    assert found_unsteerable(HEARD, "compact") is HEARD


def test_a_turn_that_is_ended_by_hand_is_ended():
    assert end_turn(told(began(T1)), T1) == told(began(T1), ended(T1))


def test_what_is_lost_keeps_its_finished_turns():
    assert lost_thread(told(ended(T1), began(T2))).finished == (T1,)


TURNS = st.sampled_from([T1, T2, T3])
EVENTS = st.one_of(
    st.sampled_from([ACTIVE, IDLE, BROKEN, ASKING, UNLOADED, ThreadClosed(THREAD)]),
    st.builds(began, TURNS),
    st.builds(ended, TURNS, st.sampled_from(TurnStatus)),
    st.builds(started, TURNS, st.sampled_from(ItemKind)),
    st.builds(completed, TURNS, st.sampled_from(ItemKind)),
)


@STEADY
@given(st.lists(EVENTS, max_size=30))
def test_no_story_makes_a_finished_turn_run_or_the_memory_grow(events):
    state = HEARD
    for event in events:
        before, state = state, reduce(state, event)
        assert state.turn is None or state.turn.id not in state.finished
        assert set(before.finished) <= set(state.finished)
        assert len(set(state.finished)) == len(state.finished) <= FINISHED_TURNS_MAX
        # News may take a subscription away; only a resume brings one.
        assert state.subscription in {before.subscription, Subscription.NONE}
        if isinstance(event, TurnEnded):
            assert state.turn is None or state.turn.id != event.turn


@STEADY
@given(st.lists(EVENTS, max_size=30), TURNS)
def test_after_any_story_the_fence_heals(events, turn):
    state = told(*events)
    assert found_turn(state, turn).turn.id == turn
    assert found_quiet(state, state.turn.id if state.turn else None).turn is None
