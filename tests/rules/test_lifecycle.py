from itertools import pairwise, product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codexdrv.errors import IllegalMove
from codexdrv.ids import DeliveryId, ThreadId, TurnId
from codexdrv.rules.lifecycle import (
    News,
    Order,
    Outcome,
    Standing,
    WhenBusy,
    fold,
    is_live,
    is_same_request,
    is_settled,
)
from codexdrv.rules.ownership import TERMINAL, TRANSITIONS, Fact, Phase, advance


# The same examples every time, however slow the machine.
STEADY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
THREAD = ThreadId("01a22d0b-8d92-7622-a61b-221d9b94b56e")
OTHER_THREAD = ThreadId("01a22d0b-8d92-7622-a61b-221d9b94b56f")
TURN = TurnId("t1")
QUEUED = Standing(Phase.QUEUED)
ENDINGS = [Outcome.COMPLETED, Outcome.FAILED, Outcome.INTERRUPTED]

DISPATCHED = News(Fact.DISPATCHED, "start", "no turn runs", attempt=1, dispatch='{"number":1}')
ANSWERED = News(Fact.ANSWERED, "answered", "the server took the request", turn=TURN)
SURFACED = News(Fact.SURFACED, "surfaced", "the server put it into turn t1", turn=TURN)
STORED = News(Fact.STORED, why="it was read back")
ENDED = News(Fact.TURN_ENDED, outcome=Outcome.COMPLETED)
IN_DOUBT = News(Fact.IN_DOUBT, "link_lost", "the connection ended")
PARKED = News(Fact.PARKED, why="it was in doubt for long")
HELD = News(Fact.HELD, "overloaded", "the server is overloaded")
REFUSED = News(Fact.REFUSED, "input_too_large", "the message is too long")
ABSENT = News(Fact.ABSENT, "absent", "it is not in the thread")
FORCED = News(Fact.RESOLVED_ABSENT, "operator", "send it again")


def after(*story, standing=QUEUED):
    for now_ms, news in enumerate(story, standing.changed_at_ms + 1):
        standing = fold(standing, news, now_ms=now_ms)
    return standing


def test_a_delivery_begins_as_received():
    assert QUEUED.outcome is Outcome.RECEIVED
    assert (QUEUED.revision, QUEUED.attempts, QUEUED.turn, QUEUED.reason) == (0, 0, None, None)
    assert not any((QUEUED.stored, QUEUED.late, QUEUED.parked, QUEUED.out_of_order))


def test_the_straight_way():
    standing = after(DISPATCHED)
    assert standing == Standing(
        Phase.PENDING, 1, 1, "start", "no turn runs", dispatch='{"number":1}', changed_at_ms=1
    )
    standing = after(DISPATCHED, ANSWERED)
    assert (standing.phase, standing.answered_turn, standing.turn) == (Phase.PENDING, TURN, None)
    standing = after(DISPATCHED, ANSWERED, SURFACED)
    assert (standing.phase, standing.turn, standing.outcome) == (
        Phase.SURFACED,
        TURN,
        Outcome.RUNNING,
    )
    assert not standing.stored
    standing = after(DISPATCHED, ANSWERED, SURFACED, STORED, ENDED)
    assert (standing.stored, standing.outcome, standing.revision) == (True, Outcome.COMPLETED, 5)
    assert standing.reason == "surfaced"
    assert is_settled(standing)


@pytest.mark.field_report("openai/codex#36866", "t3code#5795")
def test_an_answer_is_a_hint_and_binds_no_turn():
    assert after(DISPATCHED, ANSWERED).turn is None
    assert after(DISPATCHED, ANSWERED, IN_DOUBT).turn is None


@pytest.mark.field_report("openai/codex#36866", "t3code#5795")
def test_the_turn_is_the_one_of_the_echo():
    echo = SURFACED._replace(turn=TurnId("t2"))
    standing = after(DISPATCHED, ANSWERED, echo)
    assert (standing.turn, standing.answered_turn) == ("t2", TURN)


def test_a_second_attempt_forgets_the_answer_of_the_first():
    second = DISPATCHED._replace(attempt=2, dispatch='{"number":2}')
    standing = after(DISPATCHED, ANSWERED, IN_DOUBT, ABSENT, second)
    assert (standing.attempts, standing.answered_turn) == (2, None)
    assert standing.dispatch == '{"number":2}'


def test_a_second_send_of_one_attempt_is_no_second_attempt():
    assert after(DISPATCHED, HELD, DISPATCHED).attempts == 1
    assert after(DISPATCHED, HELD, DISPATCHED._replace(attempt=None)).attempts == 1


def test_what_is_in_doubt_keeps_the_attempt_that_evidence_needs():
    assert after(DISPATCHED, IN_DOUBT).dispatch == DISPATCHED.dispatch


@pytest.mark.parametrize("outcome", ENDINGS)
def test_a_turn_that_ended_badly_leaves_the_message_surfaced(outcome):
    standing = after(DISPATCHED, SURFACED, ENDED._replace(outcome=outcome))
    assert (standing.phase, standing.outcome) == (Phase.SURFACED, outcome)


@pytest.mark.parametrize(
    "story", [(REFUSED,), (DISPATCHED, REFUSED), (News(Fact.CANCELLED),)], ids=str
)
def test_what_failed_or_was_cancelled_has_no_outcome(story):
    assert after(*story).outcome is None


def test_what_an_operator_sends_again_is_received_again():
    standing = after(REFUSED, FORCED)
    assert (standing.phase, standing.outcome) == (Phase.QUEUED, Outcome.RECEIVED)
    assert standing.reason == "operator"


def test_surfaced_beats_failed_also_late():
    standing = after(DISPATCHED, REFUSED, SURFACED)
    assert (standing.phase, standing.outcome, standing.turn) == (
        Phase.SURFACED,
        Outcome.RUNNING,
        TURN,
    )


@pytest.mark.parametrize(
    "late", [IN_DOUBT, HELD, ABSENT, REFUSED._replace(reason="other"), ANSWERED]
)
@pytest.mark.parametrize(
    "end",
    [(DISPATCHED, REFUSED), (DISPATCHED, SURFACED), (News(Fact.CANCELLED, "caller", "by hand"),)],
    ids=["failed", "surfaced", "cancelled"],
)
def test_late_word_does_not_overwrite_how_a_delivery_ended(end, late):
    standing = after(*end)
    later = after(late, standing=standing)
    assert later == standing._replace(
        revision=standing.revision + 1,
        changed_at_ms=standing.changed_at_ms + 1,
        answered_turn=late.turn,
    )


def test_a_second_echo_changes_nothing():
    standing = after(DISPATCHED, SURFACED, STORED, ENDED)
    echo = SURFACED._replace(turn=TurnId("t2"), reason="again")
    later = after(echo, standing=standing)
    assert later._replace(revision=0, changed_at_ms=0) == standing._replace(
        revision=0, changed_at_ms=0
    )


@pytest.mark.parametrize("quiet", [STORED, ENDED])
def test_a_fact_without_a_reason_leaves_the_one_that_stands(quiet):
    standing = after(DISPATCHED, SURFACED, quiet)
    assert (standing.reason, standing.why) == (SURFACED.reason, SURFACED.why)


def test_a_fact_with_a_reason_brings_its_own():
    assert after(DISPATCHED, IN_DOUBT, PARKED).reason == "link_lost"
    assert after(DISPATCHED, IN_DOUBT, PARKED._replace(reason="parked")).reason == "parked"
    assert after(DISPATCHED, SURFACED, STORED._replace(reason="ghost")).reason == "ghost"


def test_a_hold_says_why_anew():
    other = HELD._replace(reason="boundary", why="compaction")
    assert after(HELD, other).reason == "boundary"
    assert after(HELD, DISPATCHED).reason == "start"
    assert after(HELD, News(Fact.HELD)).reason is None


@pytest.mark.parametrize("way_out", [SURFACED, HELD, ABSENT, REFUSED, FORCED])
def test_whatever_becomes_of_a_parked_message_comes_out_of_order(way_out):
    parked = after(DISPATCHED, IN_DOUBT, PARKED)
    assert parked.parked
    assert not parked.out_of_order
    moved = after(way_out, standing=parked)
    assert (moved.parked, moved.out_of_order) == (False, True)


def test_a_parked_message_that_is_still_in_doubt_stays_parked():
    parked = after(DISPATCHED, IN_DOUBT, PARKED)
    for news in (IN_DOUBT, ANSWERED, PARKED):
        later = after(news, standing=parked)
        assert (later.parked, later.out_of_order) == (True, False)


def test_out_of_order_stays_true():
    story = (DISPATCHED, IN_DOUBT, PARKED, ABSENT, DISPATCHED, SURFACED, ENDED)
    assert after(*story).out_of_order


def test_a_message_that_was_never_parked_is_in_order():
    assert not after(DISPATCHED, IN_DOUBT, ABSENT, DISPATCHED, SURFACED).out_of_order


@pytest.mark.parametrize(("phase", "fact"), list(product(Phase, Fact)))
def test_a_fact_moves_as_the_table_says_or_is_refused(phase, fact):
    standing = Standing(phase)
    after_it = TRANSITIONS.get((phase, fact))
    if isinstance(after_it, Phase):
        assert fold(standing, News(fact), now_ms=1).phase is after_it
    else:
        with pytest.raises(IllegalMove):
            fold(standing, News(fact), now_ms=1)


@pytest.mark.parametrize("phase", sorted(TERMINAL))
def test_an_end_is_not_live(phase):
    assert not is_live(phase)


@pytest.mark.parametrize("phase", [*sorted(set(Phase) - TERMINAL), "phase.of.tomorrow", ""])
def test_all_else_is_live_also_a_word_that_nobody_knows(phase):
    assert is_live(phase)


@pytest.mark.parametrize(
    ("story", "settled"),
    [
        ((), False),
        ((DISPATCHED,), False),
        ((DISPATCHED, IN_DOUBT), False),
        ((DISPATCHED, IN_DOUBT, PARKED), False),
        ((DISPATCHED, SURFACED), False),
        ((DISPATCHED, SURFACED, STORED), False),
        ((DISPATCHED, SURFACED, ENDED), False),
        ((DISPATCHED, SURFACED, STORED, ENDED), True),
        ((DISPATCHED, SURFACED, ENDED, STORED), True),
        ((REFUSED,), True),
        ((News(Fact.CANCELLED),), True),
    ],
)
def test_settled_is_what_nothing_more_can_be_expected_of(story, settled):
    assert is_settled(after(*story)) is settled


ORDER = Order(
    id=DeliveryId("m1"),
    thread=THREAD,
    target=None,
    source=None,
    text="hello",
    when_busy=WhenBusy.STEER,
    seq=1,
    admitted_at_ms=1,
)


@pytest.mark.parametrize(
    ("order", "other", "same"),
    [
        (ORDER, ORDER, True),
        (ORDER, ORDER._replace(when_busy=WhenBusy.WAIT, seq=9, admitted_at_ms=9), True),
        (ORDER, ORDER._replace(text="hello "), False),
        (ORDER, ORDER._replace(thread=OTHER_THREAD), False),
        (ORDER, ORDER._replace(target="ops"), False),
        (ORDER._replace(target="ops"), ORDER._replace(target="dev"), False),
        # The name is what the caller said; where it leads may be configured anew.
        (ORDER._replace(target="ops"), ORDER._replace(target="ops", thread=OTHER_THREAD), True),
        (ORDER._replace(target=THREAD), ORDER, False),
    ],
)
def test_the_same_request_is_the_same_name_and_the_same_text(order, other, same):
    assert is_same_request(order, other) is same
    assert is_same_request(other, order) is same


NEWS = st.builds(
    News,
    st.sampled_from(Fact),
    st.none() | st.sampled_from(["one", "two"]),
    st.none() | st.sampled_from(["because", "therefore"]),
    turn=st.none() | st.sampled_from([TurnId("t1"), TurnId("t2")]),
    outcome=st.sampled_from(ENDINGS),
)


@st.composite
def stories(draw):
    """Draw facts that the table allows, one after the other; each with the standing after it."""
    standing, story = QUEUED, []
    for now_ms in range(1, draw(st.integers(1, 25))):
        legal = [
            fact
            for (phase, fact), after_it in TRANSITIONS.items()
            if phase is standing.phase and isinstance(after_it, Phase)
        ]
        news = draw(NEWS)._replace(fact=draw(st.sampled_from(legal)))
        if news.fact is Fact.DISPATCHED:
            again = draw(st.integers(0, 1))
            news = news._replace(attempt=standing.attempts + again, dispatch=f"{now_ms}")
        standing = fold(standing, news, now_ms=now_ms)
        story.append((news, standing))
    return story


@STEADY
@given(stories())
def test_the_revision_counts_the_facts_and_the_time_is_the_last_ones(story):
    for count, (_, standing) in enumerate(story, 1):
        assert (standing.revision, standing.changed_at_ms) == (count, count)


@STEADY
@given(stories())
def test_folding_the_facts_again_gives_the_same(story):
    assert [s for _, s in story] == [
        after(*(news for news, _ in story[:count])) for count in range(1, len(story) + 1)
    ]


@STEADY
@given(stories())
def test_surfaced_never_leaves_and_stored_and_ends_are_of_it_only(story):
    phases = [standing.phase for _, standing in story]
    if Phase.SURFACED in phases:
        first = phases.index(Phase.SURFACED)
        assert set(phases[first:]) == {Phase.SURFACED}
    for _, standing in story:
        is_surfaced = standing.phase is Phase.SURFACED
        assert is_surfaced or not standing.stored
        assert is_surfaced or standing.outcome not in {Outcome.RUNNING, *ENDINGS}
        assert standing.outcome is None or standing.phase not in {Phase.FAILED, Phase.CANCELLED}


def test_an_operators_word_that_it_surfaced_settles_it_without_a_turn():
    standing = after(
        News(Fact.DISPATCHED, attempt=1, dispatch="{}"), News(Fact.RESOLVED_SURFACED, "operator")
    )
    assert (standing.phase, standing.outcome, standing.turn) == (Phase.SURFACED, None, None)
    assert is_settled(standing)


@STEADY
@given(stories())
def test_what_became_true_stays_true(story):
    for (_, before), (_, standing) in pairwise(story):
        assert standing.stored >= before.stored
        assert standing.out_of_order >= before.out_of_order
        assert standing.attempts >= before.attempts
        assert standing.turn is not None or before.turn is None


@STEADY
@given(stories())
def test_only_what_is_in_doubt_is_parked(story):
    for _, standing in story:
        assert not standing.parked or standing.phase is Phase.UNCERTAIN
        assert not standing.out_of_order or Fact.PARKED in {news.fact for news, _ in story}


@STEADY
@given(stories())
def test_each_fact_moves_as_the_table_says(story):
    before = QUEUED
    for news, standing in story:
        assert standing.phase is advance(before.phase, news.fact)
        before = standing


@STEADY
@given(stories())
def test_what_is_settled_is_an_end_and_only_force_or_the_server_takes_it_back(story):
    for (_, before), (news, standing) in pairwise(story):
        if is_settled(before):
            assert not is_live(before.phase)
            late = {Fact.RESOLVED_ABSENT, Fact.SURFACED, Fact.TURN_ENDED}
            assert is_settled(standing) or news.fact in late
