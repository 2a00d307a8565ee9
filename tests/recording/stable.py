"""Make a recording stable: what differs from one run to the next gets a fixed value.

Nothing else is changed. The rules, which fixtures/README.md repeats for readers:

- a UUID becomes `019a0000-0000-7000-8000-` and its number in order of appearance (not the nil
  UUID, and not those that the behaviours themselves made up);
- the rig's directory becomes `/rig`, and the port of the model 1;
- a member that is a time or a duration becomes one of that size, and a time in a text or in the
  name of a rollout file the same time;
- in `userAgent` the description of the host goes, and so does the host's name (`serverName`);
- a text of more than 2,000 characters is cut, and says how long it was.
"""

import json
import re
from collections.abc import Sequence
from itertools import count
from typing import Any

from codexdrv.ids import NIL_TURN
from tests.recording.stage import THREAD_OF_NOBODY, TURN_OF_NOBODY
from tests.recording.tap import Line


ROOT = "/rig"
TEXT_CHARACTERS_MAX = 2_000
SECONDS = 1_800_000_000
"""2027-01-15T08:00:00Z."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KEPT = {NIL_TURN, THREAD_OF_NOBODY, TURN_OF_NOBODY}
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")
_ROLLOUT_DAY = re.compile(r"/\d{4}/\d\d/\d\d/(?=rollout-)")
_ROLLOUT_TIME = re.compile(r"(?<=rollout-)\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(?=Z)")
_AGENT = re.compile(r" \(.*")
_TIMES = re.compile(r"(At|AtMs|Ms)$")


def make_stable(lines: Sequence[Line], root: str) -> list[Line]:
    """Give volatile things fixed values, the same thing the same value."""
    return _Stabiliser(root).all(lines)


def write_lines(lines: Sequence[Line]) -> str:
    """Write a recording: one JSON object a line."""
    rows = (json.dumps(line._asdict(), ensure_ascii=False, separators=(",", ":")) for line in lines)
    return "".join(f"{row}\n" for row in rows)


def read_lines(text: str) -> list[Line]:
    """Read a recording."""
    # Not `splitlines`: a text may hold a line separator of Unicode.
    return [Line(**json.loads(row)) for row in text.split("\n") if row]


class _Stabiliser:
    """The UUIDs of one recording, numbered as they come."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._numbers = count(1)
        self._stable: dict[str, str] = {each: each for each in _KEPT}

    def all(self, lines: Sequence[Line]) -> list[Line]:
        return [line._replace(frame=self._value(line.frame)) for line in lines]

    def _value(self, value: Any, key: str = "") -> Any:
        match value:
            case dict():
                return {
                    self._text(name, ""): self._value(each, name) for name, each in value.items()
                }
            case list():
                return [self._value(each) for each in value]
            case str():
                return self._text(value, key)
            case int() if _TIMES.search(key) and not isinstance(value, bool):
                return _time(key, value)
            case _:
                return value

    def _text(self, text: str, key: str) -> str:
        if len(text) > TEXT_CHARACTERS_MAX:
            return f"{text[:40]}… ({len(text)} characters)"
        text = _UUID.sub(self._uuid, text.replace(self._root, ROOT))
        text = _PORT.sub("1", text)
        text = _ROLLOUT_DAY.sub("/2027/01/15/", text)
        text = _ROLLOUT_TIME.sub("2027-01-15T08-00-00", text)
        text = _MOMENT.sub("2027-01-15T08:00:00", text)
        if key == "serverName":
            return "host"
        return _AGENT.sub(" (host)", text) if key == "userAgent" else text

    def _uuid(self, found: re.Match[str]) -> str:
        if found[0] not in self._stable:
            self._stable[found[0]] = f"019a0000-0000-7000-8000-{next(self._numbers):012}"
        return self._stable[found[0]]


def _time(key: str, value: int) -> int:
    if value < SECONDS // 2:
        return 1  # a duration
    return SECONDS * 1000 if value > SECONDS * 100 else SECONDS
