"""What the server tells by itself: notifications in, typed events out.

An unknown notification, item, status or field never stops us (it becomes `Unrecognized`, or a
member that says "other"); a known one without what it must have is `MalformedMessage`.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from codexdrv.errors import MalformedMessage
from codexdrv.ids import ThreadId, TurnId
from codexdrv.wire.message import Notification


Word = TypeVar("Word", bound=StrEnum)


class ThreadStatus(StrEnum):
    """The server's word for a thread's state; it lags (WIRE-FACTS, "Status lags")."""

    #: Nothing was said yet, or a word that we do not know.
    UNKNOWN = "unknown"
    NOT_LOADED = "notLoaded"
    IDLE = "idle"
    ACTIVE = "active"
    #: The last turn failed; the next `turn/start` works.
    SYSTEM_ERROR = "systemError"


class TurnStatus(StrEnum):
    """How a turn stands or ended."""

    IN_PROGRESS = "inProgress"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    #: A word that we do not know.
    OTHER = "other"


class ItemKind(StrEnum):
    """The items that decide something for us."""

    USER_MESSAGE = "userMessage"
    AGENT_MESSAGE = "agentMessage"
    CONTEXT_COMPACTION = "contextCompaction"
    ENTERED_REVIEW = "enteredReviewMode"
    EXITED_REVIEW = "exitedReviewMode"
    #: Anything else.
    OTHER = "other"


class UserMessage(NamedTuple):
    """An input that the server put into a turn."""

    turn: TurnId
    #: The `clientUserMessageId` of the request that brought it; None if it named none.
    client_id: str | None
    #: All text parts, joined.
    text: str


class StatusChanged(NamedTuple):
    """`thread/status/changed`, or the status that `thread/started` brings."""

    thread: ThreadId
    status: ThreadStatus
    #: An approval or a question is open.
    waiting: bool


class ThreadClosed(NamedTuple):
    """The server unloaded the thread; nothing is subscribed to it any more."""

    thread: ThreadId


class ThreadMoved(NamedTuple):
    """Archived, deleted or reverted: what we know of the thread is no longer so."""

    thread: ThreadId


class TurnStarted(NamedTuple):
    """A turn runs."""

    thread: ThreadId
    turn: TurnId


class TurnEnded(NamedTuple):
    """A turn ended: by `turn/completed`, or by an `error` that will not be retried."""

    thread: ThreadId
    turn: TurnId
    status: TurnStatus


class ItemStarted(NamedTuple):
    """An item begins; for a user message this proves nothing yet."""

    thread: ThreadId
    turn: TurnId
    kind: ItemKind


class ItemCompleted(NamedTuple):
    """An item is whole; for a user message with our id: surfaced."""

    thread: ThreadId
    turn: TurnId
    kind: ItemKind
    #: The user's or the agent's text; empty for other kinds.
    text: str
    client_id: str | None


class Warned(NamedTuple):
    """The server warned; about a thread, if it said which."""

    thread: ThreadId | None
    message: str


class Unrecognized(NamedTuple):
    """A notification that decides nothing for us."""

    method: str


Event = (
    StatusChanged
    | ThreadClosed
    | ThreadMoved
    | TurnStarted
    | TurnEnded
    | ItemStarted
    | ItemCompleted
    | Warned
    | Unrecognized
)
"""Any of the above."""


def translate(news: Notification) -> Event:
    """Read a notification.

    Raises:
        MalformedMessage: a known one lacks what it must have.
    """
    read = READERS.get(news.method)
    return read(news.params) if read else Unrecognized(news.method)


def read_status(value: Any) -> ThreadStatus:
    """Read a thread's `status` object."""
    word = value.get("type") if isinstance(value, dict) else None
    return _member(ThreadStatus, word, ThreadStatus.UNKNOWN)


def read_waiting(status: Any) -> bool:
    """Say whether a thread's `status` object says that an approval or a question is open."""
    flags = status.get("activeFlags") if isinstance(status, dict) else None
    return isinstance(flags, list) and any(str(flag).startswith("waitingOn") for flag in flags)


def read_turn_status(value: Any) -> TurnStatus:
    """Read a turn's `status`."""
    return _member(TurnStatus, value, TurnStatus.OTHER)


def read_user_message(item: Any, turn: TurnId) -> UserMessage | None:
    """Read an item of history, if it is a user message; one that is missing proves no absence."""
    if not isinstance(item, dict):
        raise MalformedMessage("An item of history is no object.")
    if item.get("type") != ItemKind.USER_MESSAGE:
        return None
    return UserMessage(turn, _client_id(item), _text(item))


def _read_status_changed(params: dict[str, Any]) -> Event:
    status = params.get("status")
    return StatusChanged(_thread(params), read_status(status), read_waiting(status))


def _read_thread_started(params: dict[str, Any]) -> Event:
    thread = params.get("thread")
    if not isinstance(thread, dict) or not isinstance(thread.get("id"), str):
        raise MalformedMessage("thread/started names no thread.")
    status = thread.get("status")
    return StatusChanged(ThreadId(thread["id"]), read_status(status), read_waiting(status))


def _read_turn_started(params: dict[str, Any]) -> Event:
    return TurnStarted(_thread(params), _turn(params))


def _read_turn_completed(params: dict[str, Any]) -> Event:
    turn = _turn(params)
    return TurnEnded(_thread(params), turn, read_turn_status(params["turn"].get("status")))


def _read_error(params: dict[str, Any]) -> Event:
    # willRetry true is progress: "Reconnecting… 1/5" is no failure (FIELD-REPORTS, centaur#1363).
    if params.get("willRetry") is not False or "turnId" not in params:
        return Unrecognized("error")
    return TurnEnded(_thread(params), _named_turn(params), TurnStatus.FAILED)


def _read_item_started(params: dict[str, Any]) -> Event:
    return ItemStarted(_thread(params), _named_turn(params), _kind(params))


def _read_item_completed(params: dict[str, Any]) -> Event:
    kind = _kind(params)
    item = params["item"]
    text = ""
    if kind is ItemKind.USER_MESSAGE:
        text = _text(item)
    elif kind is ItemKind.AGENT_MESSAGE:
        text = str(item.get("text") or "")
    return ItemCompleted(_thread(params), _named_turn(params), kind, text, _client_id(item))


def _read_warning(params: dict[str, Any]) -> Event:
    thread = params.get("threadId")
    named = ThreadId(thread) if isinstance(thread, str) else None
    return Warned(named, str(params.get("message") or ""))


def _read_thread_moved(params: dict[str, Any]) -> Event:
    return ThreadMoved(_thread(params))


READERS: dict[str, Callable[[dict[str, Any]], Event]] = {
    "error": _read_error,
    "item/completed": _read_item_completed,
    "item/started": _read_item_started,
    "thread/archived": _read_thread_moved,
    "thread/closed": lambda params: ThreadClosed(_thread(params)),
    "thread/deleted": _read_thread_moved,
    "thread/reverted": _read_thread_moved,
    "thread/started": _read_thread_started,
    "thread/status/changed": _read_status_changed,
    "thread/unarchived": _read_thread_moved,
    "turn/completed": _read_turn_completed,
    "turn/started": _read_turn_started,
    "warning": _read_warning,
}
"""Method → how to read it; everything else is `Unrecognized`."""


def _thread(params: dict[str, Any]) -> ThreadId:
    thread = params.get("threadId")
    if not isinstance(thread, str):
        raise MalformedMessage("A notification about a thread names no threadId.")
    return ThreadId(thread)


def _turn(params: dict[str, Any]) -> TurnId:
    turn = params.get("turn")
    if not isinstance(turn, dict) or not isinstance(turn.get("id"), str):
        raise MalformedMessage("A notification about a turn names no turn.")
    return TurnId(turn["id"])


def _named_turn(params: dict[str, Any]) -> TurnId:
    turn = params.get("turnId")
    if not isinstance(turn, str):
        raise MalformedMessage("A notification about an item names no turnId.")
    return TurnId(turn)


def _kind(params: dict[str, Any]) -> ItemKind:
    item = params.get("item")
    if not isinstance(item, dict):
        raise MalformedMessage("A notification about an item has no item.")
    return _member(ItemKind, item.get("type"), ItemKind.OTHER)


def _client_id(item: dict[str, Any]) -> str | None:
    client_id = item.get("clientId")
    return client_id if isinstance(client_id, str) else None


def _text(item: dict[str, Any]) -> str:
    parts = item.get("content")
    if not isinstance(parts, list):
        raise MalformedMessage("A user message has no content.")
    return "".join(
        part["text"]
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    )


def _member(words: type[Word], value: Any, otherwise: Word) -> Word:
    return next((word for word in words if word == value), otherwise)
