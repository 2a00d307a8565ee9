"""What of the server's protocol we use, found by watching our own code.

What we send: every builder of `codexdrv.protocol.methods`, called. What we read: the members that
the readers ask for, while they read the recordings. A member is named by its path, such as
`input[].text`.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from codexdrv.errors import MalformedMessage
from codexdrv.ids import DeliveryId, ThreadId, TurnId
from codexdrv.protocol import methods
from codexdrv.protocol.events import READERS
from codexdrv.protocol.methods import Call
from codexdrv.wire.message import Notification, Request, RequestId, Response, decode
from tests.recording.replay import readers_of
from tests.recording.stable import read_lines


THREAD = ThreadId("019a0000-0000-7000-8000-000000000001")
SAMPLES: dict[str, Any] = {
    "cursor": "next",
    "delivery": DeliveryId("m-1"),
    "limit": 1,
    "name": "codexdrv",
    "text": "hello",
    "thread": THREAD,
    "turn": TurnId("019a0000-0000-7000-8000-000000000002"),
    "version": "0",
    "with_turns": True,
}
"""An argument for each parameter that a builder has."""

UNRECORDED = {"thread/closed": {"threadId": THREAD}}
"""News that no behaviour brings in a few seconds, with what their readers need."""

Paths = dict[str, set[str]]
"""Method → paths."""


class Sent(NamedTuple):
    """A member of the params of a call."""

    path: str
    value: Any


def build_calls() -> list[Call]:
    """Build one call with each builder there is."""
    builders = [
        each
        for _, each in inspect.getmembers(methods, inspect.isfunction)
        if inspect.signature(each).return_annotation is Call
    ]
    return [_build(builder) for builder in builders]


def sent_members(call: Call) -> list[Sent]:
    """List the members that a call sends."""
    return list(_members(call.params, ""))


def find_used(recordings: Path) -> tuple[Paths, Paths]:
    """Read all recordings; return what was read of news, and what of results, by method."""
    news: Paths = defaultdict(set)
    results: Paths = defaultdict(set)
    for method, params in UNRECORDED.items():
        READERS[method](_watch(params, "", news[method]))
    for path in sorted(recordings.glob("*/*.jsonl")):
        asked: dict[RequestId, Request] = {}
        for line in read_lines(path.read_text("utf-8")):
            match decode(orjson.dumps(line.frame)):
                case Request(number) as request if line.direction == ">":
                    asked[number] = request
                case Response(number, result):
                    for reader in readers_of(asked[number]):
                        reader(_watch(result, "", results[asked[number].method]))
                case Notification(method, params) if method in READERS:
                    READERS[method](_watch(params, "", news[method]))
    return news, results


def find_needed(recordings: Path) -> Paths:
    """Find the members of news without which a reader raises, by taking each out."""
    needed: Paths = defaultdict(set)
    read = find_used(recordings)[0]
    for path in sorted(recordings.glob("*/*.jsonl")):
        for line in read_lines(path.read_text("utf-8")):
            method = line.frame.get("method")
            for member in read[method] - needed[method] if method in READERS else ():
                try:
                    READERS[method](_without(line.frame["params"], member.split(".")))
                except MalformedMessage:
                    needed[method].add(member)
    return needed


class _Watched(dict[str, Any]):
    """An object that notes which of its members are asked for."""

    def __init__(self, body: dict[str, Any], path: str, seen: set[str]) -> None:
        super().__init__({key: _watch(each, f"{path}{key}", seen) for key, each in body.items()})
        self._path = path
        self._seen = seen

    def get(self, key: str, default: Any = None) -> Any:
        self._seen.add(f"{self._path}{key}")
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._seen.add(f"{self._path}{key}")
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._seen.add(f"{self._path}{key}")
        return super().__contains__(key)


def _watch(value: Any, path: str, seen: set[str]) -> Any:
    match value:
        case dict():
            return _Watched(value, f"{path}." if path else "", seen)
        case list():
            return [_watch(each, f"{path}[]", seen) for each in value]
        case _:
            return value


def _without(value: Any, path: Sequence[str]) -> Any:
    """Copy a value, but for the member of this path; it may lack it already."""
    name, *rest = path
    if not isinstance(value, dict) or name not in value:
        return value
    kept = {key: each for key, each in value.items() if key != name}
    return kept | {name: _without(value[name], rest)} if rest else kept


def _build(builder: Callable[..., Call]) -> Call:
    parameters = inspect.signature(builder).parameters.values()
    given = {each.name: SAMPLES[each.name] for each in parameters}
    positional = [given[each.name] for each in parameters if each.kind is not each.KEYWORD_ONLY]
    named = {each.name: given[each.name] for each in parameters if each.kind is each.KEYWORD_ONLY}
    return builder(*positional, **named)


def _members(value: Any, path: str) -> Iterator[Sent]:
    match value:
        case dict():
            for key, each in value.items():
                inner = f"{path}.{key}" if path else key
                yield Sent(inner, each)
                yield from _members(each, inner)
        case list():
            for each in value:
                yield from _members(each, f"{path}[]")
