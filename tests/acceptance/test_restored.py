"""A journal that was restored from a backup knows less than the thread: the thread is asked."""

import pytest

from codexdrv.journal.rows import STANDING_COLUMNS
from tests.acceptance.kit import Rig, Said
from tests.acceptance.machine import Machine
from tests.acceptance.scenes import used_thread


TURNS = 30
"""More than a page of items holds: a question, an answer, and so on."""


def restore(machine: Machine, name: str, before: tuple[object, ...]) -> None:
    """Make the journal what it was before a delivery was sent, as from a backup."""
    database = machine._journal._database
    marks = ", ".join("?" * len(before))
    database.execute("DELETE FROM facts WHERE delivery = ?", (name,))
    database.execute(
        f"UPDATE deliveries SET ({STANDING_COLUMNS}) = ({marks}) WHERE id = ?", (*before, name)
    )


@pytest.mark.parametrize("is_reverted", [False, True])
def test_what_the_thread_has_already_is_not_sent_again(
    rig: Rig, machine: Machine, version: str, is_reverted: bool
):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    machine.deliver("m1", thread, "one")
    before = tuple(machine.standing("m1"))
    machine.start()
    machine.wait_for_outcome("m1")
    machine.stop()
    for number in range(TURNS):
        last = truth.start_turn(thread, f"more {number}")
        truth.wait_for_turn(last)
    if is_reverted and version != "0.144.5":  # which rolls back in the same file
        truth.call("thread/revert", threadId=thread, beforeTurnId=last)
        truth.wait_for(lambda message: message["method"] == "thread/reverted")
        truth.resume(thread)
    restore(machine, "m1", before)
    machine.start()
    machine.wait_for("m1", lambda found: found.stored)
    assert truth.history(thread).count(Said("m1", "one")) == 1
    assert rig.model.occurrences("one") == 1
