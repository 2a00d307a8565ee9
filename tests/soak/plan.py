"""What is delivered in a soak, and what goes wrong meanwhile: functions of the seed alone."""

import random
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from codexdrv.rules.lifecycle import WhenBusy


class Mode(StrEnum):
    """How the supervisor comes to its server."""

    ATTACH = "attach"
    SPAWN = "spawn"


class Fault(StrEnum):
    """What goes wrong."""

    SERVER_KILLED = "server killed"
    SUPERVISOR_KILLED = "supervisor killed"
    BOTH_KILLED = "both killed"
    #: SIGSTOP, for longer than the silence limit.
    HALF_OPEN = "server half-open for 45 s"
    #: SIGSTOP of server and supervisor: a laptop that sleeps.
    SUSPENDED = "both suspended for 20 s"
    #: SIGTERM while a turn runs that is held for so long.
    DRAINING = "server draining for 30 s"
    #: The supervisor is stopped while its server cannot hear SIGTERM.
    DEAF = "stopped, the server deaf to SIGTERM"
    #: The supervisor is stopped while its server waits for an approval, which outlives SIGTERM.
    ASKING = "stopped, an approval open"
    #: Targets are taken out and put back, each time with SIGHUP.
    RECONFIGURED = "targets changed, SIGHUP"
    LINK_CUT = "connection cut"
    #: By another process.
    JOURNAL_LOCKED = "journal locked for 12 s"
    #: That of the state directory.
    DISK_FULL = "disk full for 20 s"
    #: SIGTERM, and a new one.
    RESTARTED = "supervisor restarted"


OUTLIVED = {
    Fault.SERVER_KILLED,
    Fault.HALF_OPEN,
    Fault.SUSPENDED,
    Fault.DRAINING,
    Fault.RECONFIGURED,
    Fault.JOURNAL_LOCKED,
    Fault.DISK_FULL,
}
"""Those in which one life of the supervisor goes on."""

ONLY = {
    Fault.DEAF: Mode.SPAWN,
    Fault.ASKING: Mode.SPAWN,
    Fault.LINK_CUT: Mode.ATTACH,
}
"""In attach mode a server is not ours to stop; in spawn mode nothing can come between."""


class Input(NamedTuple):
    """One delivery to make."""

    id: str
    #: Which of the threads, from 0.
    thread: int
    text: str
    when_busy: WhenBusy
    #: How long the model holds its answer.
    hold_s: float
    #: Named by its target; else by the thread's id.
    by_target: bool
    #: How long after the one before.
    pause_s: float


AGAIN = 0.3
"""So many go into the thread of the one before, and so find it busy."""

WAITING = 0.3
HELD, HELD_S_MAX = 0.3, 4.0
LONG, LONG_S = 0.08, (10.0, 30.0)
PAUSE_S = (0.4, 3.6)


def draw_faults(seed: int, mode: Mode, count: int, among: frozenset[Fault]) -> list[Fault]:
    """Draw the faults of a soak in their order: each kind about equally often.

    Half of them first, which one life of the supervisor has to outlive.
    """
    chance = random.Random(f"{seed} {mode} faults")
    kinds = [each for each in Fault if each in among and ONLY.get(each, mode) is mode]
    chance.shuffle(kinds)
    faults = [kinds[number % len(kinds)] for number in range(count)] if kinds else []
    chance.shuffle(faults)
    early = [each for each in faults if each in OUTLIVED][: count // 2]
    late = list(faults)
    for each in early:
        late.remove(each)
    return early + late


def draw_inputs(seed: int, mode: Mode, *, threads: int, named: int) -> Iterator[Input]:
    """Draw deliveries without end; the first `named` threads may be called by their target."""
    chance = random.Random(f"{seed} {mode} inputs")
    number = thread = 0
    while True:
        if chance.random() > AGAIN:
            thread = chance.randrange(threads)
        yield Input(
            id=f"{mode}-{number}",
            thread=thread,
            text=f"t{thread} input {number}",
            when_busy=WhenBusy.WAIT if chance.random() < WAITING else WhenBusy.STEER,
            hold_s=_draw_hold_s(chance),
            by_target=thread < named and chance.random() < 0.5,
            pause_s=chance.uniform(*PAUSE_S),
        )
        number += 1


def _draw_hold_s(chance: random.Random) -> float:
    drawn = chance.random()
    if drawn < LONG:
        return chance.uniform(*LONG_S)
    return chance.uniform(0, HELD_S_MAX) if drawn < LONG + HELD else 0.0
