"""What the fake server keeps of a thread, in the shapes and the record lines of the real one."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from pathlib import Path


_NUMBERS = count(1)


def mint():
    """Make an id that looks like the server's, greater than those before it."""
    return f"01a22d0b-0000-7000-8000-{next(_NUMBERS):012x}"


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

    def shape(self, view="notLoaded"):
        items = self.items if view == "full" else []
        return {
            "id": self.id,
            "rootTurnId": self.id,
            "items": items,
            "itemsView": view,
            "status": self.status,
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

    @property
    def running(self) -> FakeTurn | None:
        return next((turn for turn in self.turns if turn.status == "inProgress"), None)

    @property
    def status(self):
        if not self.is_loaded:
            return {"type": "notLoaded"}
        return {"type": "active", "activeFlags": []} if self.running else {"type": "idle"}

    @property
    def messages(self) -> list[tuple[str | None, str]]:
        """Every user message that is in a turn: client id and text, oldest first."""
        items = (item for turn in self.turns for item in turn.items)
        return [
            (item["clientId"], item["content"][0]["text"])
            for item in items
            if item["type"] == "userMessage"
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
                yield {"turnId": turn.id, "item": item}

    def record(self, turn: FakeTurn, item: dict) -> None:
        """Write the pair of lines that an input leaves in the rollout file."""
        if not self.writes_record:
            return
        text = item["content"][0]["text"]
        model_input = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
            "internal_chat_message_metadata_passthrough": {"turn_id": turn.id},
        }
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
        with self.path.open("a", encoding="utf-8") as file:
            for kind, payload in (("response_item", model_input), ("event_msg", shown)):
                line = json.dumps({"type": kind, "payload": payload}, separators=(",", ":"))
                file.write(f"{line}\n")


def user_message(client_id: str | None, text: str) -> dict:
    return {
        "type": "userMessage",
        "id": mint(),
        "clientId": client_id,
        "content": [{"type": "text", "text": text, "text_elements": []}],
    }
