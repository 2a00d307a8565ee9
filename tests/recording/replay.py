"""Replay a recording through floors 1 to 3, and tell what they made of it, line by line.

    > 4 turn/start                        we asked
    < 4 refused: Understood(…)            the server's answer, as we read it
    < TurnStarted(…)                      its news, as we read them
        #2: ThreadState(…)                what we know of a thread now, if that changed
    ? 5 turn/interrupt                    at the end: what was never answered
    = #2: ThreadState(…)                  at the end: what we know of each thread

`#2` stands for the UUID that `stable` numbered so.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any

import orjson

from codexdrv.errors import Refused
from codexdrv.ids import NIL_TURN, ThreadId
from codexdrv.protocol.events import Event, translate
from codexdrv.protocol.refusals import read_refusal
from codexdrv.protocol.results import (
    read_all_turns,
    read_greeting,
    read_items,
    read_loaded,
    read_started_turn,
    read_thread_list,
    read_thread_view,
    read_turn_statuses,
    read_turns,
)
from codexdrv.rules.thread import ThreadState, reduce
from codexdrv.wire.message import Notification, Refusal, Request, RequestId, Response, decode
from tests.recording.tap import Line


RESULT_READERS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "initialize": (read_greeting,),
    "thread/items/list": (read_items,),
    "thread/list": (read_thread_list,),
    "thread/loaded/list": (read_loaded,),
    "thread/read": (read_thread_view,),
    "thread/resume": (read_thread_view,),
    "thread/turns/list": (read_turns,),
    "turn/start": (read_started_turn,),
    "turn/steer": (read_started_turn,),
}
"""Method → what reads its result; what stands in no row has a result that nobody reads."""

_STABLE = re.compile(r"019a0000-0000-7000-8000-0*([0-9a-f]+)")


def readers_of(request: Request) -> tuple[Callable[[Any], Any], ...]:
    """Say what reads the result of a request."""
    if request.params.get("includeTurns"):
        return (read_thread_view, read_all_turns)
    if request.params.get("itemsView") == "notLoaded":
        return (read_turn_statuses,)
    return RESULT_READERS.get(request.method, ())


class Replay:
    """One recording, read as the driver would read it."""

    def __init__(self) -> None:
        self.states: dict[ThreadId, ThreadState] = {}
        self.open: dict[RequestId, Request] = {}
        #: Everything that was read, for who wants to know what recordings cover.
        self.read: list[Any] = []

    def tell(self, lines: Sequence[Line]) -> str:
        """Replay all lines, and tell the story."""
        told = [each for line in lines for each in self._tell_line(line)]
        told += [f"? {number} {asked.method}" for number, asked in self.open.items()]
        told += [f"= {_say(thread)}: {_say(state)}" for thread, state in self.states.items()]
        return "".join(f"{each}\n" for each in told)

    def _tell_line(self, line: Line) -> Iterator[str]:
        message = decode(orjson.dumps(line.frame))
        match message:
            case Request(number, method, _) if line.direction == ">":
                self.open[number] = message
                yield f"> {number} {method}"
            case Notification(method, _) if line.direction == ">":
                yield f"> {method}"
            case Request(number, method, _):
                yield f"< asks {number}: {method}"
            case Response(number, result):
                found = [read(result) for read in readers_of(self.open.pop(number))]
                self.read += found
                yield f"< {number} {', '.join(map(_say, found)) or 'done'}"
            case Refusal(number, code, text, data):
                del self.open[number]
                understood = read_refusal(Refused(code, text, data))
                self.read.append(understood)
                yield f"< {number} refused: {_say(understood)}"
            case Notification():
                event = translate(message)
                self.read.append(event)
                yield f"< {_say(event)}"
                yield from self._fold(event)

    def _fold(self, event: Event) -> Iterator[str]:
        thread = getattr(event, "thread", None)
        if thread is None:
            return
        before = self.states.get(thread, ThreadState())
        after = self.states[thread] = reduce(before, event)
        if after != before:
            yield f"    {_say(thread)}: {_say(after)}"


def _say(value: Any) -> str:
    match value:
        case StrEnum():
            return str(value)
        case str():
            whole = _STABLE.fullmatch(value)
            quoted = orjson.dumps(_STABLE.sub(r"#\1", value)).decode()
            return "nil" if value == NIL_TURN else f"#{whole[1]}" if whole else quoted
        case tuple() if hasattr(value, "_fields"):
            fields = (f"{name}={_say(each)}" for name, each in value._asdict().items())
            return f"{type(value).__name__}({', '.join(fields)})"
        case tuple() | list():
            return f"[{', '.join(map(_say, value))}]"
        case dict():
            return f"{{{', '.join(f'{_say(key)}: {_say(each)}' for key, each in value.items())}}}"
        case _:
            return str(value)
