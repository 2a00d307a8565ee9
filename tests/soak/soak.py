"""One world: deliver, strike, and look, for as long as was asked; then settle and judge."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.soak.faults import Armoury
from tests.soak.laws import Toll
from tests.soak.plan import Fault, Mode, draw_faults, draw_inputs
from tests.soak.reckoning import Aftermath
from tests.soak.sampling import Sample, measure, sampling, servers_of
from tests.soak.trickle import Trickle
from tests.soak.world import CHANGING, TARGETS, World
from tests.torture.board import LIVE
from tests.torture.drill import every
from tests.torture.reckoning import UNKNOWN_S


FIRST_S = 15.0
"""Before the first fault, something is delivered."""

CALM_S = 20.0
"""So long after a fault its traces may be seen."""

CONNECTED_S_MAX = 30.0
LAST_S = 20.0
"""After the last fault, too."""

SETTLE_S_MAX = 240.0
WATCH_S = 1.0
PATIENCE_S = 30.0
"""Where nobody can know, our operator gives a delivery up after that; by itself its lane would go
on in 15 min."""


class Plan(NamedTuple):
    """How a world is soaked."""

    version: str
    mode: Mode
    seed: int
    minutes: float
    every_s: float
    among: frozenset[Fault]
    #: How far behind the other world.
    behind_s: float


class Soak:
    """One world, soaked once."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.samples: list[Sample] = []
        self.armoury = Armoury(world)
        inputs = draw_inputs(plan.seed, plan.mode, threads=TARGETS, named=TARGETS - CHANGING)
        self.trickle = Trickle(world, inputs, self.armoury.may_refuse)
        self._given_up: dict[str, str] = {}
        self._began = time.monotonic()

    def run(self) -> Toll:
        """Deliver, strike, settle, stop, and judge."""
        self.world.begin()
        self._wait_until_connected()
        self._began = time.monotonic()
        with every(WATCH_S, self._operate), sampling(self._look, self.samples):
            with self.trickle:
                self._strike_all()
                self._wait_until(self.plan.minutes * 60)
            self._settle()
        aftermath = Aftermath(self.world, self.armoury, self.trickle, self._given_up)
        broken, rulings, surfaced_s, sent_again = aftermath.reckon()
        return Toll(
            self.plan.version,
            self.plan.mode,
            self.plan.seed,
            time.monotonic() - self._began,
            len({each.id for each in rulings}),
            rulings,
            self.armoury.struck,
            self.samples,
            surfaced_s,
            self.trickle.refused,
            sent_again,
            self.world.machine.log.read_text().count('"life.begun"'),
            broken,
        )

    def tell(self) -> str:
        """Say in one line how far it is."""
        phases = Counter(found.phase for found in self.world.board.stands().values())
        counts = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
        size = self.samples[-1].size if self.samples else None
        taken = f"{size.rss_kib / 1024:.0f} MiB, {size.descriptors} fds" if size else "down"
        last = self.armoury.struck[-1].fault if self.armoury.struck else "none"
        missed = sum(bool(each.missed) for each in self.armoury.struck)
        broken = len(self.armoury.broken) + len(self.trickle.broken) + len(self.world.deaths)
        past_s = time.monotonic() - self._began
        return (
            f"{self.plan.version} {self.plan.mode}: {past_s / 60:.1f} min, {counts};"
            f" {len(self.armoury.struck)} faults ({missed} missed), last {last},"
            f" now {self.armoury.now or 'none'}; {taken}; {broken} laws broken"
        )

    def _strike_all(self) -> None:
        seconds = self.plan.minutes * 60 - FIRST_S - self.plan.behind_s - LAST_S
        count = max(0, round(seconds / self.plan.every_s))
        faults = draw_faults(self.plan.seed, self.plan.mode, count, self.plan.among)
        for number, fault in enumerate(faults):
            self._wait_until(FIRST_S + self.plan.behind_s + number * self.plan.every_s)
            self.armoury.strike(fault)
            self._note(f"{self.armoury.struck[-1]} {self.armoury.broken} {self.trickle.broken}")
            self.world.pause(1.0)

    def _note(self, words: str) -> None:
        with (self.world.root / "faults.log").open("a") as file:
            file.write(f"{words}\n")

    def _wait_until(self, at_s: float) -> None:
        self.world.pause(max(0.0, at_s - (time.monotonic() - self._began)))

    def _wait_until_connected(self) -> None:
        deadline = time.monotonic() + CONNECTED_S_MAX
        while not self.world.is_connected():
            if time.monotonic() > deadline:
                raise TimeoutError(self.world.machine.log.read_text()[-2000:])
            self.world.pause(0.1)

    def _look(self) -> Sample:
        pid = self.world.supervisor_pid()
        is_disturbed = self.armoury.is_disturbed(CALM_S)
        return Sample(
            time.time(),
            None if pid is None else measure(pid),
            len(servers_of(self.world.rig.home)),
            len(self.world.orphans()),
            is_disturbed or self.armoury.is_disturbed(),
        )

    def _operate(self) -> None:
        """Start what has died, and give up what nobody can know."""
        if self.armoury.now is None:
            self.world.watch_supervisor()
        for name, found in self.world.board.stands().items():
            is_old = time.time() - found.changed_at_s > PATIENCE_S
            if found.phase == "uncertain" and found.reason in UNKNOWN_S and is_old:
                self._give_up(name, found.reason)

    def _give_up(self, name: str, reason: str | None) -> None:
        word = ("--as", "failed", "--why", "nobody can know")
        try:
            done = self.world.machine.run("resolve", name, *word)
        except subprocess.TimeoutExpired:
            return  # it is tried again
        if done.code == 0:
            self._given_up[name] = reason or ""

    def _settle(self) -> None:
        """Wait until nothing is live, and nothing waits to be read back."""
        board = self.world.board
        names = {each.id for each in self.trickle.admitted}

        def is_settled() -> bool:
            stands = board.stands()
            # The board may not have seen the last ones yet.
            is_complete = names <= stands.keys()
            return is_complete and not any(found.phase in LIVE for found in stands.values())

        deadline = time.monotonic() + SETTLE_S_MAX
        while not is_settled() and time.monotonic() < deadline:
            self.world.pause(0.5)
        board.wait_for(lambda: all(found.is_stored for found in board.stands().values()), 5.0)


def soak_in(root: Path, *, binary: str, plan: Plan, running: list[Soak]) -> Toll:
    """Soak one world in a directory of its own; it is in `running` for as long as it runs."""
    with World(root, binary=binary, mode=plan.mode) as world:
        soak = Soak(world, plan)
        running.append(soak)
        try:
            return soak.run()
        except BaseException as error:
            sys.stderr.write(f"{plan.version} {plan.mode}: {type(error).__name__}: {error}\n")
            raise
        finally:
            running.remove(soak)
