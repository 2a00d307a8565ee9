import pytest

from codexdrv.rules.ownership import Fact
from codexdrv.rules.reconciling import (
    ABSENCES_MAX,
    LOSSES_MAX,
    SWALLOWED,
    Absences,
    Moment,
    absences,
    doubted_since_ms,
    ending,
    was_swallowed,
)


OFTEN = Fact.HELD, Fact.ANSWERED, Fact.PARKED, Fact.STORED
"""What says nothing of a doubt."""


def told(*facts, reason="link_lost"):
    """Tell facts, the first at 0, each a millisecond after the one before."""
    return [Moment(fact, at_ms, reason) for at_ms, fact in enumerate(facts)]


@pytest.mark.parametrize("facts", [(), (Fact.DISPATCHED,), (Fact.DISPATCHED, *OFTEN)])
def test_what_was_never_doubted_has_been_in_doubt_since_never(facts):
    assert doubted_since_ms(told(*facts)) is None
    assert absences(told(*facts)) == Absences(0, 0)


def test_it_is_in_doubt_since_the_first_reason_of_that():
    facts = Fact.DISPATCHED, Fact.ANSWERED, Fact.IN_DOUBT, Fact.IN_DOUBT, Fact.PARKED
    assert doubted_since_ms(told(*facts)) == 2


def test_each_attempt_is_doubted_for_itself():
    facts = Fact.DISPATCHED, Fact.IN_DOUBT, Fact.ABSENT, Fact.DISPATCHED
    assert doubted_since_ms(told(*facts)) is None
    assert doubted_since_ms(told(*facts, Fact.ANSWERED, Fact.IN_DOUBT)) == 5


def test_a_doubt_of_the_beginning_of_time_is_one():
    assert doubted_since_ms(told(Fact.IN_DOUBT, Fact.IN_DOUBT)) == 0


ONCE = Fact.DISPATCHED, Fact.IN_DOUBT, Fact.ABSENT


def test_absences_are_counted_over_attempts():
    for times in range(4):
        assert absences(told(*ONCE * times)) == Absences(times, 0)


@pytest.mark.parametrize("reason", sorted(SWALLOWED))
def test_those_are_told_apart_in_which_the_server_took_it_and_lived_on(reason):
    assert absences(told(*ONCE * 2, reason=reason)) == Absences(2, 2)
    # What a server that was killed took with it vanished by nobody's fault.
    both = [*told(*ONCE, reason=reason), *told(*ONCE)]
    assert absences(both) == Absences(2, 1)
    assert not was_swallowed(both)
    assert was_swallowed(told(*ONCE, reason=reason))


def test_what_is_found_out_later_does_not_take_back_that_it_was_swallowed():
    doubts = Moment(Fact.IN_DOUBT, 1, "turn_ended"), Moment(Fact.IN_DOUBT, 2, "busy")
    assert was_swallowed([Moment(Fact.DISPATCHED, 0, "start"), *doubts])


def test_an_operator_who_says_absent_resets_the_count():
    facts = *ONCE, *ONCE, Fact.DISPATCHED, Fact.IN_DOUBT, Fact.RESOLVED_ABSENT
    assert absences(told(*facts)) == Absences(0, 0)
    assert absences(told(*facts, *ONCE)) == Absences(1, 0)


@pytest.mark.parametrize("fact", sorted(set(Fact) - {Fact.ABSENT, Fact.RESOLVED_ABSENT}))
def test_nothing_else_moves_the_count(fact):
    assert absences(told(Fact.ABSENT, fact, Fact.ABSENT)) == Absences(2, 0)


@pytest.mark.parametrize("fact", sorted(set(Fact) - {Fact.DISPATCHED, Fact.IN_DOUBT}))
def test_nothing_else_moves_the_doubt(fact):
    assert doubted_since_ms(told(Fact.DISPATCHED, Fact.IN_DOUBT, fact)) == 1


def test_what_is_swallowed_three_times_has_failed():
    last = ABSENCES_MAX - 1
    assert ending(Absences(last - 1, last - 1), is_swallowed=True) is None
    reason, why = ending(Absences(last, last), is_swallowed=True)
    assert (reason, why) == (
        "swallowed",
        "it was taken 3 times and vanished each time: a hook may block it",
    )
    assert ending(Absences(last, last), is_swallowed=False) is None


def test_what_is_lost_with_its_server_is_sent_more_often_but_not_for_ever():
    last = LOSSES_MAX - 1
    assert ending(Absences(last - 1, 0), is_swallowed=False) is None
    reason, why = ending(Absences(last, 0), is_swallowed=False)
    assert (reason, why) == ("lost", "it was lost 10 times: the server may die of it")
