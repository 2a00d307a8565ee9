"""What is declined is not done, and the turn goes on (`codexdrv/protocol/questions.py`).

The other questions are not asked here: for a token only after a login, for an attestation only of
a client that offers it, and those of the first API in no thread of ours.
"""

import json
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from codexdrv.demo.script import CallTool, Reply, RunCommand, Step
from codexdrv.protocol.questions import DECLINED, POSTURES, No, Policy, answer
from codexdrv.wire.message import Request, encode
from tests.acceptance.binaries import by_version
from tests.acceptance.kit import Message, Rig, ServerError, Truth


ASK = "please"
MADE = "made"
"""The file that nobody makes after a no."""

PATCH = f"apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: {MADE}\n+new\n*** End Patch\nEOF"
CHOICE = {
    "id": "which",
    "header": "Which",
    "question": "Which one?",
    "options": [{"label": "this", "description": "a"}, {"label": "that", "description": "b"}],
}
TOOL = {"name": "look", "description": "Look.", "inputSchema": {"type": "object"}}

MCP_SERVER = """
import json, pathlib, sys

RESULTS = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "maker", "version": "0"},
    },
    "tools/list": {"tools": [{"name": "make", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": []},
}
for line in sys.stdin:
    call = json.loads(line)
    if call["method"] == "tools/call":
        pathlib.Path(sys.argv[1]).touch()
    if "id" in call:
        answer = {"jsonrpc": "2.0", "id": call["id"], "result": RESULTS.get(call["method"], {})}
        print(json.dumps(answer), flush=True)
"""


class Kind(NamedTuple):
    """A kind of question, and how the server is brought to ask it."""

    method: str
    step: Step
    #: What `thread/start` is told.
    params: Callable[[Rig], Message]
    #: What the model hears after a no.
    heard: str
    #: The server tells every client that the question is settled.
    is_resolved: bool = True


def without_sandbox(policy: str, **params: object) -> Callable[[Rig], Message]:
    return lambda _: {"approvalPolicy": policy, "sandbox": "danger-full-access", **params}


def with_feature(name: str) -> Callable[[Rig], Message]:
    features = {"features": {name: True}}
    return lambda _: {
        "approvalPolicy": "on-request",
        "sandbox": "workspace-write",
        "config": features,
    }


def with_maker(rig: Rig) -> Message:
    maker = {"command": sys.executable, "args": ["-c", MCP_SERVER, str(rig.cwd / MADE)]}
    config = {"mcp_servers": {"maker": maker}}
    return without_sandbox("on-request", config=config)(rig)


COMMAND = Kind(
    "item/commandExecution/requestApproval",
    RunCommand(f"touch {MADE}", then="done"),
    without_sandbox("untrusted"),
    "rejected by user",
)
FILE_CHANGE = Kind(
    "item/fileChange/requestApproval",
    RunCommand(PATCH, then="done"),
    without_sandbox("untrusted"),
    "patch rejected by user",
)
ELICITATION = Kind(
    "mcpServer/elicitation/request",
    CallTool("make", {}, then="done", namespace="mcp__maker"),
    with_maker,
    "user rejected MCP tool call",
)
PERMISSIONS = Kind(
    "item/permissions/requestApproval",
    CallTool("request_permissions", {"permissions": {"network": {"enabled": True}}}, then="done"),
    with_feature("request_permissions_tool"),
    '{"permissions":{"network":null,"file_system":null},"scope":"turn"}',
)
USER_INPUT = Kind(
    "item/tool/requestUserInput",
    CallTool("request_user_input", {"questions": [CHOICE]}, then="done"),
    with_feature("default_mode_request_user_input"),
    '{"answers":{}}',
)
TOOL_CALL = Kind(
    "item/tool/call",
    CallTool("look", {}, then="done"),
    without_sandbox("never", dynamicTools=[TOOL]),
    "No client is there to run this tool.",
    is_resolved=False,
)
KINDS = (COMMAND, FILE_CHANGE, ELICITATION, PERMISSIONS, USER_INPUT, TOOL_CALL)
MAKES = ((COMMAND, "decision"), (FILE_CHANGE, "decision"), (ELICITATION, "action"))
"""What makes the file after a yes, and the member that says it."""

ASKS_FOR_THE_TIME = {"0.144.5": True, "0.171.0": False}


def start_thread(rig: Rig, truth: Truth, params: Message) -> str:
    return str(truth.call("thread/start", cwd=str(rig.cwd), **params)["thread"]["id"])


def bring_to_ask(rig: Rig, truth: Truth, kind: Kind) -> tuple[str, str, Message]:
    """Start a turn that asks; return the thread, the turn and the question."""
    rig.model.script[ASK] = kind.step
    thread = start_thread(rig, truth, kind.params(rig))
    turn = truth.start_turn(thread, ASK)
    return thread, turn, truth.wait_for(lambda message: message["method"] == kind.method)


def decline(truth: Truth, asked: Message) -> None:
    request = Request(asked["id"], asked["method"], asked["params"])
    answered = answer(request, Policy.DECLINE)
    assert answered is not None
    truth._send(json.loads(encode(answered)))


def heard_by_the_model(rig: Rig, thread: str) -> list[str]:
    """Read the output of every call out of the thread's record."""
    (record,) = rig.home.glob(f"sessions/**/rollout-*{thread}*.jsonl")
    payloads = [json.loads(line)["payload"] for line in record.read_bytes().splitlines()]
    outputs = [each["output"] for each in payloads if each.get("type") == "function_call_output"]
    return [each if isinstance(each, str) else each[-1]["text"] for each in outputs]


def resolved(truth: Truth) -> list[int]:
    told = [each for each in truth.seen if each["method"] == "serverRequest/resolved"]
    return [each["params"]["requestId"] for each in told]


@pytest.mark.field_report("sortie#874", "obsidian-yolo#504")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.method)
def test_what_is_declined_is_not_done_and_the_turn_goes_on(rig: Rig, kind: Kind):
    truth = rig.truth()
    thread, turn, asked = bring_to_ask(rig, truth, kind)
    decline(truth, asked)
    ended = truth.wait_for_turn(turn)
    assert (ended["status"], ended["error"]) == ("completed", None)
    (heard,) = heard_by_the_model(rig, thread)
    assert kind.heard in heard
    assert list(rig.cwd.iterdir()) == []
    assert [each for each in truth.seen if "id" in each] == [asked]
    assert resolved(truth) == ([asked["id"]] if kind.is_resolved else [])


@pytest.mark.parametrize(("kind", "member"), MAKES, ids=lambda each: getattr(each, "method", ""))
def test_what_is_accepted_is_done(rig: Rig, kind: Kind, member: str):
    # Else the file that is not there would say nothing of a no.
    truth = rig.truth()
    _, turn, asked = bring_to_ask(rig, truth, kind)
    truth.answer(asked, {member: "accept"})
    assert truth.wait_for_turn(turn)["status"] == "completed"
    assert [path.name for path in rig.cwd.iterdir()] == [MADE]


@pytest.mark.parametrize("kind", [COMMAND, FILE_CHANGE], ids=lambda kind: kind.method)
def test_a_cancel_would_end_the_turn(rig: Rig, kind: Kind):
    truth = rig.truth()
    _, turn, asked = bring_to_ask(rig, truth, kind)
    truth.answer(asked, {"decision": "cancel"})
    assert truth.wait_for_turn(turn)["status"] == "interrupted"


def test_a_turn_that_wants_our_clock_fails_and_quotes_us(rig: Rig, version: str):
    rig.model.script[ASK] = Reply("done")
    clock = {"enabled": True, "clock_source": "external"}
    config = {"features": {"current_time_reminder": clock}}
    params = without_sandbox("never", config=config)(rig)
    truth = rig.truth()
    if not by_version(ASKS_FOR_THE_TIME, version):
        with pytest.raises(ServerError, match="no external current-time provider"):
            start_thread(rig, truth, params)
        return
    turn = truth.start_turn(start_thread(rig, truth, params), ASK)
    decline(truth, truth.wait_for(lambda message: message["method"] == "currentTime/read"))
    ended = truth.wait_for_turn(turn)
    refused = POSTURES["currentTime/read"].declines
    assert isinstance(refused, No)
    assert ended["status"] == "failed"
    assert f"code={DECLINED} message={refused.message}" in ended["error"]["message"]
