"""`reconcile` where no server can be asked: the rest is shown on the real one (test_proof.py)."""

import pytest

from codexdrv.rules.ownership import Phase
from tests.fakes.orders import OTHER_THREAD, THREAD, admit_in


def test_with_nothing_in_doubt_it_says_so_and_asks_nobody(desk):
    ran = desk.call("reconcile")
    assert (ran.code, ran.out) == (0, "Nothing is in doubt.\n")
    assert desk.call("reconcile", "--json").out == ""
    assert desk.call("reconcile", "--dry-run").out == "Nothing is in doubt.\n"


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.SURFACED, Phase.FAILED, Phase.CANCELLED])
def test_one_that_is_not_in_doubt_is_shown_as_it_stands(desk, phase):
    with desk.journal() as journal:
        admit_in(journal, phase)
    ran = desk.call("reconcile", "--id", "m1", "--json")
    assert (ran.code, ran.body["phase"]) == (0, phase)


def test_what_is_for_another_thread_is_left_alone(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.UNCERTAIN, thread=THREAD)
    ran = desk.call("reconcile", "--thread", OTHER_THREAD)
    assert (ran.code, ran.out) == (0, "Nothing is in doubt.\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--id", "nobody"], 66, "There is no delivery 'nobody'"),
        (["--target", "nobody"], 66, "There is no target 'nobody'"),
        (["--thread", "nobody"], 65, "'nobody' is not a thread id"),
        (["--id", "m1", "--thread", THREAD], 2, "not allowed with argument"),
        (["--timeout", "soon"], 2, "'soon' is neither a number of seconds nor 'none'"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(desk, words, code, said):
    ran = desk.call("reconcile", *words)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


def test_beside_a_supervisor_it_rings_and_tells_what_is_left(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.UNCERTAIN)
    ringer = desk.hang_up_bell()
    ran = desk.call("reconcile", "--timeout", "0", "--json")
    assert (ran.code, ran.body["phase"]) == (3, "uncertain")
    assert ringer.recv(1) == b""
