import pytest

from codexdrv.rules.ownership import Fact
from codexdrv.rules.reconciling import Moment, absences, doubted_since_ms


OFTEN = Fact.HELD, Fact.ANSWERED, Fact.PARKED, Fact.STORED
"""What says nothing of a doubt."""


def told(*facts):
    """Tell facts, the first at 0, each a millisecond after the one before."""
    return [Moment(fact, at_ms) for at_ms, fact in enumerate(facts)]


@pytest.mark.parametrize("facts", [(), (Fact.DISPATCHED,), (Fact.DISPATCHED, *OFTEN)])
def test_what_was_never_doubted_has_been_in_doubt_since_never(facts):
    assert doubted_since_ms(told(*facts)) is None
    assert absences(told(*facts)) == 0


def test_it_is_in_doubt_since_the_first_reason_of_that():
    facts = Fact.DISPATCHED, Fact.ANSWERED, Fact.IN_DOUBT, Fact.IN_DOUBT, Fact.PARKED
    assert doubted_since_ms(told(*facts)) == 2


def test_each_attempt_is_doubted_for_itself():
    facts = Fact.DISPATCHED, Fact.IN_DOUBT, Fact.ABSENT, Fact.DISPATCHED
    assert doubted_since_ms(told(*facts)) is None
    assert doubted_since_ms(told(*facts, Fact.ANSWERED, Fact.IN_DOUBT)) == 5


def test_a_doubt_of_the_beginning_of_time_is_one():
    assert doubted_since_ms(told(Fact.IN_DOUBT, Fact.IN_DOUBT)) == 0


def test_absences_are_counted_over_attempts():
    once = Fact.DISPATCHED, Fact.IN_DOUBT, Fact.ABSENT
    for times in range(4):
        assert absences(told(*once * times)) == times


def test_an_operator_who_says_absent_resets_the_count():
    once = Fact.DISPATCHED, Fact.IN_DOUBT, Fact.ABSENT
    facts = *once, *once, Fact.DISPATCHED, Fact.IN_DOUBT, Fact.RESOLVED_ABSENT
    assert absences(told(*facts)) == 0
    assert absences(told(*facts, *once)) == 1


@pytest.mark.parametrize("fact", sorted(set(Fact) - {Fact.ABSENT, Fact.RESOLVED_ABSENT}))
def test_nothing_else_moves_the_count(fact):
    assert absences(told(Fact.ABSENT, fact, Fact.ABSENT)) == 2


@pytest.mark.parametrize("fact", sorted(set(Fact) - {Fact.DISPATCHED, Fact.IN_DOUBT}))
def test_nothing_else_moves_the_doubt(fact):
    assert doubted_since_ms(told(Fact.DISPATCHED, Fact.IN_DOUBT, fact)) == 1
