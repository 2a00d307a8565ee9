"""The requests that we send: their names, their params, and what we read of their results.

Everything here exists in the server's own schema (`codex app-server generate-json-schema
--experimental`). What we do not know in a result we ignore; what we need and is missing is
`MalformedMessage`.
"""

from typing import Any, NamedTuple

from codexdrv.errors import MalformedMessage
from codexdrv.ids import NIL_TURN, DeliveryId, ThreadId, TurnId
from codexdrv.protocol.events import (
    ThreadStatus,
    TurnStatus,
    UserMessage,
    read_status,
    read_turn_status,
    read_user_message,
)


ANSWER_TIMEOUT_S = 30.0
"""Ordinary answers take milliseconds; a server that is that late is stuck or swapped out."""
RESUME_TIMEOUT_S = 60.0
"""A resume reads the rollout from disk; long threads take seconds."""
INTERRUPT_TIMEOUT_S = 5.0
"""Some versions never answer an interrupt that finds nothing (WIRE-FACTS, "Turns")."""
READ_TIMEOUT_S = 10.0
"""A read is repeated anyway; waiting longer only delays the next one."""

PAGE_ITEMS = 50
"""Items of the newest page: 65 KiB, 3 to 7 ms (DESIGN.md, "Speed and cost")."""
PAGE_TURNS = 2
"""Turns of the newest page where items cannot be listed: the running one and the one before."""

PAGE_STATUSES = 50
"""A turn that we wait for is nearly always among the newest; ids alone are cheap."""

OPT_OUT = (
    "command/exec/outputDelta",
    "item/agentMessage/delta",
    "item/commandExecution/outputDelta",
    "item/fileChange/outputDelta",
    "item/fileChange/patchUpdated",
    "item/plan/delta",
    "item/reasoning/summaryPartAdded",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta",
    "process/outputDelta",
    "turn/diff/updated",
)
"""Notifications that we never use; without them an idle supervisor stays idle in a busy turn."""


class Call(NamedTuple):
    """One request before it has an id."""

    method: str
    params: dict[str, Any]
    #: Seconds until the caller gives up; the answer may still come.
    timeout_s: float = ANSWER_TIMEOUT_S


def initialize(name: str, version: str) -> Call:
    """Open a generation; without `experimentalApi` older servers refuse what we need."""
    return Call(
        "initialize",
        {
            "clientInfo": {"name": name, "title": name, "version": version},
            "capabilities": {
                "experimentalApi": True,
                "optOutNotificationMethods": list(OPT_OUT),
            },
        },
    )


def start_turn(thread: ThreadId, delivery: DeliveryId, text: str) -> Call:
    """Put an input into a quiet thread."""
    return Call(
        "turn/start",
        {"threadId": thread, "clientUserMessageId": delivery, "input": _input(text)},
    )


def steer_turn(thread: ThreadId, turn: TurnId, delivery: DeliveryId, text: str) -> Call:
    """Put an input into the turn that runs, if it is this one."""
    return Call(
        "turn/steer",
        {
            "threadId": thread,
            "expectedTurnId": turn,
            "clientUserMessageId": delivery,
            "input": _input(text),
        },
    )


def interrupt_turn(thread: ThreadId, turn: TurnId) -> Call:
    """End the turn that runs, if it is this one."""
    return Call("turn/interrupt", {"threadId": thread, "turnId": turn}, INTERRUPT_TIMEOUT_S)


def fence(thread: ThreadId, turn: TurnId = NIL_TURN) -> Call:
    """Ask what the session does, or whether a turn takes input; changes nothing (WIRE-FACTS)."""
    params = {"threadId": thread, "expectedTurnId": turn, "input": []}
    return Call("turn/steer", params, READ_TIMEOUT_S)


def resume_thread(thread: ThreadId) -> Call:
    """Load and subscribe, with no override: sandbox and approvals stay the thread's own."""
    return Call("thread/resume", {"threadId": thread, "excludeTurns": True}, RESUME_TIMEOUT_S)


def read_thread(thread: ThreadId, *, with_turns: bool = False) -> Call:
    """Read a thread, loaded or not; with all its turns only where nothing else lists them."""
    return Call("thread/read", {"threadId": thread, "includeTurns": with_turns}, READ_TIMEOUT_S)


def list_items(thread: ThreadId, limit: int = PAGE_ITEMS) -> Call:
    """Read the newest page of items, newest first."""
    return Call("thread/items/list", _newest_first(thread, limit), READ_TIMEOUT_S)


def list_turns(thread: ThreadId, limit: int = PAGE_TURNS) -> Call:
    """Read the newest turns in full: the default view hides steered messages."""
    params = _newest_first(thread, limit) | {"itemsView": "full"}
    return Call("thread/turns/list", params, READ_TIMEOUT_S)


def list_turn_statuses(thread: ThreadId, cursor: str | None = None) -> Call:
    """Read the ids and statuses of a page of turns, newest first, without their items."""
    return Call(
        "thread/turns/list",
        _newest_first(thread, PAGE_STATUSES) | {"cursor": cursor, "itemsView": "notLoaded"},
        READ_TIMEOUT_S,
    )


def unsubscribe(thread: ThreadId) -> Call:
    """Stop listening to a thread; the server may unload it then."""
    return Call("thread/unsubscribe", {"threadId": thread})


def list_loaded() -> Call:
    """Ask for any sign of life; the server reads no file and no database for it."""
    return Call("thread/loaded/list", {"limit": 1}, READ_TIMEOUT_S)


def list_threads(cursor: str | None, limit: int) -> Call:
    """Read one page of the server's threads, newest first."""
    return Call("thread/list", {"cursor": cursor, "limit": limit}, READ_TIMEOUT_S)


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


class Page(NamedTuple):
    """User messages that history shows, newest first, and the newest turn."""

    messages: tuple[UserMessage, ...]
    newest: TurnId | None


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
    cursor = answer.get("nextCursor")
    views = [_thread_view(thread) for thread in _list(answer.get("data"), "thread/list")]
    return views, cursor if isinstance(cursor, str) else None


def read_items(result: Any) -> Page:
    """Read a page of `thread/items/list`."""
    rows = _list(_object(result, "thread/items/list").get("data"), "thread/items/list")
    messages = []
    newest = None
    for row in rows:
        turn = row.get("turnId") if isinstance(row, dict) else None
        if not isinstance(turn, str):
            raise MalformedMessage("A row of thread/items/list names no turn.")
        newest = newest or TurnId(turn)
        message = read_user_message(row.get("item"), TurnId(turn))
        if message is not None:
            messages.append(message)
    return Page(tuple(messages), newest)


def read_turns(result: Any) -> Page:
    """Read a page of `thread/turns/list`, newest turn first."""
    return _turns_page(_list(_object(result, "thread/turns/list").get("data"), "turns"))


def read_all_turns(result: Any) -> Page:
    """Read the turns of `thread/read`, which come oldest first."""
    thread = _object(_object(result, "thread/read").get("thread"), "thread/read")
    return _turns_page(_list(thread.get("turns"), "turns")[::-1])


def read_turn_statuses(result: Any) -> tuple[dict[TurnId, TurnStatus], str | None]:
    """Read how the turns of a `thread/turns/list` page stand, and the cursor of the next one."""
    answer = _object(result, "thread/turns/list")
    turns = _list(answer.get("data"), "turns")
    cursor = answer.get("nextCursor")
    statuses = {_turn_id(turn): read_turn_status(turn.get("status")) for turn in turns}
    return statuses, cursor if isinstance(cursor, str) else None


def _turns_page(turns: list[Any]) -> Page:
    messages: list[UserMessage] = []
    for turn in turns:
        identity = _turn_id(turn)
        items = _list(turn.get("items"), "turn")
        found = (read_user_message(item, identity) for item in reversed(items))
        messages += [message for message in found if message is not None]
    return Page(tuple(messages), _turn_id(turns[0]) if turns else None)


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
    )


def _newest_first(thread: ThreadId, limit: int) -> dict[str, Any]:
    return {"threadId": thread, "sortDirection": "desc", "limit": limit}


def _input(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedMessage(f"The answer about {what} is no object.")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedMessage(f"The answer about {what} has no list.")
    return value
