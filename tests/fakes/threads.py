"""What the fake server keeps of a thread, in the shapes and the record lines of the real one."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from pathlib import Path


_numbers = [count(1)]


def mint():
    """Make an id that looks like the server's, greater than those before it."""
    return f"01a22d0b-0000-7000-8000-{next(_numbers[0]):012x}"


def begin_ids_anew():
    """Make the same ids as a process that has just begun, so that a run can be repeated."""
    _numbers[0] = count(1)


class Kind(StrEnum):
    REGULAR = "regular"
    COMPACT = "compact"
    REVIEW = "review"


@dataclass(eq=False)
class FakeTurn:
    id: str = field(default_factory=mint)
    kind: Kind = Kind.REGULAR
    status: str = "inProgress"
    items: list = field(default_factory=list)
    #: Steers that are answered and not yet in the turn; lost if it ends first.
    steers: list = field(default_factory=list)
    #: It runs, and only the session's own queue knows: WIRE-FACTS, "Status lags".
    is_hidden: bool = False

    def shape(self, view="notLoaded", unseen=frozenset()):
        items = [item for item in self.items if item["id"] not in unseen] if view == "full" else []
        return {
            "id": self.id,
            "rootTurnId": self.id,
            "items": items,
            "itemsView": view,
            "status": "interrupted" if self.is_hidden else self.status,
            "error": None,
        }


@dataclass(eq=False)
class FakeThread:
    """A thread, and how it is to behave from now on; a test changes the flags as it goes."""

    id: str
    path: Path
    turns: list[FakeTurn] = field(default_factory=list)
    subscribers: set = field(default_factory=set)
    is_loaded: bool = True
    is_ephemeral: bool = False
    is_archived: bool = False
    #: Another server process holds it.
    is_held_elsewhere: bool = False
    #: Turns run until the test ends them; else each ends at once.
    holds_turns: bool = False
    #: Steers are answered, and become items when the test says so.
    holds_steers: bool = False
    #: A prompt hook blocks: the turn comes and goes without the message.
    blocks_input: bool = False
    #: As with a full disk: shown, and not written.
    writes_record: bool = True
    #: Nobody is told of turns and items.
    is_mute: bool = False
    #: Made by 0.144.5: its record names no turns, and its items cannot be listed.
    is_legacy: bool = False
    #: Read cold after a kill, it lacks what was recorded last: WIRE-FACTS, "Cold reads are stale".
    lags_cold: bool = False
    #: What it says that its turn waits for.
    flags: tuple[str, ...] = ()
    #: Items that cold reads lack.
    unseen: set = field(default_factory=set)
    #: Shown, and not written yet; with their turns.
    unsaved: list = field(default_factory=list)

    @property
    def running(self) -> FakeTurn | None:
        return next((turn for turn in self.turns if turn.status == "inProgress"), None)

    @property
    def status(self):
        if not self.is_loaded:
            return {"type": "notLoaded"}
        is_active = self.running is not None and not self.running.is_hidden
        return {"type": "active", "activeFlags": [*self.flags]} if is_active else {"type": "idle"}

    @property
    def messages(self) -> list[tuple[str | None, str]]:
        """Every user message that is in a turn: client id and text, oldest first."""
        items = (item for turn in self.turns for item in turn.items)
        return [
            (item["clientId"], text_of(item)) for item in items if item["type"] == "userMessage"
        ]

    def shape(self, turns=()):
        return {
            "id": self.id,
            "preview": "",
            "ephemeral": self.is_ephemeral,
            "historyMode": "paginated",
            "status": self.status,
            "path": None if self.is_ephemeral else str(self.path),
            "cwd": str(self.path.parent),
            "turns": list(turns),
        }

    def rows(self) -> Iterator[dict]:
        """Walk the items as `thread/items/list` shows them, newest first."""
        for turn in reversed(self.turns):
            for item in reversed(turn.items):
                if item["id"] not in self.unseen:
                    yield {"turnId": turn.id, "item": item}

    def record(self, turn: FakeTurn, item: dict) -> None:
        """Write the pair of lines that an input leaves in the rollout file."""
        self.record_input(turn, item)
        self.record_event(turn, item)

    def record_input(self, turn: FakeTurn, item: dict) -> None:
        """Write the first line of the pair: what the model is shown."""
        if not self.writes_record:
            self.unsaved.append((turn, item))
            return
        model_input = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text_of(item)}],
            "internal_chat_message_metadata_passthrough": {"turn_id": turn.id},
        }
        self.write("response_item", model_input)

    def record_event(self, turn: FakeTurn, item: dict) -> None:
        """Write the second line of the pair, which carries the client's id."""
        if not self.writes_record:
            return
        if self.is_legacy:
            legacy = {
                "type": "user_message",
                "message": text_of(item),
                "client_id": item["clientId"],
            }
            self.write("event_msg", legacy)
            return
        shown = {
            "type": "item_completed",
            "thread_id": self.id,
            "turn_id": turn.id,
            "item": {
                "type": "UserMessage",
                "id": item["id"],
                "client_id": item["clientId"],
                "content": item["content"],
            },
        }
        self.write("event_msg", shown)

    def save(self) -> None:
        """Write what could not be written before."""
        self.writes_record, unsaved, self.unsaved = True, self.unsaved, []
        for turn, item in unsaved:
            self.record(turn, item)

    def record_compaction(self) -> None:
        """Write the line of a compaction, which repeats what users have said."""
        texts = [text for _, text in self.messages]
        history = [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
            for text in texts
        ]
        if self.writes_record:
            self.write("compacted", {"message": "", "replacement_history": history})

    def revert(self, before: FakeTurn) -> list[dict]:
        """Take a turn and all after it out of history, in a new file; say which items went."""
        kept = self.turns[: self.turns.index(before)]
        gone = [item for turn in self.turns[len(kept) :] for item in turn.items]
        self.turns = kept
        self.path = self.path.with_name(f"{self.path.stem}_{mint()}.jsonl")
        self.path.touch()
        for turn in kept:
            for item in turn.items:
                if item["type"] == "userMessage":
                    self.record(turn, item)
        return gone

    def write(self, kind: str, payload: dict) -> None:
        line = json.dumps({"type": kind, "payload": payload}, separators=(",", ":"))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def text_of(item: dict) -> str:
    return item["content"][0]["text"]


def user_message(client_id: str | None, text: str) -> dict:
    return {
        "type": "userMessage",
        "id": mint(),
        "clientId": client_id,
        "content": [{"type": "text", "text": text, "text_elements": []}],
    }
