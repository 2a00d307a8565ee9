"""A server of our own: the supervisor starts it, shares it, restarts it, and stops it kindly."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from codexdrv.demo.script import Hold, RunCommand
from codexdrv.exits import ExitCode
from codexdrv.transport.peer import PeerIdentity, identify, is_gone
from supervisor.leftover import note_server
from tests.acceptance.binaries import BUNDLED, cache_of
from tests.acceptance.kit import Message, Rig, Said, Truth
from tests.acceptance.machine import Machine
from tests.acceptance.scenes import FIRST, agreed, used_thread


LISTEN = pytest.mark.parametrize("listen", ["unix", "stdio"])


@pytest.fixture
def machine(rig: Rig) -> Iterator[Machine]:
    """A machine whose rig has a thread, and no server of its own any more."""
    with Machine(rig) as machine:
        yield machine


@pytest.fixture
def thread(rig: Rig) -> str:
    """A thread that was used before; nobody serves it now."""
    thread = used_thread(rig, rig.truth())
    rig.server.stop()
    return thread


def start(machine: Machine, **options: str | float) -> PeerIdentity:
    """Start a supervisor with a server of its own; return which process that is."""
    machine.own_server(**options)
    machine.start_unconnected()
    server = identify(machine.wait_for_server())
    assert server is not None
    return server


def is_gone_when_told(server: PeerIdentity) -> bool:
    """Tell a server to end; say whether it has."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGTERM)
    return is_gone(server)


def logged(machine: Machine, event: str) -> list[Message]:
    """The lines of the log about one event."""
    lines = (json.loads(line) for line in machine.log.read_text().splitlines() if line[:1] == "{")
    return [line for line in lines if line["event"] == event]


def recorded(rig: Rig, thread: str) -> list[Said]:
    """What is in the thread's record; the model was shown each text once."""
    said = rig.rollout(thread)
    assert all(rig.model.occurrences(each.text) for each in said)
    return said


@LISTEN
def test_a_message_is_delivered_by_a_server_that_lives_as_long_as_we_do(
    rig: Rig, machine: Machine, thread: str, listen: str
):
    machine.deliver("m1", thread, "hello")
    server = start(machine, listen=listen)
    machine.wait_for_outcome("m1")
    assert machine.stop() == 0
    assert is_gone(server)
    assert recorded(rig, thread) == [FIRST, Said("m1", "hello")]
    (begun,) = logged(machine, "life.begun")
    where = {"socket": str(rig.socket_path)} if listen == "unix" else {}
    assert {key: begun[key] for key in ("mode", "listen", "socket") if key in begun} == {
        "mode": "spawn",
        "listen": listen,
        **where,
    }
    (ended,) = logged(machine, "generation.ended")
    assert ended["reason"] == "we stopped"


@pytest.mark.one_version
def test_before_it_runs_a_command_says_who_starts_it(rig: Rig, machine: Machine):
    rig.server.stop()
    machine.own_server()
    done = machine.run("threads")
    assert done.code == 69
    assert "`codexdrv supervise` starts it" in done.err
    machine.own_server(listen="stdio")
    done = machine.run("threads")
    assert done.code == 69
    assert "talks to its supervisor alone" in done.err


def test_the_users_own_client_shares_it(rig: Rig, machine: Machine, thread: str):
    start(machine)
    truth = rig.truth()
    own = used_thread(rig, truth)
    truth.resume(thread)
    machine.deliver("m1", thread, "hello", "--wait", "surfaced")
    machine.deliver("m2", own, "you too", "--wait", "surfaced")
    truth.wait_for_input("m1")
    truth.wait_for_input("m2")
    listed = machine.run("threads", "--json")
    assert listed.code == 0
    assert {body["id"] for body in listed.bodies} == {thread, own}
    machine.wait_for_outcome("m1", "m2")
    assert agreed(rig, own) == [FIRST, Said("m2", "you too")]


@LISTEN
def test_a_turn_that_runs_is_finished_before_the_server_goes(
    rig: Rig, machine: Machine, thread: str, listen: str
):
    rig.model.script["work"] = Hold("done")
    server = start(machine, listen=listen, stop_grace_s=20)
    machine.deliver("m1", thread, "work", "--wait", "surfaced")
    rig.model.wait_for_prompt("work")
    machine.terminate()
    # Whoever pressed Ctrl-C sees why nothing happens.
    machine.wait_for_log("life.waiting")
    assert not is_gone(server)
    rig.model.release("work")
    assert machine.wait_for_exit() == 0
    assert machine.standing("m1").outcome == "completed"
    assert is_gone(server)
    (line,) = logged(machine, "life.waiting")
    assert (line["turns"], line["up_to_s"]) == (1, 20)
    assert line["hint"] == "A second signal ends it at once."
    assert logged(machine, "turn.cut") == []


@pytest.mark.one_version
@LISTEN
def test_a_turn_that_does_not_end_is_cut_when_its_time_is_over(
    rig: Rig, machine: Machine, thread: str, listen: str
):
    rig.model.script["work"] = Hold("done")
    server = start(machine, listen=listen, stop_grace_s=0.2)
    machine.deliver("m1", thread, "work", "--wait", "surfaced")
    rig.model.wait_for_prompt("work")
    assert machine.stop() == 0
    assert is_gone(server)
    (line,) = logged(machine, "turn.cut")
    assert (line["level"], line["threads"], line["stop_grace_s"]) == ("warning", [thread], 0.2)


@pytest.mark.one_version
def test_a_second_signal_ends_it_at_once_and_names_the_server_that_it_leaves(
    rig: Rig, machine: Machine, thread: str
):
    rig.model.script["work"] = Hold("done")
    server = start(machine)
    machine.deliver("m1", thread, "work", "--wait", "surfaced")
    rig.model.wait_for_prompt("work")
    machine.terminate()
    machine.wait_for_log("life.waiting")

    def has_ended() -> bool:
        # Again and again: what comes too close upon the first is taken as the same one.
        if not machine.has_died():
            machine.terminate()
        return machine.has_died()

    machine.wait_until(has_ended, "the end of the supervisor")
    assert machine.wait_for_exit() == -signal.SIGTERM
    (line,) = logged(machine, "life.cut_short")
    assert line["leaves_server"] == server.pid
    # The kernel tells it; more than once, sometimes, and then it does not finish its turn.
    rig.model.release("work")
    machine.start_unconnected()
    machine.wait_for_server(other_than=server.pid)
    machine.wait_for("m1", lambda found: found.outcome in {"completed", "interrupted"})
    assert is_gone(server)


@pytest.mark.one_version
def test_a_supervisor_that_waits_for_what_an_earlier_one_left_says_so(
    rig: Rig, machine: Machine, thread: str
):
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as left:
        identity = identify(left.pid)
        assert identity is not None
        note_server(str(machine.state), identity)
        machine.deliver("m1", thread, "hello")
        machine.own_server()
        machine.start_unconnected()
        machine.wait_for_problem(
            f"The server that an earlier life left still runs (pid {left.pid}): it has up to 30 s"
            " to finish its turns, and is ended then."
        )
        done = machine.run("status")
        assert done.code == 1
        assert "it has up to 30 s" in done.out
        left.communicate()
        machine.wait_for_outcome("m1")


@pytest.mark.field_report("plannotator#1039")
@pytest.mark.one_version
@LISTEN
def test_a_server_that_was_killed_is_started_anew_and_nothing_is_sent_twice(
    rig: Rig, machine: Machine, thread: str, listen: str
):
    server = start(machine, listen=listen)
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    os.kill(server.pid, signal.SIGKILL)
    machine.deliver("m2", thread, "two")
    machine.wait_for_server(other_than=server.pid)
    machine.wait_for_outcome("m2")
    machine.wait_for_log("codex app-server has ended: signal SIGKILL")
    assert machine.stop() == 0
    assert recorded(rig, thread) == [FIRST, Said("m1", "one"), Said("m2", "two")]


@pytest.mark.field_report("harness#1109", "openai/codex#40010")
@LISTEN
def test_a_server_that_ends_by_itself_in_a_turn_is_doubt_and_no_success(
    rig: Rig, machine: Machine, thread: str, listen: str
):
    rig.model.script["work"] = Hold("done")
    server = start(machine, listen=listen)
    machine.deliver("m1", thread, "work", "--wait", "surfaced")
    rig.model.wait_for_prompt("work")
    # More than once: it does not wait for its turn then, and exits as if all were well.
    machine.wait_until(lambda: is_gone_when_told(server), "the end of the server")
    machine.wait_for_server(other_than=server.pid)
    machine.wait_for("m1", lambda found: found.outcome not in {"running", None} and found.stored)
    assert machine.standing("m1").outcome == "interrupted"
    assert machine.stop() == 0
    assert recorded(rig, thread) == [FIRST, Said("m1", "work")]


@pytest.mark.field_report("kai#487", "CodexBar#2789")
@pytest.mark.one_version
@LISTEN
def test_a_supervisor_that_is_killed_leaves_no_server_behind(
    rig: Rig, machine: Machine, thread: str, listen: str
):
    server = start(machine, listen=listen)
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    machine.kill()
    machine.wait_until(lambda: is_gone(server), "the end of the server")
    machine.deliver("m2", thread, "two")
    start(machine, listen=listen)
    machine.wait_for_outcome("m2")
    assert machine.stop() == 0
    assert recorded(rig, thread) == [FIRST, Said("m1", "one"), Said("m2", "two")]


def is_asked(rig: Rig, machine: Machine) -> tuple[Truth, str]:
    """Have a turn ask whether it may make a file; return the thread."""
    rig.model.script["ask"] = RunCommand(f"touch {rig.cwd}/made", "done")
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd, approval_policy="untrusted")
    truth.wait_for_turn(truth.start_turn(thread, FIRST.text, client_id=FIRST.client_id))
    machine.deliver("m1", thread, "ask", "--wait", "surfaced")
    return truth, thread


def test_its_approvals_are_declined_and_the_turn_goes_on(rig: Rig, machine: Machine):
    rig.server.stop()
    start(machine)
    is_asked(rig, machine)
    machine.wait_for_outcome("m1")
    machine.wait_for_log("question.declined")
    assert not (rig.cwd / "made").exists()


def test_its_approvals_are_left_to_the_user_where_that_is_wanted(rig: Rig, machine: Machine):
    rig.server.stop()
    start(machine, approvals="leave")
    truth, _ = is_asked(rig, machine)
    asked = truth.wait_for(lambda message: "requestApproval" in message["method"])
    truth.answer(asked, {"decision": "accept"})
    machine.wait_for_outcome("m1")
    assert (rig.cwd / "made").exists()


@pytest.mark.one_version
def test_a_server_that_is_not_ours_is_left_alone(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    machine.deliver("m1", thread, "hello")
    machine.own_server()
    machine.start_unconnected()
    machine.wait_for_problem(
        f"A server that is not ours listens at {rig.socket_path} already (pid {rig.server.pid})."
    )
    assert machine.standing("m1").phase == "queued"
    assert rig.server.is_running
    # When it has gone, ours takes its place, without a restart.
    rig.server.stop()
    machine.wait_for_outcome("m1")
    assert recorded(rig, thread) == [FIRST, Said("m1", "hello")]


def starts_of(machine: Machine) -> list[datetime]:
    """When the supervisor has started a server."""
    return [datetime.fromisoformat(line["timestamp"]) for line in logged(machine, "server.started")]


@pytest.mark.field_report("openclaw#60170")
@pytest.mark.one_version
def test_a_server_that_dies_at_once_is_started_after_pauses_that_grow(rig: Rig, machine: Machine):
    rig.server.stop()
    dies = rig.root / "codex"
    shutil.copy2("/bin/false", dies)
    machine.own_server(codex=str(dies), deaths_max=3)
    machine.start_unconnected()
    assert machine.wait_for_exit() == ExitCode.SERVER_KEEPS_DYING
    one, two, three = starts_of(machine)
    assert two - one >= timedelta(seconds=1)
    assert three - two >= timedelta(seconds=2)


@pytest.mark.field_report("openclaw#60170")
@pytest.mark.one_version
def test_a_configuration_that_cannot_be_started_is_not_tried_again(rig: Rig, machine: Machine):
    machine.own_server(codex=str(rig.root / "codex"))
    done = machine.run("supervise")
    assert done.code == 78
    assert str(rig.root / "codex") in done.err


@pytest.mark.field_report("kai#487", "CodexBar#2789", "remodex#47", "agent-deck#204")
def test_the_wrapper_of_npm_is_not_what_runs(rig: Rig, machine: Machine, version: str, thread: str):
    if version == BUNDLED:
        # It comes as a Python package: no wrapper, the same program.
        wrapper = rig.server.binary
    else:
        wrapper = cache_of(version) / "node_modules/.bin/codex"
    server = start(machine, codex=str(wrapper))
    assert os.readlink(f"/proc/{server.pid}/exe") == os.path.realpath(rig.server.binary)
    machine.deliver("m1", thread, "hello", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    assert machine.stop() == 0
    assert is_gone(server)


@LISTEN
def test_a_message_that_was_just_sent_has_its_turn_before_we_stop(
    rig: Rig, machine: Machine, thread: str, listen: str
):
    start(machine, listen=listen)
    machine.deliver("m1", thread, "hello")
    machine.wait_for("m1", lambda found: found.attempts == 1)
    assert machine.stop() == 0
    assert machine.standing("m1").outcome == "completed"
    assert recorded(rig, thread) == [FIRST, Said("m1", "hello")]


@pytest.mark.field_report("kai#487", "CodexBar#2789")
def test_a_server_that_outlives_its_supervisor_is_ended_by_the_next_one(rig: Rig, machine: Machine):
    rig.server.stop()
    server = start(machine, approvals="leave", stop_grace_s=1)
    truth, thread = is_asked(rig, machine)
    truth.wait_for(lambda message: "requestApproval" in message["method"])
    machine.kill()
    # It waits for an answer that nobody gives; some versions go all the same.
    machine.deliver("m2", thread, "next")
    machine.start_unconnected()
    machine.wait_for_server(other_than=server.pid)
    assert is_gone(server)
    machine.wait_for_outcome("m2")
