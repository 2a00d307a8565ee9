"""A message gets into its thread once, whatever the thread is doing."""

import pytest

from codexdrv.demo.script import Hold
from tests.acceptance.kit import Rig, Said
from tests.acceptance.machine import Machine
from tests.acceptance.scenes import (
    BUSY,
    FIRST,
    agreed,
    held_turn,
    used_thread,
    wait_for_steer,
)


@pytest.mark.field_report("Spexcode#79")
def test_four_messages_arrive_once_and_in_order(rig: Rig, machine: Machine, version: str):
    rig.model.script["three"] = Hold("free")
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)

    # The supervisor is down.
    down = machine.deliver("m1", thread, "one")
    assert (down["phase"], down["supervisor"]) == ("queued", "down")
    machine.start()
    machine.wait_for_outcome("m1")

    # The thread is idle, then busy.
    idle = machine.deliver("m2", thread, "two", "--wait", "surfaced")
    assert (idle["phase"], idle["supervisor"], idle["stored"]) == ("surfaced", "up", True)
    machine.wait_for_outcome("m2")
    machine.deliver("m3", thread, "three", "--wait", "surfaced")
    rig.model.wait_for_prompt("three")
    machine.deliver("m4", thread, "four")
    wait_for_steer(rig, machine, "m4", held="three", version=version)
    rig.model.release("three")
    machine.wait_for_outcome("m3", "m4")
    assert machine.standing("m3").turn == machine.standing("m4").turn

    # The server was restarted, and has nothing loaded.
    rig.server.stop()
    rig.server.start()
    machine.wait_until_connected()
    assert rig.truth().loaded_threads() == []
    machine.deliver("m5", thread, "five", "--wait", "surfaced")
    machine.wait_for_outcome("m5")

    texts = ["one", "two", "three", "four", "five"]
    assert agreed(rig, thread) == [Said(f"m{n}", text) for n, text in enumerate(texts, 1)]
    routes = [machine.routes(f"m{number}") for number in range(1, 6)]
    assert routes == [["start"], ["start"], ["start"], ["steer"], ["start"]]


def test_a_message_that_waits_is_held_and_nothing_overtakes_it(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    machine.start()
    turn = held_turn(rig, truth, thread)
    machine.deliver("m1", thread, "later", "--when-busy", "wait")
    machine.deliver("m2", thread, "last", "--when-busy", "steer")
    machine.wait_for_phase("m1", "queued", reason="busy")
    assert truth.history(thread) == [FIRST, BUSY]
    assert machine.standing("m2").phase == "queued"
    rig.model.release(BUSY.text)
    machine.wait_for_outcome("m1", "m2")
    assert machine.standing("m1").turn != turn
    assert truth.wait_for_turn(turn)["status"] == "completed"
    assert agreed(rig, thread) == [FIRST, BUSY, Said("m1", "later"), Said("m2", "last")]


@pytest.mark.field_report("openai/codex#40953")
def test_an_interrupt_ends_the_turn_that_was_meant_and_no_other(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread, bystander = used_thread(rig, truth), truth.start_thread(rig.cwd)
    machine.start()
    other = held_turn(rig, truth, bystander)
    turn = held_turn(rig, truth, thread)
    machine.deliver("m1", thread, "instead", "--when-busy", "interrupt")
    machine.wait_for_outcome("m1")
    assert truth.wait_for_turn(turn)["status"] == "interrupted"
    assert truth.running_turn(bystander) == other
    assert truth.wait_for_turn(machine.standing("m1").turn)["status"] == "completed"
    assert agreed(rig, thread) == [FIRST, BUSY, Said("m1", "instead")]


def test_a_thread_that_was_never_used_is_started(rig: Rig, machine: Machine):
    thread = rig.truth().start_thread(rig.cwd)
    machine.start()
    found = machine.deliver("m1", thread, "hello", "--wait", "surfaced")
    assert (found["phase"], found["stored"]) == ("surfaced", True)
    machine.wait_for_outcome("m1")
    assert machine.routes("m1") == ["start"]
    assert agreed(rig, thread) == [Said("m1", "hello")]


def test_the_idle_thread_of_another_client_is_started(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    machine.start()
    machine.deliver("m1", thread, "hello")
    machine.wait_for_outcome("m1")
    assert machine.routes("m1") == ["start"]
    assert agreed(rig, thread) == [FIRST, Said("m1", "hello")]


def test_a_running_turn_of_another_client_is_steered(rig: Rig, machine: Machine, version: str):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    turn = held_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "also")
    wait_for_steer(rig, machine, "m1", held=BUSY.text, version=version)
    assert machine.standing("m1").turn == turn
    rig.model.release(BUSY.text)
    machine.wait_for_outcome("m1")
    assert machine.routes("m1") == ["steer"]
    assert agreed(rig, thread) == [FIRST, BUSY, Said("m1", "also")]
