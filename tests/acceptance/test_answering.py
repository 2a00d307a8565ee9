"""An operator sees what the server asks, and answers it, beside every client that is there."""

import fcntl
import json
import os
import signal

import pytest

from codexdrv.demo.script import CallTool, RunCommand
from codexdrv.snapshot import load_snapshot
from tests.acceptance.kit import Message, Rig, Truth
from tests.acceptance.machine import Machine
from tests.acceptance.test_questions import (
    COMMAND,
    ELICITATION,
    FILE_CHANGE,
    MADE,
    PERMISSIONS,
    TOOL_CALL,
    USER_INPUT,
    Kind,
    bring_to_ask,
    heard_by_the_model,
)
from tests.public_shapes import check


TARGET = "ops"
SHOWN = {
    COMMAND.method: f"touch {MADE}",
    FILE_CHANGE.method: "change ",
    ELICITATION.method: "“maker” says “Allow the maker MCP server to run tool",
    PERMISSIONS.method: '{"network":{"enabled":true}}',
    USER_INPUT.method: "“which”: “Which one?” (“this”, “that”)",
}
MAKES = (COMMAND, FILE_CHANGE, ELICITATION)
EXPLORE = CallTool(
    "request_permissions",
    {"reason": "to look", "permissions": {"file_system": {"read": ["/etc/x"]}}},
    then="done",
)


def listed(machine: Machine) -> list[Message]:
    """Read the open questions out of the status file."""
    snapshot = load_snapshot(str(machine.state))
    return snapshot.body["questions"] if snapshot else []


def wait_for_question(machine: Machine) -> Message:
    machine.wait_until(lambda: bool(listed(machine)), "a question in the status file")
    (question,) = listed(machine)
    return question


def wait_until_none(machine: Machine) -> None:
    machine.wait_until(lambda: not listed(machine), "no question in the status file")


def attach(rig: Rig, machine: Machine, kind: Kind) -> tuple[Truth, str, str]:
    """A user's client has the question; then a supervisor comes."""
    truth = rig.truth()
    thread, turn, _ = bring_to_ask(rig, truth, kind)
    machine.write_config(**{TARGET: thread})
    machine.start()
    return truth, thread, turn


def spawn(rig: Rig, machine: Machine, kind: Kind) -> tuple[Truth, str, str]:
    """The supervisor's own server asks, and is told to leave it to the user."""
    rig.server.stop()
    machine.own_server(approvals="leave")
    machine.start_unconnected()
    machine.wait_for_server()
    truth = rig.truth()
    thread, turn, _ = bring_to_ask(rig, truth, kind)
    # A message that waits for the end of the turn brings the supervisor into the thread.
    machine.deliver("m1", thread, "later", "--when-busy", "wait")
    return truth, thread, turn


@pytest.mark.parametrize("begin", [attach, spawn], ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", MAKES, ids=lambda kind: kind.method)
@pytest.mark.parametrize("decision", ["accept", "decline"])
def test_what_an_operator_accepts_is_done_and_what_is_declined_is_not(
    rig: Rig, machine: Machine, kind: Kind, decision: str, begin
):
    truth, thread, turn = begin(rig, machine, kind)
    wait_for_question(machine)
    # Whoever comes late is told by nobody which files are to be changed, and finds out.
    which = f"change “{rig.cwd / MADE}”" if kind is FILE_CHANGE else SHOWN[kind.method]
    machine.wait_until(lambda: which in listed(machine)[0]["summary"], "what is asked")
    (body,) = machine.run("attention", "--json").bodies
    check("question", body)
    assert [body] == listed(machine)
    assert (body["method"], body["thread"], body["turn"]) == (kind.method, thread, turn)
    done = machine.run("answer", body["id"][:6], "--decision", decision, "--json")
    check("answered", done.body)
    assert done.code == 0
    # A machine that is slow shows it too late.
    assert done.body["outcome"] in ({"settled"} if kind is ELICITATION else {"settled", "taken"})
    assert truth.wait_for_turn(turn)["status"] == "completed"
    made = [path.name for path in rig.cwd.iterdir()]
    assert made == ([MADE] if decision == "accept" else [])
    wait_until_none(machine)
    assert "No question of the server is open in" in machine.run("attention").out


def test_the_ways_to_answer_that_are_shown_are_those_that_work(rig: Rig, machine: Machine):
    truth, thread, turn = attach(rig, machine, COMMAND)
    question = wait_for_question(machine)
    shown = machine.run("attention").out
    assert f"{question['id']}  command, open for " in shown
    assert f"target {TARGET}, thread {thread}" in shown
    way = f"codexdrv --config {machine.config} answer {question['id']} --decision cancel"
    assert way in shown
    done = machine.run(*way.split()[3:])
    assert done.code == 0
    assert done.out.startswith(f"{question['id']} is settled: ")
    assert truth.wait_for_turn(turn)["status"] == "interrupted"


@pytest.mark.parametrize(
    ("words", "heard"),
    [
        (
            ("accept",),
            '{"permissions":{"network":{"enabled":true},"file_system":null},"scope":"turn"}',
        ),
        (
            ("accept-for-session",),
            '{"permissions":{"network":{"enabled":true},"file_system":null},"scope":"session"}',
        ),
        (
            ("decline",),
            '{"permissions":{"network":null,"file_system":null},"scope":"turn"}',
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_permissions_are_granted_as_asked_and_as_long_as_was_said(
    rig: Rig, machine: Machine, words: tuple[str, ...], heard: str
):
    truth, thread, turn = attach(rig, machine, PERMISSIONS)
    question = wait_for_question(machine)
    assert SHOWN[PERMISSIONS.method] in question["summary"]
    assert machine.run("answer", question["id"], "--decision", *words).code == 0
    truth.wait_for_turn(turn)
    assert heard_by_the_model(rig, thread) == [heard]


def test_files_are_permitted_as_asked(rig: Rig, machine: Machine):
    truth, thread, turn = attach(rig, machine, PERMISSIONS._replace(step=EXPLORE))
    question = wait_for_question(machine)
    assert "because “to look”" in question["summary"]
    assert machine.run("answer", question["id"], "--decision", "accept").code == 0
    truth.wait_for_turn(turn)
    (heard,) = heard_by_the_model(rig, thread)
    assert '"file_system":{"read":["/etc/x"]' in heard
    assert '"write":["' not in heard


def test_a_question_for_the_user_gets_the_operator_s_reply(rig: Rig, machine: Machine):
    truth, thread, turn = attach(rig, machine, USER_INPUT)
    question = wait_for_question(machine)
    assert question["summary"] == SHOWN[USER_INPUT.method]
    assert question["questions"] == ["which"]
    answer = ("answer", question["id"], "--decision", "accept")
    for wrong in ((), ("--reply", "other=this"), ("--content", "{}")):
        refused = machine.run(*answer, *wrong)
        assert (refused.code, refused.out) == (65, "")
    assert machine.run(*answer, "--reply", "which=that one").code == 0
    truth.wait_for_turn(turn)
    assert heard_by_the_model(rig, thread) == ['{"answers":{"which":{"answers":["that one"]}}}']


def test_the_second_answer_is_told_that_it_is_late(rig: Rig, machine: Machine):
    truth, _, turn = attach(rig, machine, COMMAND)
    name = wait_for_question(machine)["id"]
    answers = [("answer", name, "--decision", word) for word in ("accept", "decline")]
    codes = [done.code for done in machine.run_together(answers)]
    truth.wait_for_turn(turn)
    is_made = [path.name for path in rig.cwd.iterdir()] == [MADE]
    # Whoever is too late is told so: as the other's, or because nothing is open any more.
    assert codes.count(0) == 1
    assert codes[0 if is_made else 1] == 0
    assert codes[1 if is_made else 0] in {1, 66}
    again = machine.run(*answers[0])
    assert again.code == 66


def is_answering(machine: Machine) -> bool:
    """Say whether a command answers, or is about to."""
    descriptor = os.open(machine.state, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_the_user_s_own_client_may_answer_at_the_same_moment(rig: Rig, machine: Machine):
    truth, _, turn = attach(rig, machine, COMMAND)
    name = wait_for_question(machine)["id"]
    (asked,) = [message for message in truth.seen if message["method"] == COMMAND.method]
    with machine.running("answer", name, "--decision", "decline") as running:
        machine.wait_until(lambda: is_answering(machine), "the command at its work")
        truth.answer(asked, {"decision": "accept"})
        done = running.wait()
    truth.wait_for_turn(turn)
    is_made = [path.name for path in rig.cwd.iterdir()] == [MADE]
    assert done.code in ({1, 66} if is_made else {0})


def test_what_another_client_alone_can_answer_says_so(rig: Rig, machine: Machine):
    truth, _, turn = attach(rig, machine, TOOL_CALL)
    question = wait_for_question(machine)
    assert question["decisions"] == []
    assert "only the client that brought the tool into the thread can" in (
        machine.run("attention").out
    )
    refused = machine.run("answer", question["id"], "--decision", "decline")
    assert (refused.code, refused.out) == (65, "")
    asked = truth.wait_for(lambda message: message["method"] == TOOL_CALL.method)
    truth.answer(asked, {"success": True, "contentItems": []})
    # No word of the server settles it, but the end of its item.
    wait_until_none(machine)
    truth.wait_for_turn(turn)


def test_a_question_of_an_earlier_server_process_is_not_answered(rig: Rig, machine: Machine):
    truth, _, _ = attach(rig, machine, COMMAND)
    earlier = wait_for_question(machine)
    rig.server.kill()
    truth.close()
    machine.wait_until_disconnected()
    rig.server.start()
    # The same number on the wire, and the same command.
    truth = rig.truth()
    thread, turn, asked = bring_to_ask(rig, truth, COMMAND)
    machine.deliver("m1", thread, "later", "--when-busy", "wait")
    now = wait_for_question(machine)
    assert (now["summary"], now["method"]) == (earlier["summary"], earlier["method"])
    assert asked["id"] == 0
    refused = machine.run("answer", earlier["id"], "--decision", "accept")
    assert refused.code == 66
    assert list(rig.cwd.iterdir()) == []
    assert machine.run("answer", now["id"], "--decision", "decline").code == 0
    assert truth.wait_for_turn(turn)["status"] == "completed"


def test_another_life_of_ours_knows_a_question_by_its_id_and_how_old_it_is(
    rig: Rig, machine: Machine
):
    attach(rig, machine, COMMAND)
    before = wait_for_question(machine)
    assert machine.stop() == 0
    machine.start()

    def picture() -> Message:
        snapshot = load_snapshot(str(machine.state))
        return snapshot.body if snapshot else {}

    # Nobody tells it that the thread waits: it is in the answer to the resume.
    machine.wait_until(
        lambda: (
            picture()["life"] == 2 and picture()["threads"].get(before["thread"], {}).get("waiting")
        ),
        "the thread, as this life sees it",
    )
    assert wait_for_question(machine) == before


def test_without_a_supervisor_nothing_is_known(rig: Rig, machine: Machine):
    for words in (("attention",), ("answer", "0000", "--decision", "accept")):
        refused = machine.run(*words)
        assert (refused.code, refused.out) == (69, "")
        assert "No supervisor is running" in refused.err


CONTEXT = ("approval_policy", "sandbox_policy")


def contexts(rig: Rig, thread: str) -> list[str]:
    """Read out of the record what each turn of a thread was allowed."""
    (record,) = rig.home.glob(f"sessions/**/rollout-*{thread}*.jsonl")
    lines = [json.loads(line) for line in record.read_bytes().splitlines()]
    payloads = [line["payload"] for line in lines if line["type"] == "turn_context"]
    return [json.dumps([each[name] for name in CONTEXT]) for each in payloads]


def test_an_answer_leaves_the_thread_loaded_and_as_it_is(rig: Rig, machine: Machine):
    truth, thread, turn = attach(rig, machine, COMMAND)
    name = wait_for_question(machine)["id"]
    assert machine.run("answer", name, "--decision", "decline").code == 0
    truth.wait_for_turn(turn)
    assert thread in truth.call("thread/loaded/list")["data"]
    # What it is asked next is asked as before.
    truth.wait_for_turn(truth.start_turn(thread, "anything"))
    assert len({*contexts(rig, thread)}) == 1
    assert len(contexts(rig, thread)) >= 2


def test_a_command_too_long_to_show_can_be_declined_alone(rig: Rig, machine: Machine):
    hidden = RunCommand(f"echo {'a' * 3_000}; touch {MADE}; echo {'a' * 3_000}", then="done")
    truth, _, turn = attach(rig, machine, COMMAND._replace(step=hidden))
    question = wait_for_question(machine)
    assert MADE not in question["summary"]
    assert question["decisions"] == ["decline", "cancel"]
    refused = machine.run("answer", question["id"], "--decision", "accept")
    assert (refused.code, refused.out) == (65, "")
    assert machine.run("answer", question["id"], "--decision", "decline").code == 0
    assert truth.wait_for_turn(turn)["status"] == "completed"
    assert list(rig.cwd.iterdir()) == []


def test_a_session_wide_yes_is_for_the_server_to_offer(rig: Rig, machine: Machine):
    attach(rig, machine, COMMAND)
    question = wait_for_question(machine)
    assert question["decisions"] == ["accept", "decline", "cancel"]


def test_a_list_that_is_older_than_the_server_answers_nothing(rig: Rig, machine: Machine):
    truth, _, _ = attach(rig, machine, COMMAND)
    name = wait_for_question(machine)["id"]
    # It can be rung, and writes nothing any more.
    machine.signal(signal.SIGSTOP)
    rig.server.kill()
    truth.close()
    rig.server.start()
    refused = machine.run("answer", name, "--decision", "accept")
    machine.signal(signal.SIGCONT)
    assert (refused.code, refused.out) == (66, "")
    assert "was asked by a server that is not there any more" in refused.err
