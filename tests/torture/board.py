"""How all deliveries of a world stand: the journal, looked into all the time.

By its rows alone, and read-only: no line of codexdrv reads for us.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self


LOOK_S = 0.01


class Stand(NamedTuple):
    """How a delivery stands, as far as the torture looks."""

    phase: str
    is_answered: bool
    is_stored: bool
    reason: str | None
    #: Unix time of its last fact.
    changed_at_s: float


LIVE = {"queued", "pending", "uncertain"}


class Board:
    """How all deliveries of a world stand, looked up in the journal all the time."""

    def __init__(self, state: Path, *, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        self._path = state / "journal.sqlite3"
        self._stands: dict[str, Stand] = {}
        self._is_over = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._look, name="board")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def stand(self, delivery: str) -> Stand | None:
        """Say how a delivery stands; None until it is admitted."""
        return self._stands.get(delivery)

    def stands(self) -> dict[str, Stand]:
        """Say how all of them stand."""
        return self._stands

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is so; say whether it is."""
        with self._changed:
            return self._changed.wait_for(is_so, timeout_s)

    def _look(self) -> None:
        link = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)
        with contextlib.closing(link):
            version = None
            while not self._is_over.wait(self._look_s):
                found = link.execute("PRAGMA data_version").fetchone()
                if found == version:
                    continue
                version = found
                rows = link.execute(
                    "SELECT id, phase, answered_turn, stored, reason, changed_at_ms FROM deliveries"
                )
                with self._changed:
                    self._stands = {
                        name: Stand(phase, turn is not None, bool(stored), reason, at_ms / 1000)
                        for name, phase, turn, stored, reason, at_ms in rows
                    }
                    self._changed.notify_all()


def wait(is_so: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until something is so; say whether it is."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True
