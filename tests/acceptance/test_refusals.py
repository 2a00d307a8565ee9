"""What can never be delivered is refused with its reason; what only looks odd comes back equal."""

import pytest

from codexdrv.cli.message import TEXT_SCALARS_MAX
from codexdrv.demo.script import Reply
from tests.acceptance.kit import Rig, Said
from tests.acceptance.machine import Machine
from tests.acceptance.scenes import FIRST, agreed, used_thread


HARD = {
    "nul": "a\0b",
    "crlf": "one\r\ntwo\rthree\n",
    "bom": "\ufeffwith a mark",
    "blanks": " \t\n  in the middle \n\n ",
    "command": "/compact",
    "context": "<environment_context>\n  <cwd>/</cwd>\n</environment_context>",
    "emoji": "👩‍👩‍👧‍👦 e\u0301 \u202eright to left\u202c \U0010ffff",
    "controls": "".join(map(chr, range(1, 32))) + "\x7f\x85\u2028\u2029",
    "json": '{"method": "turn/start", "id": 1}',
    "option": "--json",
    "long": "ten kilobytes " * 732,
}

BAD = (
    (["-"], "x" * (TEXT_SCALARS_MAX + 1), 65, "1,048,576"),
    (["-"], "", 65, "empty or blank"),
    (["-"], " \n\t ", 65, "empty or blank"),
    (["--id", "no blanks", "-"], "hello", 65, "not a delivery id"),
    (["--file", "/nowhere/at/all"], "", 66, "cannot be read"),
    ([], "hello", 2, "no message"),
    (["--when-busy", "never", "-"], "hello", 2, "invalid choice"),
)
"""Flags, standard input; exit code, words on stderr."""

NOBODY = "019a0000-0000-7000-8000-000000000001"


@pytest.mark.one_version
def test_hard_bodies_come_back_equal(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    machine.start()
    for name, text in HARD.items():
        machine.deliver(name, thread, text, "--wait", "surfaced")
    assert agreed(rig, thread) == [FIRST, *(Said(name, text) for name, text in HARD.items())]


@pytest.mark.one_version
def test_the_largest_message_comes_back_equal(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    machine.start()
    text = "🦀" * TEXT_SCALARS_MAX
    rig.model.script[text] = Reply("much")
    machine.deliver("m1", thread, text, "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    assert agreed(rig, thread) == [FIRST, Said("m1", text)]


@pytest.mark.one_version
def test_bad_input_is_refused_before_anything_is_stored(machine: Machine):
    for flags, stdin, code, words in BAD:
        done = machine.run("deliver", "--thread", NOBODY, *flags, stdin=stdin)
        assert (done.code, done.out) == (code, "")
        assert words in done.err
    assert machine.run("list").out == ""


@pytest.mark.one_version
def test_a_thread_or_target_that_cannot_be_is_refused(machine: Machine):
    machine.write_config(ops=NOBODY)
    target = machine.run("deliver", "--target", "oops", "--json", "hello")
    assert (target.code, target.body["error"]["code"]) == (66, "not_found")
    assert "ops" in target.body["error"]["hint"]
    assert machine.run("deliver", "--thread", "the first one", "hello").code == 65
    assert machine.run("deliver", "hello").code == 2
    assert machine.run("deliver").code == 2
    assert machine.run().code == 2
    assert machine.run("list").out == ""


@pytest.mark.one_version
def test_the_same_id_is_a_duplicate_or_a_conflict(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    machine.start()
    machine.deliver("m1", thread, "hello", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    again = machine.deliver("m1", thread, "hello", "--wait", "surfaced")
    assert (again["duplicate"], again["phase"], again["attempts"]) == (True, "surfaced", 1)
    other = machine.run("deliver", "--thread", thread, "--id", "m1", "--json", "another")
    assert (other.code, other.body["error"]["code"]) == (65, "conflict")
    # What comes later in the lane is not overtaken: nothing of m1 was sent between.
    machine.deliver("m2", thread, "later", "--wait", "surfaced")
    assert agreed(rig, thread) == [FIRST, Said("m1", "hello"), Said("m2", "later")]


def assert_no_rollout(machine: Machine, thread: str) -> None:
    flags = ("--id", "m1", "--thread", thread, "--wait", "surfaced", "--json")
    done = machine.run("deliver", *flags, "hello")
    assert done.code == 66
    assert (done.body["phase"], done.body["reason"]) == ("failed", "no_rollout")
    assert (done.body["outcome"], done.body["attempts"]) == (None, 0)


@pytest.mark.field_report("openai/codex#42099", "tidebreak#2151")
def test_a_thread_that_was_never_used_before_a_restart_is_gone(rig: Rig, machine: Machine):
    thread = rig.truth().start_thread(rig.cwd)
    rig.server.stop()
    rig.server.start()
    machine.start()
    assert_no_rollout(machine, thread)
    # Never another thread in its place.
    assert rig.truth().loaded_threads() == []


def test_a_deleted_thread_is_gone(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    truth.call("thread/delete", threadId=thread)
    machine.start()
    assert_no_rollout(machine, thread)
    assert rig.model.count("hello") == 0


def test_a_thread_that_is_deleted_under_us_is_gone(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    machine.start()
    machine.deliver("m0", thread, "before", "--wait", "surfaced")
    machine.wait_for_outcome("m0")
    truth.call("thread/delete", threadId=thread)
    assert_no_rollout(machine, thread)


def test_an_ephemeral_thread_is_refused(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = truth.call("thread/start", cwd=str(rig.cwd), ephemeral=True)["thread"]["id"]
    machine.start()
    machine.deliver("m1", thread, "hello")
    machine.wait_for_phase("m1", "failed", reason="ephemeral")
    truth.wait_for_turn(truth.start_turn(thread, "used"))
    machine.deliver("m2", thread, "hello again")
    machine.wait_for_phase("m2", "failed", reason="ephemeral")
    assert (rig.model.count("hello"), rig.model.count("hello again")) == (0, 0)
