"""The script's pure half: which text a prompt asks about, and what each step says to it."""

import json
from typing import Any

import pytest

from codexdrv.demo.script import (
    COMPACTION,
    CallTool,
    CutStream,
    Fail,
    Gate,
    Hold,
    Large,
    Many,
    Prompt,
    Reply,
    RunCommand,
    Step,
    Stream,
    answer,
    read_prompt,
)
from codexdrv.errors import BadInput


CONTEXT = "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>"
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "hi"}


def user(*texts: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text} for text in texts]
    return {"type": "message", "role": "user", "content": content}


def prompt_of(*items: dict[str, Any]) -> Prompt:
    return read_prompt({"input": list(items)}, at=1.0)


def events(step: Step, prompt: Prompt) -> list[Any]:
    return [
        part if isinstance(part, Gate) else json.loads(part.partition(b"data: ")[2])
        for part in answer(step, prompt, 7)
    ]


def kinds(step: Step, prompt: Prompt) -> list[str]:
    return [
        "gate" if isinstance(event, Gate) else event["type"].removeprefix("response.")
        for event in events(step, prompt)
    ]


def test_the_last_text_of_a_user_is_the_key_and_all_texts_are_kept_in_order():
    prompt = prompt_of(user(CONTEXT), user("one"), user("two"))
    assert prompt == Prompt((CONTEXT, "one", "two"), "two", command_ran=False, at=1.0)


@pytest.mark.parametrize(
    "injected",
    [CONTEXT, "<turn_aborted>\nThe user interrupted", "# AGENTS.md instructions for /x"],
)
def test_what_codex_injects_after_a_text_does_not_hide_it(injected: str):
    assert prompt_of(user("one"), user(injected)).key == "one"


def test_a_users_own_text_may_look_like_context():
    text = "<environment_context>what is this?"
    assert prompt_of(user("one"), user(text)).key == text


def test_a_request_to_compact_has_a_key_of_its_own():
    text = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary."
    assert prompt_of(user("one"), user(text)).key == COMPACTION


def test_a_command_ran_only_if_its_output_follows_the_text():
    assert prompt_of(user("run"), OUTPUT).command_ran
    assert not prompt_of(user("run"), OUTPUT, user("run")).command_ran


@pytest.mark.parametrize("body", [[], {}, {"input": 3}, {"input": [{}]}, {"input": ["text"]}])
def test_a_body_that_is_no_request_is_refused(body: Any):
    with pytest.raises(BadInput):
        read_prompt(body, at=1.0)


MESSAGE = ["created", "output_item.added", "output_text.delta", "output_item.done", "completed"]
HELD = [*MESSAGE[:2], "gate", *MESSAGE[2:]]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Reply("a"), MESSAGE),
        (Large(3), MESSAGE),
        (Many(2), ["created", "output_item.done", "output_item.done", "completed"]),
        (Stream(("a", "b")), [*MESSAGE[:2], "output_text.delta", *MESSAGE[2:]]),
        (Hold("a"), HELD),
        (RunCommand("ls", then="a"), ["created", "output_item.done", "completed"]),
        (CallTool("look", {}, then="a"), ["created", "output_item.done", "completed"]),
        (Fail("code"), ["created", "failed"]),
        (CutStream("a"), MESSAGE[:3]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_step_has_its_events(step: Step, expected: list[str]):
    assert kinds(step, prompt_of(user("x"))) == expected


def test_a_gate_is_named_after_the_text():
    assert Gate("x") in events(Hold("a"), prompt_of(user("x")))


def test_a_command_that_ran_is_followed_by_a_reply():
    step = RunCommand("ls", then="a")
    assert kinds(step, prompt_of(user("x"), OUTPUT)) == MESSAGE
    asked = events(step, prompt_of(user("x")))[1]["item"]
    assert (asked["name"], json.loads(asked["arguments"])) == ("exec_command", {"cmd": "ls"})


@pytest.mark.parametrize("namespace", [None, "mcp__s"])
def test_a_tool_that_was_called_is_followed_by_a_reply(namespace: str | None):
    step = CallTool("look", {"at": 1}, then="a", namespace=namespace)
    assert kinds(step, prompt_of(user("x"), OUTPUT)) == MESSAGE
    asked = events(step, prompt_of(user("x")))[1]["item"]
    assert (asked["name"], json.loads(asked["arguments"])) == ("look", {"at": 1})
    assert asked.get("namespace", None) == namespace
