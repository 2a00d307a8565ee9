"""The other commands, on real machines: what they say, what they do, how they exit."""

import time

import pytest

from codexdrv.demo.script import Hold
from tests.acceptance.kit import Rig, Said
from tests.acceptance.machine import Machine
from tests.acceptance.scenes import BUSY, FIRST, agreed, held_turn, used_thread


pytestmark = pytest.mark.one_version

STOP_S_MAX = 4.0
"""It takes 0.1 s; answers that are open would get 5 s, and there are none."""


def test_a_burst_of_processes_arrives_once_and_in_order(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    machine.start()
    texts = {f"m{number}": f"text {number}" for number in range(10)}
    done = machine.run_together(
        [
            ("deliver", "--thread", thread, "--id", name, "--json", text)
            for name, text in texts.items()
        ]
    )
    assert [command.code for command in done] == [0] * 10
    machine.wait_for_outcome(*texts)
    order = [command.body["id"] for command in sorted(done, key=lambda one: one.body["seq"])]
    assert agreed(rig, thread) == [FIRST, *(Said(name, texts[name]) for name in order)]
    listed = machine.run("list", "--json").bodies
    assert sorted(body["id"] for body in listed) == sorted(texts)
    assert {body["phase"] for body in listed} == {"surfaced"}


def test_one_thread_does_not_wait_for_another(rig: Rig, machine: Machine):
    truth = rig.truth()
    busy, free = used_thread(rig, truth), truth.start_thread(rig.cwd)
    held_turn(rig, truth, busy)
    machine.start()
    machine.deliver("m1", busy, "one", "--when-busy", "wait")
    machine.wait_for_phase("m1", "queued", reason="busy")
    machine.deliver("m2", free, "two", "--wait", "surfaced")
    assert machine.status("m1")["phase"] == "queued"
    rig.model.release(BUSY.text)
    machine.wait_for_outcome("m1", "m2")
    assert agreed(rig, busy) == [FIRST, BUSY, Said("m1", "one")]
    assert agreed(rig, free) == [Said("m2", "two")]


def test_a_target_is_a_thread_by_name(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    machine.write_config(ops=thread)
    machine.start()
    flags = ("--target", "ops", "--source", "mail", "--id", "4711", "--wait", "surfaced", "--json")
    found = machine.run("deliver", *flags, "hello").body
    assert (found["id"], found["target"], found["source"]) == ("mail/4711", "ops", "mail")
    assert found["thread"] == thread
    assert agreed(rig, thread) == [FIRST, Said("mail/4711", "hello")]


def test_status_tells_a_delivery_by_its_facts(rig: Rig, machine: Machine):
    rig.model.script["hello"] = Hold("hi")
    thread = used_thread(rig, rig.truth())
    machine.start()
    machine.deliver("m1", thread, "hello", "--wait", "surfaced")
    told = machine.status("m1")
    assert (told["phase"], told["stored"], told["outcome"]) == ("surfaced", True, "running")
    rig.model.release("hello")
    machine.wait_for_outcome("m1")
    told = machine.run("status", "m1", "--explain", "--json").body
    assert told["outcome"] == "completed"
    facts = {fact["fact"]: fact for fact in told["facts"]}
    assert [word for word in facts if word != "answered"] == [
        "dispatched",
        "surfaced",
        "stored",
        "turn_ended",
    ]
    assert facts["surfaced"]["turn"] == told["turn"]
    assert facts["turn_ended"]["outcome"] == "completed"


def test_a_machine_is_healthy_until_its_server_goes(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    version = truth.server_info["userAgent"].partition("/")[2].partition(" ")[0]
    assert machine.run("status").code == 0
    machine.start()
    machine.deliver("m1", thread, "hello", "--wait", "surfaced")
    healthy = machine.run("status", "--json")
    assert (healthy.code, healthy.body["healthy"], healthy.body["live"]) == (0, True, {})
    assert f"/{version} " in healthy.body["server"]["user_agent"]
    assert healthy.body["server"]["pid"] == rig.server.pid
    assert version in machine.run("status").out

    rig.server.stop()
    machine.wait_until_disconnected()
    machine.deliver("m2", thread, "waits")
    ill = machine.run("status", "--json")
    assert (ill.code, ill.body["healthy"], ill.body["live"]) == (1, False, {"queued": 1})
    assert (ill.body["supervisor"], ill.body["oldest"]["id"]) == ("up", "m2")

    machine.stop()
    alone = machine.run("status", "--json")
    assert (alone.code, alone.body["supervisor"]) == (1, "down")
    assert "codexdrv supervise" in " ".join(alone.body["remedies"])


def test_threads_lists_the_threads_of_the_server(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    listed = machine.run("threads", "--json").bodies
    assert [(body["id"], body["preview"]) for body in listed] == [(thread, FIRST.text)]
    assert thread in machine.run("threads").out
    rig.server.stop()
    assert machine.run("threads").code == 69


def test_a_cancelled_message_is_never_sent(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    rig.server.stop()
    machine.deliver("m1", thread, "never mind")
    machine.deliver("m2", thread, "do it")
    assert machine.run("cancel", "m1", "--json").body["phase"] == "cancelled"
    assert machine.run("cancel", "m1").code == 0
    rig.server.start()
    machine.start()
    machine.wait_for_outcome("m2")
    assert agreed(rig, thread) == [FIRST, Said("m2", "do it")]
    assert rig.model.count("never mind") == 0
    late = machine.run("cancel", "m2", "--json")
    assert (late.code, late.body["error"]["code"]) == (1, "too_late")


def test_a_supervisor_stops_at_once_and_another_one_has_to_wait(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    machine.start()
    held_turn(rig, truth, thread)
    machine.deliver("m1", thread, "also", "--wait", "surfaced")
    second = machine.run("supervise")
    assert second.code == 75
    assert "another supervisor" in second.err.lower()
    began = time.monotonic()
    assert machine.stop() == 0
    assert time.monotonic() - began < STOP_S_MAX
    rig.model.release(BUSY.text)
    machine.start()
    machine.wait_for_outcome("m1")
    assert agreed(rig, thread) == [FIRST, BUSY, Said("m1", "also")]


def test_a_supervisor_without_a_server_stops_at_once(rig: Rig, machine: Machine):
    machine.start()
    rig.server.stop()
    machine.wait_until_disconnected()
    began = time.monotonic()
    assert machine.stop() == 0
    assert time.monotonic() - began < STOP_S_MAX


def test_a_caller_that_gives_up_learns_that_the_message_goes_on(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    flags = ("--thread", thread, "--id", "m1", "--wait", "surfaced", "--timeout", "0.1", "--json")
    early = machine.run("deliver", *flags, "hello")
    assert (early.code, early.body["phase"]) == (3, "queued")
    assert "it goes on" in early.err
    machine.start()
    machine.wait_for_outcome("m1")
    assert agreed(rig, thread) == [FIRST, Said("m1", "hello")]
