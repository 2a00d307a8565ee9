"""The lines of a rollout file, the server's own record of a thread.

Each input leaves a pair of lines: a `response_item` and then an `event_msg` that carries our id
(WIRE-FACTS, "The record"). Only top-level lines count: a `compacted` line repeats old texts.
"""

from typing import Any

import orjson

from codexdrv.ids import TurnId
from codexdrv.protocol.events import UserMessage


def read_record_line(line: bytes) -> UserMessage | None:
    """Read the user message that a line records with its client id, if it is such a line.

    A line that is no JSON object is no evidence of anything: the last one may be cut.
    """
    if b"client_id" not in line:
        return None
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    payload = row.get("payload") if isinstance(row, dict) else None
    if not isinstance(payload, dict) or row.get("type") != "event_msg":
        return None
    match payload.get("type"):
        case "item_completed":
            return _paginated(payload)
        case "user_message":
            return _legacy(payload)
        case _:
            return None


def _paginated(payload: dict[str, Any]) -> UserMessage | None:
    item = payload.get("item")
    if not isinstance(item, dict) or item.get("type") != "UserMessage":
        return None
    client_id, turn, parts = item.get("client_id"), payload.get("turn_id"), item.get("content")
    if not isinstance(client_id, str) or not isinstance(parts, list):
        return None
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return UserMessage(
        TurnId(str(turn or "")), client_id, "".join(text for text in texts if isinstance(text, str))
    )


def _legacy(payload: dict[str, Any]) -> UserMessage | None:
    client_id, text = payload.get("client_id"), payload.get("message")
    if not isinstance(client_id, str) or not isinstance(text, str):
        return None
    return UserMessage(TurnId(str(payload.get("turn_id") or "")), client_id, text)
