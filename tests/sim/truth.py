"""What really happened to each input, as only the simulator can know it."""

import json
from collections import Counter
from typing import NamedTuple


class Shown(NamedTuple):
    """The model was shown an input."""

    thread: str
    client_id: str | None
    text: str


class Truth:
    """All that the model was shown, and what is still on its way to it."""

    def __init__(self, world):
        self._world = world
        self.shown: list[Shown] = []
        self.copies: Counter = Counter()
        #: Copies that a kill has taken from the server's memory before they were written.
        self.forgotten: Counter = Counter()
        #: Threads whose history has lost turns, by a revert or a kill.
        self.shortened: set[str] = set()
        #: Threads whose server could not save for a while.
        self.unsaved: set[str] = set()
        #: Threads in which the pair of lines was cut: (thread, text).
        self.ghosts: set[tuple[str, str]] = set()

    def show(self, thread, client_id, text) -> None:
        self.shown.append(Shown(thread.id, client_id, text))
        if client_id is not None:
            self.copies[client_id] += 1

    def forget(self, client_id) -> None:
        if client_id is not None:
            self.forgotten[client_id] += 1

    def is_in_thread(self, client_id: str) -> bool:
        """Say whether the model has it, or would after a resume."""
        return self.copies[client_id] > self.forgotten[client_id]

    def may_come(self, client_id: str) -> bool:
        """Say whether it can still reach the model without anybody sending it again."""
        needle = f'"{client_id}"'.encode()
        on_wire = any(needle in link.on_its_way for link in self._world.links)
        return on_wire or self._world.server.may_come(client_id)

    def is_recorded(self, thread: str, client_id: str) -> bool:
        """Say whether a record file of a thread has the line with its id."""
        needle = f'"client_id":{json.dumps(client_id)}'
        files = sorted(self._world.server.home.rglob(f"rollout-*{thread}*.jsonl"))
        return any(needle in file.read_text("utf-8") for file in files)
