"""What we read of the results of our requests.

What we do not know in a result we ignore; what we need and is missing is `MalformedMessage`.
"""

from typing import Any, NamedTuple

from codexdrv.errors import MalformedMessage
from codexdrv.ids import ThreadId, TurnId
from codexdrv.protocol.events import (
    ThreadStatus,
    TurnStatus,
    UserMessage,
    read_status,
    read_turn_status,
    read_user_message,
    read_waiting,
)


class Greeting(NamedTuple):
    """What a server says of itself when it is greeted."""

    user_agent: str
    codex_home: str | None


class ThreadView(NamedTuple):
    """A thread as a response shows it."""

    id: ThreadId
    status: ThreadStatus
    #: Where its rollout file is; None for an ephemeral thread.
    path: str | None
    cwd: str
    preview: str
    #: An approval or a question is open.
    waiting: bool = False


class Page(NamedTuple):
    """User messages that history shows, newest first, and the newest turn."""

    messages: tuple[UserMessage, ...]
    newest: TurnId | None
    #: All turns of which it shows something, newest first.
    turns: tuple[TurnId, ...] = ()
    #: Where the next page begins; None: there is none.
    cursor: str | None = None


def read_greeting(result: Any) -> Greeting:
    """Read the answer to `initialize`."""
    home = _object(result, "initialize").get("codexHome")
    agent = result.get("userAgent")
    if not isinstance(agent, str):
        raise MalformedMessage("The answer to initialize names no userAgent.")
    return Greeting(agent, home if isinstance(home, str) else None)


def read_started_turn(result: Any) -> TurnId:
    """Read the turn id that `turn/start` or `turn/steer` answered; it is a hint, not a proof."""
    answer = _object(result, "turn/start")
    turn = answer.get("turn")
    found = turn.get("id") if isinstance(turn, dict) else answer.get("turnId")
    if not isinstance(found, str):
        raise MalformedMessage("The answer to turn/start or turn/steer names no turn.")
    return TurnId(found)


def read_thread_view(result: Any) -> ThreadView:
    """Read the thread in an answer to `thread/resume` or `thread/read`."""
    return _thread_view(_object(result, "thread/read").get("thread"))


def read_thread_list(result: Any) -> tuple[list[ThreadView], str | None]:
    """Read a page of `thread/list` and the cursor of the next one."""
    answer = _object(result, "thread/list")
    views = [_thread_view(thread) for thread in _list(answer.get("data"), "thread/list")]
    return views, _cursor(answer)


def read_loaded(result: Any) -> tuple[list[ThreadId], str | None]:
    """Read a page of `thread/loaded/list` and the cursor of the next one."""
    answer = _object(result, "thread/loaded/list")
    found = _list(answer.get("data"), "thread/loaded/list")
    return [ThreadId(each) for each in found if isinstance(each, str)], _cursor(answer)


def read_items(result: Any) -> Page:
    """Read a page of `thread/items/list`."""
    answer = _object(result, "thread/items/list")
    messages = []
    turns = []
    for row in _list(answer.get("data"), "thread/items/list"):
        turn = row.get("turnId") if isinstance(row, dict) else None
        if not isinstance(turn, str):
            raise MalformedMessage("A row of thread/items/list names no turn.")
        turns.append(TurnId(turn))
        message = read_user_message(row.get("item"), TurnId(turn))
        if message is not None:
            messages.append(message)
    return _page(messages, turns, answer)


def read_turns(result: Any) -> Page:
    """Read a page of `thread/turns/list`, newest turn first."""
    answer = _object(result, "thread/turns/list")
    return _turns_page(_list(answer.get("data"), "turns"), answer)


def read_all_turns(result: Any) -> Page:
    """Read the turns of `thread/read`, which come oldest first."""
    thread = _object(_object(result, "thread/read").get("thread"), "thread/read")
    return _turns_page(_list(thread.get("turns"), "turns")[::-1], {})


def read_turn_statuses(result: Any) -> tuple[dict[TurnId, TurnStatus], str | None]:
    """Read how the turns of a `thread/turns/list` page stand, and the cursor of the next one."""
    answer = _object(result, "thread/turns/list")
    turns = _list(answer.get("data"), "turns")
    statuses = {_turn_id(turn): read_turn_status(turn.get("status")) for turn in turns}
    return statuses, _cursor(answer)


def _turns_page(turns: list[Any], answer: dict[str, Any]) -> Page:
    messages: list[UserMessage] = []
    for turn in turns:
        identity = _turn_id(turn)
        items = _list(turn.get("items"), "turn")
        found = (read_user_message(item, identity) for item in reversed(items))
        messages += [message for message in found if message is not None]
    return _page(messages, list(map(_turn_id, turns)), answer)


def _page(messages: list[UserMessage], turns: list[TurnId], answer: dict[str, Any]) -> Page:
    each_once = tuple(dict.fromkeys(turns))
    newest = each_once[0] if each_once else None
    return Page(tuple(messages), newest, each_once, _cursor(answer))


def _cursor(answer: dict[str, Any]) -> str | None:
    cursor = answer.get("nextCursor")
    return cursor if isinstance(cursor, str) else None


def _turn_id(turn: Any) -> TurnId:
    identity = turn.get("id") if isinstance(turn, dict) else None
    if not isinstance(identity, str):
        raise MalformedMessage("A turn in history has no id.")
    return TurnId(identity)


def _thread_view(thread: Any) -> ThreadView:
    found = _object(thread, "a thread")
    identity, path = found.get("id"), found.get("path")
    if not isinstance(identity, str):
        raise MalformedMessage("A thread in an answer has no id.")
    return ThreadView(
        ThreadId(identity),
        read_status(found.get("status")),
        path if isinstance(path, str) and not found.get("ephemeral") else None,
        str(found.get("cwd") or ""),
        str(found.get("preview") or ""),
        read_waiting(found.get("status")),
    )


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedMessage(f"The answer about {what} is no object.")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedMessage(f"The answer about {what} has no list.")
    return value
