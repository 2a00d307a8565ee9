import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codexdrv import errors
from codexdrv.errors import (
    CodexdrvError,
    DeadlinePassed,
    LinkError,
    LinkLost,
    MalformedMessage,
    PeerError,
    Refused,
)
from codexdrv.ids import TurnId
from codexdrv.protocol.refusals import Meaning
from codexdrv.rules.answers import REFUSALS, read_answer
from codexdrv.rules.lifecycle import News
from codexdrv.rules.ownership import Fact


# The same examples every time, however slow the machine.
STEADY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
LINK_ERRORS = [
    thing
    for thing in vars(errors).values()
    if isinstance(thing, type) and issubclass(thing, LinkError)
]
PEER_ERRORS = [
    thing
    for thing in vars(errors).values()
    if isinstance(thing, type) and issubclass(thing, PeerError)
]


def test_each_meaning_has_its_fact():
    assert REFUSALS.keys() == set(Meaning)


def test_all_but_the_unknown_prove_that_nothing_was_admitted():
    facts = {meaning: fact for meaning, (fact, _) in REFUSALS.items()}
    assert facts.pop(Meaning.UNKNOWN) is Fact.IN_DOUBT
    assert set(facts.values()) == {Fact.HELD, Fact.REFUSED}


def test_only_what_will_never_be_taken_is_refused_for_good():
    for_good = {meaning for meaning, (fact, _) in REFUSALS.items() if fact is Fact.REFUSED}
    assert for_good == {Meaning.INPUT_TOO_LARGE, Meaning.EMPTY_INPUT}


def test_each_meaning_says_why_in_words_of_its_own():
    assert len({why for _, why in REFUSALS.values()}) == len(REFUSALS)


def test_an_answer_names_its_turn_and_proves_no_more():
    news = read_answer(TurnId("t1"))
    assert news == News(Fact.ANSWERED, "answered", "the server took the request", turn=TurnId("t1"))


@pytest.mark.parametrize(
    ("refused", "fact", "reason"),
    [
        (Refused(-32001, "Server overloaded; retry later."), Fact.HELD, "overloaded"),
        (Refused(-32600, "thread not found: x"), Fact.HELD, "not_loaded"),
        (Refused(-32600, "no active turn to steer"), Fact.HELD, "no_active_turn"),
        (
            Refused(-32602, "too long", {"input_error_code": "input_too_large"}),
            Fact.REFUSED,
            "input_too_large",
        ),
    ],
)
def test_a_refusal_that_is_understood_is_a_fact(refused, fact, reason):
    news = read_answer(refused)
    assert (news.fact, news.reason) == (fact, reason)
    assert news.why == REFUSALS[Meaning(reason)][1]


def test_a_refusal_that_nobody_knows_is_doubt_and_is_quoted():
    news = read_answer(Refused(-32603, "words of tomorrow"))
    assert (news.fact, news.reason) == (Fact.IN_DOUBT, "unknown")
    assert news.why.endswith(": words of tomorrow")


def test_a_long_refusal_is_quoted_in_part():
    assert len(read_answer(Refused(-32603, "x" * 16_384)).why) < 300


@pytest.mark.parametrize("kind", LINK_ERRORS)
def test_a_link_that_broke_before_the_first_byte_leaves_the_message_ours(kind):
    news = read_answer(kind("It broke.", maybe_written=False))
    assert (news.fact, news.reason) == (Fact.HELD, kind.code)


@pytest.mark.parametrize("kind", LINK_ERRORS)
def test_a_link_that_broke_after_it_leaves_it_in_doubt(kind):
    news = read_answer(kind("It broke.", maybe_written=True))
    assert (news.fact, news.reason) == (Fact.IN_DOUBT, kind.code)


@pytest.mark.parametrize("kind", PEER_ERRORS)
def test_an_answer_that_cannot_be_read_is_doubt(kind):
    news = read_answer(kind("It is odd."))
    assert (news.fact, news.reason) == (Fact.IN_DOUBT, kind.code)


@STEADY
@given(st.integers(), st.text())
def test_nothing_but_a_turn_is_an_answer(code, words):
    for answer in (
        Refused(code, words),
        LinkLost(words),
        DeadlinePassed(words, maybe_written=True),
        MalformedMessage(words),
        CodexdrvError(words),
    ):
        news = read_answer(answer)
        assert news.fact in {Fact.HELD, Fact.REFUSED, Fact.IN_DOUBT}
        assert news.turn is None
        assert news.reason
        assert news.why
