"""The status file: what the supervisor last said of itself, for whoever asks.

It is a picture, not a truth: what matters is in the journal.
"""

import json
from typing import Any, NamedTuple

from codexdrv.ids import ThreadId


FILE_NAME = "status.json"
FORMAT = 2
"""Of the file: one up whenever a member comes, goes or changes. The first one had no number."""
STALE_AFTER_MS = 15_000
"""Three times the interval at which it is written."""


class Snapshot(NamedTuple):
    """The supervisor's picture of itself; see docs/operating.md for its members."""

    #: Unix time, milliseconds.
    written_at_ms: int
    body: dict[str, Any]

    @property
    def problem(self) -> str | None:
        """Why the supervisor has no server; None: it has one."""
        server = self.body.get("server")
        return server.get("problem") if isinstance(server, dict) else None

    @property
    def asked(self) -> frozenset[ThreadId]:
        """The threads in which a question of the server is open."""
        questions = self.body.get("questions")
        found = questions if isinstance(questions, list) else []
        threads = (each.get("thread") for each in found if isinstance(each, dict))
        return frozenset(ThreadId(each) for each in threads if isinstance(each, str))

    @property
    def asked_since(self) -> dict[str, int]:
        """When each question that is open was first seen, by its id; Unix milliseconds."""
        questions = self.body.get("questions")
        found = questions if isinstance(questions, list) else []
        return {
            each["id"]: each["since_ms"]
            for each in found
            if isinstance(each, dict) and isinstance(each.get("since_ms"), int) and "id" in each
        }

    @property
    def has_ended(self) -> bool:
        """The supervisor was told to stop, and has stopped."""
        return self.body.get("ended") is True

    def stranger(self, version: str) -> str | None:
        """Name the codexdrv that wrote it, if it may know other members than ours, or None.

        Args:
            version: ours.
        """
        written = str(self.body.get("version"))
        if written != version:
            return f"codexdrv {written}"
        number = self.body.get("format", 1)
        if number != FORMAT:
            return f"another codexdrv {written} (its status file has format {number}, not {FORMAT})"
        return None

    def is_stale(self, now_ms: int) -> bool:
        """Say whether it is too old to be believed."""
        return now_ms - self.written_at_ms > STALE_AFTER_MS


def load_snapshot(directory: str) -> Snapshot | None:
    """Read the status file; None if there is none, or it is no picture."""
    try:
        with open(f"{directory}/{FILE_NAME}", encoding="utf-8") as file:
            body = json.load(file)
    except (OSError, ValueError):
        return None
    written = body.get("written_at_ms") if isinstance(body, dict) else None
    return Snapshot(written, body) if isinstance(written, int) else None
