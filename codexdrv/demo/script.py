"""What the scripted model says to a prompt: steps in, server-sent events out, no I/O."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, assert_never

from codexdrv.errors import BadInput


COMPACTION = "<compaction>"
"""The script's key for the server's own request to summarise a thread."""

_COMPACTION_PROMPT = "You are performing a CONTEXT CHECKPOINT COMPACTION"
_INJECTED = (
    "<environment_context>\n",
    "<user_instructions>\n",
    "<turn_aborted>\n",
    "# AGENTS.md instructions",
    "Another language model started to solve this problem",
)
_USAGE = {
    "input_tokens": 1,
    "input_tokens_details": None,
    "output_tokens": 1,
    "output_tokens_details": None,
    "total_tokens": 2,
}


class Reply(NamedTuple):
    """Answer with a text."""

    text: str


class Hold(NamedTuple):
    """Open the answer, then wait at the gate of the user's text before the reply."""

    reply: str


class Stream(NamedTuple):
    """Answer with a text in pieces."""

    chunks: tuple[str, ...]


class RunCommand(NamedTuple):
    """Ask for a shell command; when its output comes back, answer with a text."""

    cmd: str
    then: str


class CallTool(NamedTuple):
    """Call a tool; when its output comes back, answer with a text."""

    name: str
    arguments: Mapping[str, Any]
    then: str
    #: Where the tool lives, if the server lists it inside a namespace.
    namespace: str | None = None


class Fail(NamedTuple):
    """Refuse to answer, in the API's own words."""

    code: str
    message: str = "The script says so."


class CutStream(NamedTuple):
    """Say this much of an answer, then close the connection."""

    after_text: str


class Large(NamedTuple):
    """Answer with a text of so many characters, in one piece."""

    characters: int


class Many(NamedTuple):
    """Answer with so many messages, each of them an item of the turn."""

    messages: int


Step = Reply | Hold | Stream | RunCommand | CallTool | Fail | CutStream | Large | Many


class Prompt(NamedTuple):
    """What one request showed the model."""

    #: The text of every user message in order, codex's own context among them.
    texts: tuple[str, ...]
    #: What the script is asked for: the last text that a user wrote, or COMPACTION.
    key: str
    #: The output of a command or a tool came after that text.
    command_ran: bool
    at: float


class Gate(NamedTuple):
    """In an answer: go on only when this text is released."""

    text: str


def read_prompt(body: Any, *, at: float) -> Prompt:
    """Read the body of a Responses API request.

    Raises:
        BadInput: it is no such body.
    """
    texts: list[str] = []
    key, command_ran = "", False
    try:
        for item in body["input"]:
            command_ran = command_ran or item["type"] == "function_call_output"
            for text in _user_texts(item):
                texts.append(text)
                if not text.startswith(_INJECTED):
                    key, command_ran = text, False
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInput(f"This is no Responses API request: {error!r}.") from error
    if key.startswith(_COMPACTION_PROMPT):
        key = COMPACTION
    return Prompt(tuple(texts), key, command_ran, at)


def answer(step: Step, prompt: Prompt, number: int) -> Iterator[bytes | Gate]:
    """Write the answer to a prompt, event by event; `number` makes its ids unique.

    An answer without `response.completed` or `response.failed` at its end is a cut one.
    """
    response = {"id": f"resp_{number}"}
    yield encode_event("response.created", response=response)
    match step:
        case Fail(code, message):
            error = {"code": code, "message": message}
            yield encode_event("response.failed", response={**response, "error": error})
            return
        case CutStream(after_text):
            yield _open_message(number)
            yield _delta(after_text, number)
            return
        case RunCommand(cmd, then) if not prompt.command_ran:
            yield _close_item(_call(CallTool("exec_command", {"cmd": cmd}, then), number))
        case CallTool() if not prompt.command_ran:
            yield _close_item(_call(step, number))
        case RunCommand(_, text) | CallTool(_, _, text) | Reply(text):
            yield from _message((text,), number)
        case Stream(chunks):
            yield from _message(chunks, number)
        case Large(characters):
            yield from _message(("x" * characters,), number)
        case Many(messages):
            yield from (_short_message(number, each) for each in range(messages))
        case Hold(reply):
            yield from _message((reply,), number, gate=Gate(prompt.key))
        case _:
            assert_never(step)
    yield encode_event("response.completed", response={**response, "usage": _USAGE})


def encode_event(kind: str, **fields: Any) -> bytes:
    """Write one server-sent event of the Responses API."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _user_texts(item: Any) -> list[str]:
    if item.get("role") != "user":
        return []
    return [part["text"] for part in item["content"] if part["type"] == "input_text"]


def _message(
    chunks: tuple[str, ...], number: int, *, gate: Gate | None = None
) -> Iterator[bytes | Gate]:
    yield _open_message(number)
    if gate is not None:
        yield gate
    for chunk in chunks:
        yield _delta(chunk, number)
    content = [{"type": "output_text", "text": "".join(chunks)}]
    yield _close_item(_message_item(number, content))


def _short_message(number: int, each: int) -> bytes:
    content = [{"type": "output_text", "text": f"message {each}"}]
    return _close_item(_message_item(number, content) | {"id": f"msg_{number}_{each}"})


def _open_message(number: int) -> bytes:
    item = _message_item(number, [])
    return encode_event("response.output_item.added", output_index=0, item=item)


def _message_item(number: int, content: list[dict[str, str]]) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": content}


def _delta(text: str, number: int) -> bytes:
    place = {"item_id": f"msg_{number}", "output_index": 0, "content_index": 0}
    return encode_event("response.output_text.delta", **place, delta=text)


def _call(step: CallTool, number: int) -> dict[str, Any]:
    place = {} if step.namespace is None else {"namespace": step.namespace}
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": step.name,
        "arguments": json.dumps(step.arguments),
        **place,
    }


def _close_item(item: dict[str, Any]) -> bytes:
    return encode_event("response.output_item.done", output_index=0, item=item)
