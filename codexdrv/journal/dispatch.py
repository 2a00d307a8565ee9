"""An attempt as it is written ahead of its first byte: what evidence will need later."""

import json
from typing import NamedTuple

from codexdrv.ids import TurnId


class Mark(NamedTuple):
    """What a dispatch notes of the thread."""

    #: The newest turn that was known: history is read back through it.
    anchor: TurnId | None
    #: The rollout file, and its size in bytes; what is older cannot be this attempt.
    path: str | None
    size: int


class Step(NamedTuple):
    """One decision on the way to an attempt."""

    #: "resume", "fence", "start", "steer".
    action: str
    why: str
    #: Unix time, milliseconds.
    at_ms: int


class Dispatch(NamedTuple):
    """One attempt."""

    #: "start" or "steer".
    route: str
    #: The turn that was to be steered.
    steered: TurnId | None
    life: int
    generation: int
    #: The revision that the fact of this dispatch has: no two of a delivery are alike.
    number: int
    #: The server process: pid, start ticks, boot id; None where it is unknown.
    peer: tuple[int, int, str] | None
    mark: Mark
    #: What was decided since the last attempt, in order; the last one is this route.
    trail: tuple[Step, ...] = ()


def encode_dispatch(dispatch: Dispatch) -> str:
    """Write it as the journal keeps it."""
    return json.dumps(dispatch._replace(mark=dispatch.mark._asdict())._asdict())  # type: ignore[arg-type]


def decode_dispatch(text: str) -> Dispatch:
    """Read it back."""
    fields = json.loads(text)
    peer = fields.pop("peer")
    mark = Mark(**fields.pop("mark"))
    trail = tuple(Step(*step) for step in fields.pop("trail", ()))
    return Dispatch(**fields, peer=None if peer is None else tuple(peer), mark=mark, trail=trail)
