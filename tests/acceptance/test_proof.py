"""What is uncertain is settled by proof: once in the thread, whatever happened in between."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from codexdrv.demo.script import Hold, Many
from tests.acceptance.binaries import by_version
from tests.acceptance.kit import Message, Rig, Said
from tests.acceptance.machine import Machine
from tests.acceptance.mounts import small_disk
from tests.acceptance.proxy import Once, Proxy
from tests.acceptance.scenes import (
    ASK,
    COMPACT,
    FIRST,
    agreed,
    asking_turn,
    enter,
    used_thread,
)


HAS_REVERT = {"0.144.5": False, "0.163.0": True}


def absences(machine: Machine, delivery: str) -> list[str | None]:
    """Why each proof of absence was one."""
    return [fact.news.reason for fact in machine.story(delivery) if fact.news.fact == "absent"]


def is_doubted_with_no_server(rig: Rig, machine: Machine) -> str:
    """A steer was answered, then supervisor and server were killed; return the thread."""
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd, approval_policy="untrusted")
    asking_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "lost")
    machine.wait_for("m1", lambda found: found.answered_turn is not None)
    machine.kill()
    rig.server.kill()
    return thread


def test_reconcile_alone_settles_what_a_dead_server_left(rig: Rig, machine: Machine):
    thread = is_doubted_with_no_server(rig, machine)
    tried = machine.run("reconcile", "--dry-run", "--json")
    assert (tried.code, tried.body["finding"], tried.body["reason"]) == (0, "absent", "server_gone")
    assert machine.standing("m1").phase == "pending"

    done = machine.run("reconcile", "--json")
    assert (done.code, done.body["id"], done.body["phase"]) == (0, "m1", "queued"), done.err
    # It settles and never dispatches; its own server has gone with it.
    assert rig.rollout(thread) == [ASK]
    assert machine.run("reconcile").out == "Nothing is in doubt.\n"

    rig.server.start()
    machine.start()
    machine.wait_for_outcome("m1")
    assert agreed(rig, thread) == [ASK, Said("m1", "lost")]


def test_reconcile_asks_the_server_that_lives(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd, approval_policy="untrusted")
    request = asking_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "also")
    machine.wait_for("m1", lambda found: found.answered_turn is not None)
    machine.kill()
    # The turn waits for its approval, and the message in it.
    waiting = machine.run("reconcile", "--timeout", "3", "--json")
    assert (waiting.code, waiting.body["phase"]) == (3, "uncertain")
    tried = machine.run("reconcile", "--dry-run", "--id", "m1")
    assert (tried.code, tried.out) == (
        3,
        "m1 would be pending: a turn runs, and may still take it.\n",
    )
    truth.answer(request, {"decision": "accept"})
    done = machine.run("reconcile", "--thread", thread, "--json")
    assert (done.code, done.body["phase"]) == (0, "surfaced")
    assert agreed(rig, thread) == [ASK, Said("m1", "also")]


@pytest.mark.one_version
def test_reconcile_beside_a_supervisor_rings_it_and_watches(rig: Rig, machine: Machine):
    thread = is_doubted_with_no_server(rig, machine)
    machine.start_unconnected()
    machine.wait_for_phase("m1", "uncertain")
    rig.server.start()
    done = machine.run("reconcile", "--json")
    assert done.code == 0, done.err
    assert done.body["phase"] in {"queued", "pending", "surfaced"}
    machine.wait_for_outcome("m1")
    assert agreed(rig, thread) == [ASK, Said("m1", "lost")]


@pytest.mark.one_version
def test_reconcile_tells_who_is_not_there(rig: Rig, machine: Machine):
    assert machine.run("reconcile", "--id", "nobody").code == 66
    assert machine.run("reconcile", "--target", "nobody").code == 66
    assert machine.run("reconcile", "--thread", "nobody").code == 65
    empty = machine.run("reconcile", "--json")
    assert (empty.code, empty.out) == (0, "")


def test_a_start_that_a_compaction_swallowed_is_delivered_after_it_once(
    rig: Rig, machine: Machine, version: str
):
    rig.model.script[COMPACT.key] = Hold("done")
    truth = rig.truth()
    thread = used_thread(rig, truth)

    def begin_first(request):
        enter(truth, thread, COMPACT)
        return request

    with Proxy(rig.root / "proxy.sock", rig.socket_path, Once("turn/start", begin_first)) as proxy:
        machine.go_through(proxy.path)
        machine.start()
        machine.deliver("m1", thread, "between")
        machine.wait_for("m1", lambda found: found.attempts == 1 and found.reason != "start")
        rig.model.release(COMPACT.key)
        machine.wait_for_outcome("m1")
    assert truth.history(thread)[0] == FIRST
    assert [said for said in agreed(rig, thread) if said.client_id == "m1"] == [
        Said("m1", "between")
    ]
    # The old version answers and drops it; the newer ones refuse.
    expected = {"0.144.5": ["quiet"], "0.163.0": []}
    assert absences(machine, "m1") == by_version(expected, version)


class Fences:
    """Pass everything on; count what asks the server's queue."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, message: Message) -> Message:
        is_fence = message.get("method") == "turn/steer" and message["params"]["input"] == []
        self.count += is_fence
        return message


def test_a_steer_that_waits_for_an_approval_is_not_sent_again(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd, approval_policy="untrusted")
    request = asking_turn(rig, truth, thread)
    fences = Fences()
    with Proxy(rig.root / "proxy.sock", rig.socket_path, fences) as proxy:
        machine.go_through(proxy.path)
        machine.start()
        machine.deliver("m1", thread, "also")
        machine.wait_for("m1", lambda found: found.answered_turn is not None)
        asked = fences.count
        # Its echo is late, so the fence is asked; it finds the turn that waits.
        machine.wait_until(lambda: fences.count > asked, "a fence")
        assert machine.standing("m1").phase == "pending"
        truth.answer(request, {"decision": "accept"})
        machine.wait_for_outcome("m1")
    assert machine.standing("m1").attempts == 1
    assert agreed(rig, thread) == [ASK, Said("m1", "also")]


@pytest.mark.field_report("get-bb/bb#2580")
@pytest.mark.one_version
def test_a_start_that_is_answered_and_begins_late_is_one_message(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    fences = Fences()
    (database,) = rig.home.glob("state_*.sqlite")
    with (
        Proxy(rig.root / "proxy.sock", rig.socket_path, fences) as proxy,
        contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other,
    ):
        machine.go_through(proxy.path)
        machine.start()
        other.execute("BEGIN EXCLUSIVE")
        machine.deliver("m1", thread, "hello")
        machine.wait_for("m1", lambda found: found.answered_turn is not None)
        asked = fences.count
        # The thread says that it is idle, and shows nothing; its queue knows better.
        machine.wait_until(lambda: fences.count > asked, "a fence")
        assert machine.standing("m1").phase == "pending"
        other.execute("ROLLBACK")
        machine.wait_for_outcome("m1")
    assert machine.standing("m1").attempts == 1
    assert agreed(rig, thread) == [FIRST, Said("m1", "hello")]


@pytest.mark.field_report("remodex#187", "openai/codex#32254")
def test_a_request_whose_connection_is_cut_at_once_is_delivered_once(rig: Rig, machine: Machine):
    """Some of these never arrive, some begin late; nobody can tell from here."""
    thread = used_thread(rig, rig.truth())
    said = [FIRST]

    def cut(message: Message) -> Message:
        if message.get("method") == "turn/start" and machine.standing(name).attempts == 1:
            proxy.cut()
        return message

    with Proxy(rig.root / "proxy.sock", rig.socket_path, cut) as proxy:
        machine.go_through(proxy.path)
        machine.start()
        for number in range(2):
            name = f"m{number}"
            machine.deliver(name, thread, f"text {number}")
            said.append(Said(name, f"text {number}"))
            machine.wait_for_outcome(name)
    assert agreed(rig, thread) == said


def test_a_message_that_was_reverted_while_we_were_down_is_not_sent_again(
    rig: Rig, machine: Machine, version: str
):
    truth = rig.truth()
    thread = used_thread(rig, truth)

    def deafen(message: Message) -> Message:
        proxy.is_mute = True
        return message

    once = Once("turn/start", deafen)
    with Proxy(rig.root / "proxy.sock", rig.socket_path, once) as proxy:
        machine.go_through(proxy.path)
        machine.start()
        machine.deliver("m1", thread, "hello")
        turn = truth.wait_for_input("m1")["params"]["turnId"]
        truth.wait_for_turn(turn)
        machine.kill()
        proxy.is_mute = False
        if by_version(HAS_REVERT, version):
            truth.call("thread/revert", threadId=thread, beforeTurnId=turn)
        else:
            truth.call("thread/rollback", threadId=thread, numTurns=1)
        assert truth.history(thread) == [FIRST]
        machine.start()
        machine.wait_for_phase("m1", "surfaced")
        machine.deliver("m2", thread, "next")
        machine.wait_for_outcome("m2")
    assert machine.standing("m1").attempts == 1
    assert truth.history(thread) == [FIRST, Said("m2", "next")]
    assert rig.model.occurrences("hello") == 1


def test_on_a_full_disk_a_message_is_in_the_thread_and_said_not_to_be_stored(
    tmp_path: Path, codex: str
):
    with (
        small_disk(tmp_path / "home", size="64m") as disk,
        Rig(tmp_path, binary=codex) as rig,
        Machine(rig) as machine,
    ):
        thread = used_thread(rig, rig.truth())
        machine.start()
        # More than the pages hold that the record has already.
        text = "hello " * 5_000
        with disk.filled():
            machine.deliver("m1", thread, text)
            done = machine.run(
                "deliver", "--id", "m1", "--thread", thread, "--wait", "surfaced", "--json", "-",
                stdin=text,
            )  # fmt: skip
            said = (done.code, done.body["phase"], done.body["reason"])
            assert said == (3, "surfaced", "not_stored")
            assert machine.standing("m1").attempts == 1
        assert rig.model.occurrences(text) == 1


ITEMS = 2_000
"""The soak has 28,000; a thread that long takes a minute to make."""
LOOK_BYTES_MAX = 200 * 1024


@pytest.mark.field_report("t3code#7075")
@pytest.mark.one_version
def test_the_cost_of_a_look_does_not_grow_with_the_thread(rig: Rig, machine: Machine):
    rig.model.script["many"] = Many(ITEMS)
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)
    truth.wait_for_turn(truth.start_turn(thread, "many"))
    truth.wait_for_turn(truth.start_turn(thread, FIRST.text, client_id=FIRST.client_id))

    def cut(message: Message) -> Message:
        if message.get("method") == "turn/start" and machine.standing("m1").attempts == 1:
            proxy.said_bytes = 0
            proxy.cut()
        return message

    with Proxy(rig.root / "proxy.sock", rig.socket_path, cut) as proxy:
        machine.go_through(proxy.path)
        machine.start()
        machine.deliver("m1", thread, "hello")
        machine.wait_for_outcome("m1")
        assert proxy.said_bytes < LOOK_BYTES_MAX
