#!/usr/bin/env python3
"""Write `docs/compatibility.md` from what the acceptance tests saw: `make compatibility`.

The cells are in `docs/compatibility.json`; the tests write it, and in any other run compare.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


PAGE = Path(__file__).with_name("compatibility.md")
CELLS = Path(__file__).with_name("compatibility.json")

INTRODUCTION = """\
# Compatibility

What becomes of a message, by version of Codex. Every cell was seen on the real binary, with a
scripted model: `make compatibility` runs `tests/acceptance/test_compatibility.py` on each version
and renders this page, and every other test run holds what it sees against it. Do not edit this
page by hand.

A cell is the way of the message: *phase (reason)*, in order, and the last one is where it ends by
itself; of a surfaced one it says how its turn ended. The words are those of `codexdrv status`; the
phases are explained in [states.md](states.md). *That turn* is the one that ran. A **bold** cell is
not what the newest version does.

Nothing is called *surfaced* that is not there: for every surfaced cell, another client found the
message once in the thread's history and once in its record, and the model saw it once. For every
other end it was found in none of them.
"""

NOTES = """\
Why the bold cells are bold:

- A `turn/start` that meets a compaction or a review is refused by 0.163 and newer, and the message
  waits. 0.144.5 answers it like any other and silently drops it. The driver asks before it starts,
  so this takes a race; then the message is *uncertain*, and it is for an operator to look.
- A server that drains (it got SIGTERM, and a turn runs) refuses new work in 0.163 and newer, and
  the message waits for the next server. 0.144.5 takes new work until its last turn has ended.
- 0.163 and newer lock a thread for the server that has it loaded, and the message waits for that
  one's end. 0.144.5 has no lock: both servers write, and the history forks. The message is in the
  history of the server that the supervisor is attached to. Run one server on a home.

What no cell shows: in 0.144.5 a steer comes into the thread only when the current response of the
model ends; 0.163 and newer cut that response. Until then it is *pending (answered)*.

In no version does a server know a thread that another one has started until its first turn: to the
supervisor it is one that was deleted.

Rows that name a proxy show what a real server cannot be made to do when asked: the proxy stands
between the supervisor and the real server, and does only what the row says.

Other versions are not tested. What a server or a thread can do is found by asking it, and a newer
version that keeps its words works the same.
"""


def render() -> str:
    """Return the whole page."""
    rows = json.loads(CELLS.read_text("utf-8")).values()
    versions = sorted({version for row in rows for version in row["cells"]}, key=_numbers)
    table = _table(("what the message meets", *versions), _rows(rows, versions))
    return f"{INTRODUCTION}\n{table}\n{NOTES}"


def _rows(rows: Iterable[dict[str, Any]], versions: list[str]) -> Iterator[list[str]]:
    for row in rows:
        cells = [row["cells"].get(version, "not seen") for version in versions]
        yield [row["title"], *(cell if cell == cells[-1] else f"**{cell}**" for cell in cells)]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
