"""The requests that we send: their names and their params; `results` reads what comes back.

Everything here exists in the server's own schema (`codex app-server generate-json-schema
--experimental`).
"""

from typing import Any, NamedTuple

from codexdrv.ids import NIL_TURN, DeliveryId, ThreadId, TurnId


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


def show_turn(thread: ThreadId) -> Call:
    """Resume what is resumed, and be shown its newest turn with all its items.

    From the server's memory: no list shows, on every version, an item that has not ended.
    """
    page = {"limit": 1, "sortDirection": "desc", "itemsView": "full"}
    params = {"threadId": thread, "excludeTurns": True, "initialTurnsPage": page}
    return Call("thread/resume", params, RESUME_TIMEOUT_S)


def read_thread(thread: ThreadId, *, with_turns: bool = False) -> Call:
    """Read a thread, loaded or not; with all its turns only where nothing else lists them."""
    return Call("thread/read", {"threadId": thread, "includeTurns": with_turns}, READ_TIMEOUT_S)


def list_items(thread: ThreadId, limit: int = PAGE_ITEMS, *, cursor: str | None = None) -> Call:
    """Read a page of items, newest first."""
    return Call("thread/items/list", _newest_first(thread, limit, cursor), READ_TIMEOUT_S)


def list_turns(thread: ThreadId, limit: int = PAGE_TURNS, *, cursor: str | None = None) -> Call:
    """Read a page of turns in full, newest first: the default view hides steered messages."""
    params = _newest_first(thread, limit, cursor) | {"itemsView": "full"}
    return Call("thread/turns/list", params, READ_TIMEOUT_S)


def list_turn_statuses(thread: ThreadId, cursor: str | None = None) -> Call:
    """Read the ids and statuses of a page of turns, newest first, without their items."""
    return Call(
        "thread/turns/list",
        _newest_first(thread, PAGE_STATUSES, cursor) | {"itemsView": "notLoaded"},
        READ_TIMEOUT_S,
    )


def unsubscribe(thread: ThreadId) -> Call:
    """Stop listening to a thread; the server may unload it then."""
    return Call("thread/unsubscribe", {"threadId": thread})


def list_loaded(cursor: str | None = None, limit: int = 1) -> Call:
    """Read ids of threads that are loaded; the server reads no file and no database for it."""
    return Call("thread/loaded/list", {"cursor": cursor, "limit": limit}, READ_TIMEOUT_S)


def list_threads(cursor: str | None, limit: int) -> Call:
    """Read one page of the server's threads, newest first."""
    return Call("thread/list", {"cursor": cursor, "limit": limit}, READ_TIMEOUT_S)


def _newest_first(thread: ThreadId, limit: int, cursor: str | None = None) -> dict[str, Any]:
    return {"threadId": thread, "sortDirection": "desc", "limit": limit, "cursor": cursor}


def _input(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
