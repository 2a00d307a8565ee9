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


class Peer(NamedTuple):
    """The server process (DESIGN.md, "peer identity")."""

    pid: int
    start_ticks: int
    boot_id: str
    namespace: str = ""


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
    #: None where it is unknown.
    peer: Peer | None
    mark: Mark
    #: What was decided since the last attempt, in order; the last one is this route.
    trail: tuple[Step, ...] = ()


def encode_dispatch(dispatch: Dispatch) -> str:
    """Write it as the journal keeps it, and as `status --explain --json` shows it."""
    fields = dispatch._asdict()
    fields["peer"] = dispatch.peer._asdict() if dispatch.peer else None
    fields["mark"] = dispatch.mark._asdict()
    fields["trail"] = [step._asdict() for step in dispatch.trail]
    return json.dumps(fields)


def decode_dispatch(text: str) -> Dispatch:
    """Read it back; what a newer version noted beside is no reason to stop."""
    noted = json.loads(text)
    fields = {name: noted[name] for name in Dispatch._fields}
    fields["peer"] = Peer(**noted["peer"]) if noted["peer"] else None
    fields["mark"] = Mark(**noted["mark"])
    fields["trail"] = tuple(Step(**step) for step in noted["trail"])
    return Dispatch(**fields)


def dispatch_key(text: str | None) -> tuple[int, int, int] | None:
    """Say which attempt it is: (life, generation, revision); None: there is none."""
    if text is None:
        return None
    dispatch = decode_dispatch(text)
    return dispatch.life, dispatch.generation, dispatch.number
