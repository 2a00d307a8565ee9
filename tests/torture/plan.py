"""What is to be delivered, and what goes wrong meanwhile: a function of the seed, and of no clock.

How the two fall together on a real machine is chance; the same seed makes the same plan.
"""

import random
from enum import StrEnum
from typing import NamedTuple, TypeVar

from codexdrv.rules.lifecycle import WhenBusy


Word = TypeVar("Word")


class Way(StrEnum):
    """How the supervisor comes to its server."""

    #: Attached; the harness restarts the server, whose process is known.
    DIRECT = "direct"
    #: Attached through a proxy, which can cut; whose process the server is, nobody can say.
    PROXY = "proxy"
    #: The supervisor starts the server, and starts it again.
    SPAWN = "spawn"


class Turn(StrEnum):
    """What the turn does that an input starts."""

    SHORT = "short"
    #: The model holds its answer for a while.
    HELD = "held"
    #: It asks for a command that wants an approval.
    COMMAND = "command"
    #: Ahead of the input, another client has the thread compacted.
    COMPACTION = "compaction"


class Fault(StrEnum):
    """What goes wrong."""

    SERVER_KILLED = "server killed"
    SERVER_STOPPED = "server stopped"
    SUPERVISOR_KILLED = "supervisor killed"
    BOTH_KILLED = "both killed"
    LINK_CUT = "link cut"
    #: As soon as the request of that very input was written.
    REQUEST_CUT = "request cut"
    #: Another client interrupts the turn that runs.
    INTERRUPTED = "interrupted"
    #: Another client takes the newest turn out while the supervisor is down.
    REVERTED = "reverted"
    DATABASE_LOCKED = "database locked"
    DISK_FULL = "disk full"


class Moment(StrEnum):
    """After which step of an input something goes wrong."""

    ADMITTED = "admitted"
    ANSWERED = "answered"
    #: Its item was seen.
    SURFACED = "surfaced"


class Shot(NamedTuple):
    """A fault, aimed at an input."""

    fault: Fault
    after: Moment
    delay_s: float
    #: How long what was killed stays down, or the disturbance lasts.
    lasts_s: float


class Input(NamedTuple):
    """One delivery to make."""

    id: str
    #: Which of the threads, from 0.
    thread: int
    text: str
    turn: Turn
    when_busy: WhenBusy
    #: By a process of `codexdrv deliver`; else its row is written from here.
    by_command: bool
    shot: Shot | None


FAULTS = {
    Fault.SERVER_KILLED: 28,
    Fault.SUPERVISOR_KILLED: 22,
    Fault.BOTH_KILLED: 10,
    Fault.SERVER_STOPPED: 6,
    Fault.INTERRUPTED: 14,
    Fault.REVERTED: 8,
    Fault.DISK_FULL: 4,
    Fault.DATABASE_LOCKED: 2,
    Fault.LINK_CUT: 25,
    Fault.REQUEST_CUT: 25,
}
"""How often each is drawn, one against another."""

CUTS = {Fault.LINK_CUT, Fault.REQUEST_CUT}
IMPOSSIBLE = {
    Way.DIRECT: CUTS,
    Way.PROXY: set(),
    # While its supervisor is down, there is no server to ask for a revert.
    Way.SPAWN: {*CUTS, Fault.REVERTED},
}

TURNS = {Turn.SHORT: 55, Turn.HELD: 33, Turn.COMMAND: 8, Turn.COMPACTION: 4}
WISHES = {WhenBusy.STEER: 70, WhenBusy.WAIT: 25, WhenBusy.INTERRUPT: 5}

DELAY_S_MAX = 0.5
DOWN_S_MAX = 1.0
LOCKED_S = (20.0, 40.0)
FULL_S = (1.0, 6.0)
HOLD_S_MAX = 0.3

BY_COMMAND = 0.15
"""A process costs 50 ms of one of two cores."""

EQUAL = 0.1
"""So many inputs of a thread say the same."""

ASKING = 4
"""Each thread with such a number has an owner who approves."""


def draw_inputs(
    seed: int, way: Way, *, deliveries: int, threads: int, faults: float, slow_s: float = 1.0
) -> list[Input]:
    """Draw the deliveries of one way, in the order of their admission.

    Args:
        seed: the same makes the same.
        way: of the supervisor to its server.
        deliveries: how many.
        threads: into how many threads.
        faults: the probability that one is aimed at a delivery.
        slow_s: shorten the two slow faults to this share.
    """
    chance = random.Random(f"{seed} {way}")
    return [
        _draw_input(chance, way, number, threads=threads, faults=faults, slow_s=slow_s)
        for number in range(deliveries)
    ]


def is_asking(thread: int) -> bool:
    """Say whether commands of a thread want an approval, which somebody gives."""
    return thread % ASKING == ASKING - 1


def _draw_input(
    chance: random.Random, way: Way, number: int, *, threads: int, faults: float, slow_s: float
) -> Input:
    thread = number % threads
    turn = _weighed(chance, TURNS)
    if turn is Turn.COMMAND and not is_asking(thread):
        turn = Turn.HELD
    says_the_same = chance.random() < EQUAL
    text = f"t{thread} again" if says_the_same else f"t{thread} input {number}"
    return Input(
        id=f"{way}-{number}",
        thread=thread,
        text=text,
        turn=Turn.SHORT if says_the_same else turn,
        when_busy=_weighed(chance, WISHES),
        by_command=chance.random() < BY_COMMAND,
        shot=_draw_shot(chance, way, slow_s) if chance.random() < faults else None,
    )


def _draw_shot(chance: random.Random, way: Way, slow_s: float) -> Shot:
    able = {each: weight for each, weight in FAULTS.items() if each not in IMPOSSIBLE[way]}
    fault = _weighed(chance, able)
    lasts_s = {
        Fault.DATABASE_LOCKED: slow_s * chance.uniform(*LOCKED_S),
        Fault.DISK_FULL: slow_s * chance.uniform(*FULL_S),
    }.get(fault, chance.uniform(0, DOWN_S_MAX))
    return Shot(fault, chance.choice(list(Moment)), chance.uniform(0, DELAY_S_MAX), lasts_s)


def _weighed(chance: random.Random, weights: dict[Word, int]) -> Word:
    (word,) = chance.choices(list(weights), weights=list(weights.values()))
    return word
