"""What `docs/compatibility.md` says, as the tests have seen it.

A test watches one message end, or several, and its `Cell` notes the way. What was seen must be
what the committed table says of this version; `make compatibility` writes the table anew.
"""

import json
from pathlib import Path

from codexdrv.rules.lifecycle import Standing, is_settled
from codexdrv.rules.ownership import Fact, Phase
from tests.acceptance.kit import Message, Said, ServerError, Truth
from tests.acceptance.machine import Machine


TABLE = Path(__file__).parents[2] / "docs" / "compatibility.json"
"""Behaviour → its title and version → cell; `docs/render_compatibility.py` makes the page of it."""

ARROW = " \N{RIGHTWARDS ARROW} "


class Cell:
    """The way of the messages of one test, in words."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ways: dict[str, list[str]] = {}
        self._remarks: list[str] = []

    @property
    def text(self) -> str:
        """All that was noted; empty, if nothing was."""
        ways = [ARROW.join(way) for way in self._ways.values()]
        if len(ways) > 1 and len(set(ways)) == 1:
            ways = [f"each: {ways[0]}"]
        return "; ".join([*ways, *self._remarks])

    def remark(self, words: str) -> None:
        """Note what else is telling."""
        self._remarks.append(words)

    def holds(self, delivery: str, reason: str) -> None:
        """Block until a delivery was held for a reason, and note that."""
        self._machine.wait_for(delivery, lambda _: reason in self._machine.reasons(delivery))
        self._note(delivery, f"queued ({reason})")

    def is_answered(self, delivery: str) -> None:
        """Block until the server has taken a delivery that is not in the thread yet; note that."""
        found = self._machine.wait_for(delivery, lambda found: found.answered_turn is not None)
        assert found.phase == "pending", found
        self._note(delivery, "pending (answered)")

    def ends(self, delivery: str, *, busy: str | None = None) -> None:
        """Block until nothing more comes of a delivery by itself; note how it stands.

        Args:
            delivery: which one.
            busy: the turn that ran, if one did.
        """
        found = self._machine.wait_for(delivery, is_settled)
        for fact in self._machine.story(delivery):
            if fact.news.fact in _ON_THE_WAY:
                self._note(delivery, f"{_ON_THE_WAY[fact.news.fact]} ({fact.news.reason})")
        order, rig = self._machine.order(delivery), self._machine.rig
        said = Said(delivery, order.text)
        seen = (
            _history(rig.truth(), order.thread).count(said),
            rig.rollout(order.thread).count(said),
            rig.model.occurrences(order.text),
        )
        # Surfaced is what history, record and model have, once; and nothing else is.
        assert seen == ((1, 1, 1) if found.phase == "surfaced" else (0, 0, 0)), (found, seen)
        self._note(delivery, _describe(found, busy))

    def _note(self, delivery: str, words: str) -> None:
        self._ways.setdefault(delivery, []).append(words)


def load_table(path: Path = TABLE) -> dict[str, Message]:
    """Read the committed table; empty, if there is none."""
    table: dict[str, Message] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return table


def write_table(table: dict[str, Message], path: Path) -> None:
    """Write a table, so that a change of one cell is a change of one line."""
    path.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n", "utf-8")


_ON_THE_WAY = {Fact.IN_DOUBT: "uncertain", Fact.ABSENT: "proved absent"}


def _describe(found: Standing, busy: str | None) -> str:
    if found.phase is not Phase.SURFACED:
        return f"{found.phase} ({found.reason})"
    place = ""
    if busy is not None:
        place = " in that turn" if found.turn == busy else " in a turn of its own"
    return f"surfaced{place}, {found.outcome}"


def _history(truth: Truth, thread: str) -> list[Said]:
    try:
        truth.resume(thread)  # a cold read may be stale
        return truth.history(thread)
    except ServerError:
        return []  # gone, or never used: there is none
