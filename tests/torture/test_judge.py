"""The judge bites: each thing that must not be is found in a truth that was made up for it."""

import pytest

from tests.acceptance.kit import Said
from tests.torture.judge import WRONG, Claim, Count, Ruling, ThreadTruth, judge


ONE, TWO, THREE = Said("m1", "one"), Said("m2", "two"), Said("m3", "three")
OTHERS = Said(None, "a user's")


def truth_of(*said: Said, **changes) -> ThreadTruth:
    texts = tuple(each.text for each in said)
    truth = ThreadTruth(
        history=said,
        records=(said,),
        ghosts={},
        prompt=texts,
        shown={text: texts.count(text) for text in texts},
    )
    return truth._replace(**changes)


def claims_of(*said: Said, **changes) -> list[Claim]:
    claims = [
        Claim(str(each.client_id), seq, each.text, "surfaced") for seq, each in enumerate(said)
    ]
    return [*claims[:-1], claims[-1]._replace(**changes)]


def counts(claims: list[Claim], truth: ThreadTruth) -> list[tuple[str, Count]]:
    """What is found beyond a delivery that is in the thread, once, as it is said to be."""
    found = {(ruling.id, ruling.count) for ruling in judge(claims, truth)}
    return sorted(each for each in found if each[1] is not Count.SURFACED)


def test_what_is_there_once_and_in_order_is_right():
    rulings = judge(claims_of(ONE, TWO), truth_of(OTHERS, ONE, OTHERS, TWO))
    assert rulings == [Ruling("m1", Count.SURFACED), Ruling("m2", Count.SURFACED)]


def test_what_is_nowhere_is_lost():
    assert counts(claims_of(ONE, TWO), truth_of(ONE)) == [("m2", Count.LOST)]


def test_what_is_in_a_file_alone_is_lost_unless_another_client_took_it_out():
    truth = truth_of(ONE, records=((ONE, TWO), (ONE,)))
    assert counts(claims_of(ONE, TWO), truth) == [("m2", Count.LOST)]
    reverted = truth._replace(reverted=frozenset({"m2"}))
    assert counts(claims_of(ONE, TWO), reverted) == [("m2", Count.REVERTED)]


def test_what_the_model_does_not_see_is_lost():
    truth = truth_of(ONE, TWO, prompt=("one",))
    assert counts(claims_of(ONE, TWO), truth) == [("m2", Count.LOST)]
    abridged = truth._replace(is_abridged=True)
    assert counts(claims_of(ONE, TWO), abridged) == []
    never_seen = abridged._replace(shown={"one": 1})
    assert counts(claims_of(ONE, TWO), never_seen) == [("m2", Count.LOST)]


def test_what_was_shown_and_never_stored_is_lost_unless_something_explains_it():
    assert counts(claims_of(ONE, TWO, stored=False), truth_of(ONE)) == [("m2", Count.LOST)]
    excused = claims_of(ONE, TWO, stored=False, excuse="disk full")
    assert counts(excused, truth_of(ONE)) == [("m2", Count.NOT_STORED)]
    stored = claims_of(ONE, TWO, excuse="disk full")
    assert counts(stored, truth_of(ONE)) == [("m2", Count.LOST)]


def test_a_ghost_is_one_only_if_the_files_have_it():
    claims = claims_of(ONE, TWO, reason="ghost")
    assert counts(claims, truth_of(ONE, ghosts={"two": 1})) == [("m2", Count.GHOST)]
    assert counts(claims, truth_of(ONE)) == [("m2", Count.LOST)]
    unstored = claims_of(ONE, TWO, stored=False)
    assert counts(unstored, truth_of(ONE, ghosts={"two": 1})) == [("m2", Count.GHOST)]


def test_a_ghost_is_not_stored_under_its_id():
    found = counts(claims_of(ONE, TWO), truth_of(ONE, ghosts={"two": 1}))
    assert found == [("m2", Count.GHOST), ("m2", Count.UNTRUE)]


@pytest.mark.parametrize(
    "truth",
    [
        truth_of(ONE, TWO, TWO),
        truth_of(ONE, TWO, records=((ONE,), (ONE, TWO, TWO))),
        truth_of(ONE, TWO, shown={"one": 1, "two": 2}),
    ],
    ids=["history", "a rollout file", "the model's prompt"],
)
def test_two_copies_are_seen_by_each_witness(truth: ThreadTruth):
    assert ("m2", Count.TWICE) in counts(claims_of(ONE, TWO), truth)


def test_of_equal_texts_as_many_may_be_shown_as_were_admitted():
    again = Said("m2", "one")
    assert counts(claims_of(ONE, again), truth_of(ONE, again)) == []
    thrice = truth_of(ONE, again)._replace(shown={"one": 3})
    assert counts(claims_of(ONE, again), thrice) == [("m1", Count.TWICE), ("m2", Count.TWICE)]


def test_a_copy_in_each_of_two_files_is_one_message():
    assert counts(claims_of(ONE, TWO), truth_of(ONE, TWO, records=((ONE, TWO), (ONE, TWO)))) == []


def test_an_order_that_is_not_that_of_admission_is_found():
    assert counts(claims_of(ONE, TWO, THREE), truth_of(ONE, THREE, TWO)) == [("m2", Count.DISORDER)]
    in_a_file = truth_of(ONE, TWO, records=((TWO, ONE),))
    assert counts(claims_of(ONE, TWO), in_a_file) == [("m1", Count.DISORDER)]


def test_what_was_parked_may_come_late():
    claims = claims_of(TWO, THREE, ONE)
    assert counts(claims, truth_of(ONE, TWO, THREE)) == [
        ("m2", Count.DISORDER),
        ("m3", Count.DISORDER),
    ]
    claims = claims_of(TWO, THREE, ONE, is_out_of_order=True)
    assert counts(claims, truth_of(ONE, TWO, THREE)) == []


@pytest.mark.parametrize("phase", ["failed", "cancelled", "uncertain", "queued"])
def test_what_is_there_and_said_not_to_be_is_untrue(phase: str):
    claims = claims_of(ONE, TWO, phase=phase)
    assert ("m2", Count.UNTRUE) in counts(claims, truth_of(ONE, TWO))


def test_another_text_under_our_id_is_untrue():
    assert ("m1", Count.UNTRUE) in counts(claims_of(ONE), truth_of(Said("m1", "another")))


@pytest.mark.parametrize("phase", ["failed", "cancelled", "uncertain"])
def test_what_is_said_not_to_be_there_and_is_not_is_counted_with_its_reason(phase: str):
    claims = claims_of(ONE, TWO, phase=phase, reason="because")
    assert Ruling("m2", Count(phase), "because") in judge(claims, truth_of(ONE))


@pytest.mark.parametrize("phase", ["queued", "pending", "unsettled"])
def test_what_nobody_has_given_up_must_not_be_left(phase: str):
    assert counts(claims_of(ONE, TWO, phase=phase), truth_of(ONE)) == [("m2", Count.LIVE)]
    assert Count.LIVE in WRONG
