"""`resolve`: an operator's word, where the ownership table takes one."""

import json
from itertools import product

import pytest

from codexdrv.cli.resolve import STATES, WORDS
from codexdrv.journal.dispatch import Mark, encode_dispatch
from codexdrv.journal.journal import Writer
from codexdrv.rules.lifecycle import News
from codexdrv.rules.ownership import FORCED, TRANSITIONS, Fact, Phase
from tests.engine.kit import DISPATCH
from tests.fakes.orders import NOW_MS, admit_in, make_order


CELLS = list(product(Phase, WORDS, [False, True]))


def resolve(desk, word, *more):
    return desk.run("resolve", "m1", "--as", word, "--why", "I looked", *more)


@pytest.mark.parametrize(("phase", "word", "is_forced"), CELLS)
def test_an_operators_word_moves_what_the_ownership_table_says(desk, phase, word, is_forced):
    with desk.journal() as journal:
        before = admit_in(journal, phase)
    ran = resolve(desk, word, *(["--force"] if is_forced else []))
    with desk.journal() as journal:
        after = journal.delivery(before.order.id)
        facts = journal.story(before.order.id)
    cell = (phase, WORDS[word])
    if phase is STATES[word]:
        assert (ran.code, after) == (0, before)
    elif cell in TRANSITIONS and (is_forced or cell not in FORCED):
        assert (ran.code, ran.err) == (0, "")
        assert after.standing.phase is TRANSITIONS[cell]
        assert (after.standing.reason, after.standing.why) == ("operator", "I looked")
        assert (facts[-1].news.fact, facts[-1].life) == (WORDS[word], None)
    else:
        assert (ran.code, ran.out) == (1, "")
        assert ran.sentence == f"m1 is {phase}: it cannot be resolved as {word}."
        assert ("--force" in ran.err) is (cell in FORCED)
        if phase is Phase.CANCELLED and cell not in FORCED:
            assert "It can be resolved as absent." in ran.err
        assert after == before


def test_what_has_ended_or_is_on_its_way_has_to_be_forced():
    assert {phase for phase, _ in FORCED} == {Phase.PENDING, Phase.FAILED, Phase.CANCELLED}


def test_what_is_on_its_way_may_yet_arrive(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.PENDING)
    assert "It may still arrive" in resolve(desk, "absent").err


def test_what_was_given_up_and_is_wanted_after_all_is_queued_again(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.UNCERTAIN)
    assert resolve(desk, "failed").out == "m1 has failed: an operator says: I looked.\n"
    assert resolve(desk, "absent", "--force").out == "m1 is queued: no supervisor is running.\n"


def test_a_message_that_an_operator_saw_in_the_thread_is_surfaced_without_a_turn(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.UNCERTAIN)
    body = resolve(desk, "surfaced", "--json").body
    assert (body["phase"], body["turn"], body["stored"]) == ("surfaced", None, False)
    assert desk.run("status", "m1").out == "m1 is in the thread: an operator says: I looked.\n"


def test_an_error_is_an_object_too(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.SURFACED)
    ran = resolve(desk, "absent", "--json")
    assert (ran.code, ran.body["error"]["code"]) == (1, "not_resolvable")


def test_a_phase_that_we_do_not_know_cannot_be_resolved(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.UNCERTAIN)
        journal._database.execute("UPDATE deliveries SET phase = 'frozen'")
    for word in WORDS:
        ran = resolve(desk, word, "--force")
        assert ran.code == 1
        assert ran.sentence == f"m1 is frozen: it cannot be resolved as {word}."


@pytest.mark.parametrize("name", ["nobody", "gr\udcfcn"])
def test_a_delivery_that_is_not_there_is_not_found(desk, name):
    ran = desk.run("resolve", name, "--as", "failed", "--why", "I looked")
    assert ran.code == 66
    assert ran.sentence.startswith("There is no delivery '")


@pytest.mark.parametrize("why", ["", " \n", "gr\udcfcn"])
def test_a_reason_that_says_nothing_is_refused(desk, why):
    with desk.journal() as journal:
        before = admit_in(journal, Phase.UNCERTAIN)
    ran = desk.run("resolve", "m1", "--as", "failed", "--why", why)
    assert ran.code == 65
    assert "blank, or is not valid UTF-8" in ran.sentence
    with desk.journal() as journal:
        assert journal.delivery(before.order.id) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["m1", "--as", "failed"], "required: --why"),
        (["m1", "--why", "x"], "required: --as"),
        (["--as", "failed", "--why", "x"], "required: ID"),
        (["m1", "--as", "lost", "--why", "x"], "invalid choice: 'lost'"),
    ],
)
def test_a_word_and_a_reason_are_needed(desk, words, said):
    ran = desk.run("resolve", *words)
    assert ran.code == 2
    assert said in ran.sentence


def test_the_supervisor_is_rung(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.UNCERTAIN)
    ringer = desk.hang_up_bell()
    assert resolve(desk, "absent", "--json").body["supervisor"] == "up"
    assert ringer.recv(1) == b""


def test_two_operators_cannot_both_decide_on_the_same_sight(desk):
    with desk.journal() as journal:
        found = admit_in(journal, Phase.UNCERTAIN)
        assert resolve(desk, "failed").code == 0
        assert journal.delivery(make_order().id).standing.revision == found.standing.revision + 1
    assert resolve(desk, "surfaced").code == 1
    assert resolve(desk, "failed").code == 0


@pytest.fixture
def sent(desk, tmp_path):
    """A delivery in doubt, and the record that its dispatch noted; return how to write there."""
    record = tmp_path / "rollout-2027-01-15T08-00-00-t.jsonl"
    record.write_text('{"type":"session_meta"}\n')
    mark = Mark(None, str(record), record.stat().st_size)
    dispatch = encode_dispatch(DISPATCH._replace(mark=mark))
    with desk.journal() as journal:
        journal.admit(make_order())
        writer = Writer(journal.begin_life((1, None, None), "test", now_ms=NOW_MS), 1)
        for news in (
            News(Fact.DISPATCHED, "start", attempt=1, dispatch=dispatch),
            News(Fact.IN_DOUBT, "link_lost", "the link was lost"),
        ):
            journal.record(make_order().id, news, writer=writer, now_ms=NOW_MS)

    def write(text):
        payload = {"type": "user_message", "client_id": "m1", "message": text}
        with record.open("a") as file:
            file.write(json.dumps({"type": "event_msg", "payload": payload}) + "\n")

    return write


@pytest.mark.parametrize("word", ["absent", "failed"])
def test_what_the_record_shows_is_not_said_to_be_missing_unless_forced(desk, sent, word):
    sent(make_order().text)
    ran = resolve(desk, word)
    assert ran.code == 1
    assert "the thread's record shows it" in ran.sentence
    assert "add --force" in ran.err
    assert resolve(desk, "surfaced").code == 0


def test_what_the_record_lacks_is_not_said_to_be_there_unless_forced(desk, sent):
    ran = resolve(desk, "surfaced")
    assert ran.code == 1
    assert "the thread's record does not show it" in ran.sentence
    assert resolve(desk, "surfaced", "--force").code == 0


def test_another_text_under_its_id_contradicts_nobody(desk, sent):
    sent("another text")
    assert resolve(desk, "absent").code == 0


def test_a_record_that_cannot_be_read_contradicts_nobody(desk, sent, tmp_path):
    (tmp_path / "rollout-2027-01-15T08-00-00-t.jsonl").unlink()
    assert resolve(desk, "surfaced").code == 0
