"""Servers and supervisors end at the worst moments: nothing is lost, doubled or guessed."""

import os
import signal

import pytest

from codexdrv.demo.script import Hold
from tests.acceptance.binaries import by_version
from tests.acceptance.kit import WAIT_S, Rig, Said
from tests.acceptance.machine import Machine
from tests.acceptance.scenes import (
    ASK,
    BUSY,
    FIRST,
    REFUSES_WHILE_DRAINING,
    agreed,
    asking_turn,
    held_turn,
    used_thread,
    wait_for_steer,
)
from tests.acceptance.sockets import unread_bytes


def restart_server(rig: Rig, machine: Machine) -> None:
    rig.server.start()
    machine.wait_until_connected()


def test_nothing_is_lost_while_the_server_drains(rig: Rig, machine: Machine, version: str):
    rig.model.script |= {"one": Hold("free"), "four": Hold("free")}
    truth = rig.truth()
    thread, other = used_thread(rig, truth), used_thread(rig, truth)
    machine.start()
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    rig.model.wait_for_prompt("one")
    rig.server.terminate()
    machine.deliver("m2", thread, "two")
    machine.deliver("m3", thread, "three", "--when-busy", "wait")
    machine.deliver("m4", other, "four")
    if by_version(REFUSES_WHILE_DRAINING, version):
        machine.wait_for_phase("m2", "queued", reason="draining")
        machine.wait_for_phase("m4", "queued", reason="draining")
        assert machine.standing("m3").phase == "queued"
        rig.model.release("one")
    else:
        machine.wait_for("m2", lambda found: found.answered_turn is not None)
        machine.wait_for_phase("m4", "surfaced")  # the turn of m4 keeps the server alive
        rig.model.release("one")
        machine.wait_for_outcome("m1", "m2", "m3")
    rig.model.release("four")
    assert rig.server.wait(WAIT_S) == 0
    restart_server(rig, machine)
    # It may exit before it has told that the turn is completed; history knows.
    machine.wait_for_outcome("m1", "m2", "m3", "m4")
    assert agreed(rig, thread) == [
        FIRST,
        Said("m1", "one"),
        Said("m2", "two"),
        Said("m3", "three"),
    ]
    assert agreed(rig, other)[1:] == [Said("m4", "four")]


@pytest.mark.field_report("openclaw#115445")
def test_a_turn_that_the_server_took_with_it_is_not_replayed(rig: Rig, machine: Machine):
    rig.model.script["one"] = Hold("never said")
    thread = used_thread(rig, rig.truth())
    machine.start()
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    rig.model.wait_for_prompt("one")
    rig.server.kill()
    machine.deliver("m2", thread, "two")
    restart_server(rig, machine)
    machine.wait_for_outcome("m1", outcome="interrupted")
    machine.wait_for_outcome("m2")
    assert agreed(rig, thread) == [FIRST, Said("m1", "one"), Said("m2", "two")]


def test_a_new_life_goes_on_where_the_last_one_was_killed(rig: Rig, machine: Machine):
    rig.model.script["two"] = Hold("free")
    thread = used_thread(rig, rig.truth())
    machine.start()
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    machine.deliver("m2", thread, "two", "--wait", "surfaced")
    machine.kill()
    alone = machine.deliver("m3", thread, "three")
    assert (alone["phase"], alone["supervisor"]) == ("queued", "down")
    rig.model.release("two")
    machine.start()
    machine.wait_for_outcome("m1", "m2", "m3")
    machine.kill()
    machine.start()
    machine.deliver("m4", thread, "four", "--wait", "surfaced")
    said = [Said("m1", "one"), Said("m2", "two"), Said("m3", "three"), Said("m4", "four")]
    assert agreed(rig, thread) == [FIRST, *said]


def lose_an_answered_steer(rig: Rig, machine: Machine, _: str) -> str:
    """The server took m1 and died before it was in the thread."""
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd, approval_policy="untrusted")
    asking_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "lost")
    machine.wait_for("m1", lambda found: found.answered_turn is not None)
    rig.server.kill()
    return thread


def lose_an_unanswered_steer(rig: Rig, machine: Machine, version: str) -> str:
    """The request for m1 was written, and nobody ever read it."""
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)
    rig.model.script["known"] = Hold("never said")
    held_turn(rig, truth, thread)
    machine.start()
    # Once it is subscribed and knows the turn, it steers without asking.
    machine.deliver("m0", thread, "known")
    wait_for_steer(rig, machine, "m0", held=BUSY.text, version=version)
    rig.model.wait_for_prompt("known")
    os.kill(rig.server.pid, signal.SIGSTOP)
    machine.deliver("m1", thread, "lost")
    machine.wait_for_phase("m1", "pending")
    # Signs of life that wait there, too, are smaller.
    machine.wait_until(lambda: unread_bytes(rig.server.pid) > 250, "the request in its socket")
    rig.server.kill()
    return thread


@pytest.mark.parametrize("lose", [lose_an_answered_steer, lose_an_unanswered_steer])
def test_what_was_lost_with_its_server_is_proved_absent_and_sent_once_more(
    rig: Rig, machine: Machine, version: str, lose
):
    thread = lose(rig, machine, version)
    # A turn of its own: the model may not be asked about what is steered into a turn's last moment.
    machine.deliver("m2", thread, "behind", "--when-busy", "wait")
    machine.wait_for_phase("m1", "uncertain")

    # With no server there is nobody to ask; it is visible, and waits.
    (shown,) = machine.run("list", "--phase", "uncertain", "--json").bodies
    assert (shown["id"], shown["reason"], shown["outcome"]) == ("m1", "link_lost", "received")
    assert machine.run("list", "--phase", "queued", "--json").body["id"] == "m2"
    assert "m1 is in doubt" in machine.run("status", "m1").out
    assert machine.run("status", "--json").body["live"] == {"uncertain": 1, "queued": 1}
    assert machine.run("cancel", "m1").code == 1

    restart_server(rig, machine)
    machine.wait_for_outcome("m1", "m2")
    assert agreed(rig, thread)[-2:] == [Said("m1", "lost"), Said("m2", "behind")]
    assert machine.standing("m1").attempts == 2
    (proof,) = [fact.news for fact in machine.story("m1") if fact.news.fact == "absent"]
    assert proof.reason == "server_gone"
    told = machine.run("status", "m1", "--explain").out
    assert "absent: the server that it was sent to is gone" in told


@pytest.mark.parametrize("word", ["surfaced", "failed"])
def test_an_operators_word_frees_the_lane(rig: Rig, machine: Machine, version: str, word: str):
    thread = lose_an_answered_steer(rig, machine, version)
    machine.deliver("m2", thread, "behind")
    machine.wait_for_phase("m1", "uncertain")
    force = ["--force"] if word == "surfaced" else []
    said = machine.run("resolve", "m1", "--as", word, "--why", "so I say", "--json", *force)
    assert (said.code, said.body["phase"], said.body["why"]) == (0, word, "so I say")
    restart_server(rig, machine)
    machine.wait_for_outcome("m2")
    assert agreed(rig, thread) == [ASK, Said("m2", "behind")]


def test_a_new_life_finds_what_the_last_one_had_sent(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd, approval_policy="untrusted")
    request = asking_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "also")
    machine.wait_for("m1", lambda found: found.answered_turn is not None)
    machine.kill()
    machine.start()
    machine.wait_for_phase("m1", "uncertain")
    truth.answer(request, {"decision": "accept"})
    machine.wait_for_outcome("m1")
    assert machine.standing("m1").attempts == 1
    assert agreed(rig, thread) == [ASK, Said("m1", "also")]


def test_a_request_whose_sender_was_killed_is_in_the_thread_once(
    rig: Rig, machine: Machine, version: str
):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    rig.model.script["one"] = Hold("free")
    turn = held_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "one")
    wait_for_steer(rig, machine, "m1", held=BUSY.text, version=version)
    os.kill(rig.server.pid, signal.SIGSTOP)
    machine.deliver("m2", thread, "two")
    machine.wait_for_phase("m2", "pending")
    machine.kill()
    os.kill(rig.server.pid, signal.SIGCONT)
    rig.model.release("one")
    machine.start()
    machine.wait_for_outcome("m2")
    truth.wait_for_turn(turn)
    assert agreed(rig, thread)[2:] == [Said("m1", "one"), Said("m2", "two")]
    # Found, or proved absent and sent again.
    absences = sum(fact.news.fact == "absent" for fact in machine.story("m2"))
    assert machine.standing("m2").attempts == 1 + absences


@pytest.mark.field_report("openai/codex#40805", "octos#2049")
def test_a_steer_that_its_turn_did_not_take_is_delivered_again_once(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd, approval_policy="untrusted")
    asking_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "also")
    machine.wait_for("m1", lambda found: found.answered_turn is not None)
    truth.call("turn/interrupt", threadId=thread, turnId=machine.standing("m1").answered_turn)
    machine.wait_for_outcome("m1")
    assert agreed(rig, thread) == [ASK, Said("m1", "also")]
    reasons = [(fact.news.fact, fact.news.reason) for fact in machine.story("m1")]
    doubt = reasons.index(("in_doubt", "turn_ended"))
    assert reasons[doubt + 1] == ("absent", "quiet")
    assert machine.standing("m1").attempts == 2


@pytest.mark.parametrize("sign", ["pending", "prompt", "surfaced"])
def test_a_kill_of_the_server_at_any_moment_loses_and_doubles_nothing(
    rig: Rig, machine: Machine, sign: str
):
    thread = used_thread(rig, rig.truth())
    machine.start()
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    machine.deliver("m2", thread, "two")
    if sign == "prompt":
        rig.model.wait_for_prompt("two")
    else:
        machine.wait_for("m2", lambda found: found.phase in {sign, "surfaced"})
    rig.server.kill()
    restart_server(rig, machine)
    machine.wait_for("m2", lambda found: found.stored)
    truth = rig.truth()
    truth.resume(thread)
    machine.deliver("m3", thread, "three")
    machine.wait_for_outcome("m3")
    said = [FIRST, Said("m1", "one"), Said("m2", "two"), Said("m3", "three")]
    assert truth.history(thread) == said
    assert rig.rollout(thread) == said
