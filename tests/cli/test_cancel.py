"""`cancel`: what is queued, and nothing else."""

import pytest

from codexdrv.rules.ownership import Fact, Phase
from tests.fakes.orders import admit_in


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.CANCELLED])
def test_what_was_not_sent_is_taken_back_also_twice(desk, phase):
    with desk.journal() as journal:
        before = admit_in(journal, phase)
    for _ in range(2):
        ran = desk.run("cancel", "m1")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("m1 is cancelled")
    body = desk.run("cancel", "m1", "--json").body
    assert (body["phase"], body["outcome"], body["supervisor"]) == ("cancelled", None, "down")
    with desk.journal() as journal:
        facts = journal.story(before.order.id)
    assert [fact.news.fact for fact in facts] == [Fact.CANCELLED]


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        (Phase.PENDING, "m1 is on its way: it goes out. Too late: it may be on its way."),
        (Phase.UNCERTAIN, "m1 is in doubt: so it was. Too late: it may be on its way."),
        (Phase.FAILED, "m1 has failed: so it was. Too late: it has ended."),
    ],
)
def test_what_may_be_on_its_way_or_has_ended_stays_what_it_is(desk, phase, said):
    with desk.journal() as journal:
        before = admit_in(journal, phase)
    ran = desk.run("cancel", "m1")
    assert (ran.code, ran.out, ran.sentence) == (1, "", said)
    assert "`codexdrv status m1 --explain`" in ran.err
    with desk.journal() as journal:
        assert journal.delivery(before.order.id) == before


def test_what_is_in_the_thread_cannot_be_taken_back(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.SURFACED)
    ran = desk.run("cancel", "m1", "--json")
    assert (ran.code, ran.body["error"]["code"]) == (1, "too_late")
    assert ran.sentence.endswith(". Too late: it has ended.")


def test_a_phase_that_we_do_not_know_is_too_late(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.QUEUED)
        journal._database.execute("UPDATE deliveries SET phase = 'frozen'")
    ran = desk.run("cancel", "m1")
    assert (ran.code, ran.sentence) == (1, "m1 is frozen. Too late: it may be on its way.")


@pytest.mark.parametrize("name", ["nobody", "gr\udcfcn"])
def test_a_delivery_that_is_not_there_is_not_found(desk, name):
    ran = desk.run("cancel", name)
    assert (ran.code, ran.out) == (66, "")
    assert ran.sentence.startswith("There is no delivery '")


def test_the_supervisor_is_rung(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.QUEUED)
    ringer = desk.hang_up_bell()
    assert desk.run("cancel", "m1", "--json").body["supervisor"] == "up"
    assert ringer.recv(1) == b""
