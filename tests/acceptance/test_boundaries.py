"""A thread that takes no input now is waited for; a turn that ends badly is not replayed."""

import pytest

from codexdrv.demo.script import CutStream, Fail, Hold
from tests.acceptance.binaries import by_version
from tests.acceptance.kit import Rig, Said
from tests.acceptance.machine import Machine
from tests.acceptance.scenes import (
    COMPACT,
    FIRST,
    REVIEW,
    Boundary,
    agreed,
    enter,
    used_thread,
)


@pytest.mark.field_report("hapi#1038")
@pytest.mark.parametrize("when_busy", ["steer", "interrupt"])
@pytest.mark.parametrize("boundary", [COMPACT, REVIEW], ids=["compaction", "review"])
def test_a_message_is_held_at_a_boundary_and_goes_after_it(
    rig: Rig, machine: Machine, version: str, boundary: Boundary, when_busy: str
):
    rig.model.script[boundary.key] = Hold("done")
    truth = rig.truth()
    thread = used_thread(rig, truth)
    machine.start()
    machine.deliver("m1", thread, "before", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    turn = enter(truth, thread, boundary)
    machine.deliver("m2", thread, "after", "--when-busy", when_busy)
    machine.wait_for_phase("m2", "queued", reason="boundary")
    assert truth.running_turn(thread) == turn
    rig.model.release(boundary.key)
    machine.wait_for_outcome("m2")
    assert truth.wait_for_turn(turn)["status"] == "completed"
    said = [FIRST, Said("m1", "before"), *by_version(boundary.said, version), Said("m2", "after")]
    assert agreed(rig, thread) == said


@pytest.mark.parametrize("when_busy", ["steer", "interrupt"])
@pytest.mark.parametrize("boundary", [COMPACT, REVIEW], ids=["compaction", "review"])
def test_a_boundary_that_we_did_not_see_begin_is_one_all_the_same(
    rig: Rig, machine: Machine, version: str, boundary: Boundary, when_busy: str
):
    rig.model.script[boundary.key] = Hold("done")
    truth = rig.truth()
    thread = used_thread(rig, truth)
    turn = enter(truth, thread, boundary)
    machine.start()
    machine.deliver("m1", thread, "after", "--when-busy", when_busy)
    machine.wait_for_phase("m1", "queued", reason="boundary")
    assert truth.running_turn(thread) == turn
    rig.model.release(boundary.key)
    machine.wait_for_outcome("m1")
    assert truth.wait_for_turn(turn)["status"] == "completed"
    assert agreed(rig, thread) == [FIRST, *by_version(boundary.said, version), Said("m1", "after")]


def test_a_review_that_has_ended_leaves_no_turn_behind(rig: Rig, machine: Machine, version: str):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    machine.start()
    machine.deliver("m1", thread, "before", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    truth.wait_for_turn(enter(truth, thread, REVIEW))
    machine.deliver("m2", thread, "after")
    machine.wait_for_outcome("m2")
    # The turn inside the review has no end of its own, and is not taken for one that runs.
    assert machine.routes("m2") == ["start"]
    said = [FIRST, Said("m1", "before"), *by_version(REVIEW.said, version), Said("m2", "after")]
    assert agreed(rig, thread) == said


def test_an_archived_thread_is_waited_for(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    truth.call("thread/archive", threadId=thread)
    machine.start()
    machine.deliver("m1", thread, "hello")
    machine.wait_for_phase("m1", "queued", reason="archived")
    truth.call("thread/unarchive", threadId=thread)
    machine.wait_for_outcome("m1")
    assert agreed(rig, thread) == [FIRST, Said("m1", "hello")]


def test_a_thread_that_is_archived_under_us_is_waited_for(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    machine.start()
    machine.deliver("m1", thread, "before", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    truth.call("thread/archive", threadId=thread)
    machine.deliver("m2", thread, "after")
    machine.wait_for_phase("m2", "queued", reason="archived")
    truth.call("thread/unarchive", threadId=thread)
    machine.wait_for_outcome("m2")
    assert agreed(rig, thread) == [FIRST, Said("m1", "before"), Said("m2", "after")]


def test_a_turn_that_fails_is_told_and_not_replayed(rig: Rig, machine: Machine):
    rig.model.script |= {
        "m1": Fail("server_error"),
        "m2": Fail("context_length_exceeded"),
        "m3": CutStream("half an ans"),
    }
    thread = used_thread(rig, rig.truth())
    machine.start()
    for text in rig.model.script:
        machine.deliver(text, thread, text)
        machine.wait_for_outcome(text, outcome="failed")
    machine.deliver("m4", thread, "m4")
    machine.wait_for_outcome("m4")
    assert agreed(rig, thread) == [FIRST, *(Said(text, text) for text in ("m1", "m2", "m3", "m4"))]
    assert [machine.standing(text).outcome for text in rig.model.script] == ["failed"] * 3


def test_a_turn_that_is_interrupted_is_told_and_not_replayed(rig: Rig, machine: Machine):
    rig.model.script["hold on"] = Hold("never said")
    truth = rig.truth()
    thread = used_thread(rig, truth)
    machine.start()
    machine.deliver("m1", thread, "hold on", "--wait", "surfaced")
    rig.model.wait_for_prompt("hold on")
    truth.call("turn/interrupt", threadId=thread, turnId=machine.standing("m1").turn)
    machine.wait_for_outcome("m1", outcome="interrupted")
    machine.deliver("m2", thread, "go on")
    machine.wait_for_outcome("m2")
    assert agreed(rig, thread) == [FIRST, Said("m1", "hold on"), Said("m2", "go on")]
