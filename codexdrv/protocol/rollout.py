"""The lines of a rollout file, the server's own record of a thread.

Each input leaves a pair of lines: a `response_item`, which is what the model sees, and then an
`event_msg` that carries our id (WIRE-FACTS, "The record"). Only top-level lines count: a
`compacted` line repeats old texts.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from codexdrv.ids import TurnId
from codexdrv.protocol.events import UserMessage


class ModelInput(NamedTuple):
    """The first line of a pair: what the model sees of an input; it carries no client id."""

    #: None if the line names none.
    turn: TurnId | None
    #: All text parts, joined.
    text: str


Trace = ModelInput | UserMessage
"""What an input leaves in the record; the turn of a `UserMessage` is empty where none is named."""

_WORD, _ITEM = b'"user', b'"UserMessage"'
"""A line of a pair has one of them: it says `user`, `user_message` or `UserMessage`. Within a text
the quote would be written with a backslash."""
_BEGIN = '{"timestamp":'
"""How every version begins a line; within a text it would be written with backslashes."""
_PIECES_MAX = 64
"""Each kill or full disk adds one piece to a line; noise must not cost the square of its length."""


def read_traces(line: bytes) -> list[Trace]:
    """Read what a line tells of users' inputs: nothing, as a rule, or one half of a pair.

    It may be more. A server that was killed, or whose disk was full, can leave a line without
    its end, and 0.144.5 goes on right behind it: each object that is whole in there counts.
    """
    if _WORD not in line and _ITEM not in line:
        return []
    row = _load(line)
    rows = _load_each(line.decode(errors="replace")) if row is None else [row]
    return [trace for trace in map(_read_trace, rows) if trace is not None]


def read_record_line(line: bytes) -> UserMessage | None:
    """Read the user message that a line records with its client id, if it is such a line.

    A line that is no JSON object is no evidence of anything: the last one may be cut.
    """
    if b"client_id" not in line:
        return None
    trace = _read_trace(_load(line))
    return trace if isinstance(trace, UserMessage) and trace.client_id is not None else None


def _load(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _load_each(text: str) -> Iterator[Any]:
    """Find the objects that are whole in what is no JSON text as a whole."""
    decode = json.JSONDecoder().raw_decode
    place = text.find(_BEGIN)
    for _ in range(_PIECES_MAX):
        if place < 0:
            return
        try:
            row, end = decode(text, place)
        except (ValueError, RecursionError):
            # Cut; the next one may look like a member of it.
            end = place + len(_BEGIN)
        else:
            yield row
        place = text.find(_BEGIN, end)


def _read_trace(row: Any) -> Trace | None:
    payload = row.get("payload") if isinstance(row, dict) else None
    if not isinstance(payload, dict):
        return None
    match row.get("type"), payload.get("type"):
        case "response_item", "message":
            return _model_input(payload)
        case "event_msg", "item_completed":
            return _paginated(payload)
        case "event_msg", "user_message":
            return _legacy(payload)
        case _:
            return None


def _model_input(payload: dict[str, Any]) -> ModelInput | None:
    text = _text(payload.get("content"))
    if payload.get("role") != "user" or text is None:
        return None
    more = payload.get("internal_chat_message_metadata_passthrough")
    turn = more.get("turn_id") if isinstance(more, dict) else None
    return ModelInput(TurnId(turn) if isinstance(turn, str) else None, text)


def _paginated(payload: dict[str, Any]) -> UserMessage | None:
    item = payload.get("item")
    if not isinstance(item, dict) or item.get("type") != "UserMessage":
        return None
    text = _text(item.get("content"))
    return None if text is None else UserMessage(_turn(payload), _client_id(item), text)


def _legacy(payload: dict[str, Any]) -> UserMessage | None:
    text = payload.get("message")
    if not isinstance(text, str):
        return None
    return UserMessage(_turn(payload), _client_id(payload), text)


def _turn(payload: dict[str, Any]) -> TurnId:
    return TurnId(str(payload.get("turn_id") or ""))


def _client_id(holder: dict[str, Any]) -> str | None:
    client_id = holder.get("client_id")
    return client_id if isinstance(client_id, str) else None


def _text(parts: Any) -> str | None:
    """Join the text parts as the server does: with nothing between, and without the others."""
    if not isinstance(parts, list):
        return None
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))
