"""When a soak is over: stop all in good order, then hold what is said against what is true."""

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from codexdrv.ids import DeliveryId
from codexdrv.journal.journal import Journal
from codexdrv.rules.lifecycle import Delivery
from codexdrv.rules.ownership import Fact, Phase
from tests.soak.faults import Armoury, Struck
from tests.soak.plan import Fault, Mode
from tests.soak.sampling import servers_of
from tests.soak.trickle import Trickle
from tests.soak.world import World, wait_until_gone
from tests.torture import faults as torture
from tests.torture.judge import WRONG, Claim, Ruling, ThreadTruth, judge
from tests.torture.plan import Fault as Tortured
from tests.torture.reckoning import UNKNOWN_S, _is_of
from tests.torture.witness import probe, read_thread


AS_TORTURED = {
    Fault.SERVER_KILLED: Tortured.SERVER_KILLED,
    Fault.BOTH_KILLED: Tortured.BOTH_KILLED,
    Fault.SUPERVISOR_KILLED: Tortured.SUPERVISOR_KILLED,
    Fault.DRAINING: Tortured.SERVER_STOPPED,
    Fault.DEAF: Tortured.SERVER_KILLED,
    Fault.ASKING: Tortured.SERVER_STOPPED,
    Fault.RESTARTED: Tortured.SERVER_STOPPED,
}
"""What each may excuse: a server that ends can take what it has shown with it."""

GONE_S_MAX = 15.0

KEPT = {"journal.sqlite3", "journal.sqlite3-wal", "journal.sqlite3-shm", "lock", "status.json"}
"""What a supervisor that was stopped leaves in its state directory."""


class Reckoned(NamedTuple):
    """What became of all."""

    broken: list[str]
    rulings: list[Ruling]
    surfaced_s: list[float]
    sent_again: int


class Aftermath(NamedTuple):
    """A world in which nothing more is delivered."""

    world: World
    armoury: Armoury
    trickle: Trickle
    #: Why each was in doubt that the operator gave up.
    given_up: dict[str, str]

    def reckon(self) -> Reckoned:
        """Stop, look for what is left, and judge with another client and no supervisor."""
        world = self.world
        broken = [*self.armoury.broken, *self.trickle.broken]
        broken += [f"the supervisor ended by itself: {words}" for words in world.deaths]
        broken += list(self._stop())
        deliveries = self._load()
        known = {each.order.id for each in deliveries}
        broken += [f"{each.id}: not in the journal" for each in self.trickle.admitted
                   if each.id not in known]  # fmt: skip
        stories = {each.order.id: self._story(each.order.id) for each in deliveries}
        rulings: list[Ruling] = []
        for thread, truth in self._read_truths():
            mine = [each for each in deliveries if each.order.thread == thread]
            rulings += judge([self._claim(each, stories[each.order.id]) for each in mine], truth)
        if broken or any(ruling.count in WRONG for ruling in rulings):
            world.keep()
        world.rig.server.stop(grace_s=1.0)
        broken += [f"left at the end: process {pid}" for pid in world.sweep()]
        surfaced_s = sorted(at_s for story in stories.values() for at_s in story.surfaced_s)
        return Reckoned(
            broken, rulings, surfaced_s, sum(story.was_absent for story in stories.values())
        )

    def _stop(self) -> Iterator[str]:
        """Stop the supervisor, then the server where it is not its own; say what is left."""
        world = self.world
        try:
            if (code := world.machine.stop()) != 0:
                yield f"at the end SIGTERM ended the supervisor with {code}"
        except subprocess.TimeoutExpired:
            world.machine.kill()
            yield "at the end SIGTERM did not end the supervisor in time"
        if world.mode is Mode.ATTACH:
            mine = world.rig.server.pid
            if not world.rig.server.is_running:
                yield "at the end the server that is not ours had ended"
            world.rig.server.stop()
            wait_until_gone(mine, GONE_S_MAX)
        for pid in servers_of(world.rig.home):
            yield f"at the end a server of nobody's runs: {pid}"
        if world.rig.socket_path.is_symlink():
            yield f"at the end a socket is left: {world.rig.socket_path}"
        for path in world.machine.state.iterdir():
            if path.name not in KEPT:
                yield f"at the end there is {path}"

    def _load(self) -> list[Delivery]:
        with Journal(str(self.world.machine.state)) as journal:
            return [each for phase in Phase for each in journal.deliveries(phase)]

    def _story(self, name: str) -> "Story":
        with Journal(str(self.world.machine.state)) as journal:
            facts = journal.story(DeliveryId(name))
        shown_s = [fact.at_ms / 1000 for fact in facts if fact.news.fact is Fact.SURFACED]
        return Story(shown_s, any(fact.news.fact is Fact.ABSENT for fact in facts))

    def _claim(self, each: Delivery, story: "Story") -> Claim:
        order, standing = each
        phase, reason = str(standing.phase), standing.reason
        if phase == "failed" and order.id in self.given_up:
            phase, reason = "uncertain", self.given_up[order.id]
        if phase == "uncertain" and reason not in UNKNOWN_S:
            phase = "unsettled"
        is_shown = phase == "surfaced" and not standing.stored and bool(story.surfaced_s)
        windows = list(_windows(self.armoury.struck))
        return Claim(
            order.id,
            order.seq,
            order.text,
            phase,
            reason,
            standing.stored,
            standing.out_of_order or standing.parked,
            torture.excuse_of(windows, max(story.surfaced_s)) if is_shown else None,
        )

    def _read_truths(self) -> Iterator[tuple[str, ThreadTruth]]:
        world = self.world
        world.rig.server.start()
        with world.visit() as truth:
            for number, thread in enumerate(world.threads):
                probe(truth, thread)
                prompts = world.model.prompts
                yield (
                    thread,
                    read_thread(
                        truth,
                        thread,
                        home=Path(world.rig.home),
                        prompts=[p for p in prompts if _is_of(p, number) or thread in p.key],
                        reverted=frozenset(),
                        is_abridged=False,
                    ),
                )


class Story(NamedTuple):
    """What is told of one delivery."""

    #: When it was seen in its thread; Unix times.
    surfaced_s: list[float]
    was_absent: bool


def _windows(struck: Iterable[Struck]) -> Iterator[torture.Window]:
    for each in struck:
        if each.fault in AS_TORTURED:
            yield torture.Window(AS_TORTURED[each.fault], each.from_s, each.to_s)
