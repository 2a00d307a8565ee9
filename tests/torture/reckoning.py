"""When a drill is over: what codexdrv says, what is true, and the story of each that is wrong."""

from collections import Counter
from typing import NamedTuple

from codexdrv.demo.script import Prompt
from codexdrv.ids import DeliveryId
from codexdrv.journal.journal import Journal
from codexdrv.rules.lifecycle import Delivery
from codexdrv.rules.ownership import Fact, Phase
from tests.acceptance.kit import Truth
from tests.torture.faults import Armoury
from tests.torture.judge import WRONG, Claim, Ruling, ThreadTruth, judge
from tests.torture.plan import Fault, Way
from tests.torture.witness import probe, read_lines, read_thread, rollout_files
from tests.torture.world import World


UNKNOWN_S = {"moved": 10, "anchor_gone": 10, "ghost": 10, "other_text": 10, "cannot_save": 60}
"""Reasons why nobody can know, as DESIGN.md has it. After so long our operator gives the input up,
so that its lane goes on in this run; by itself it would in 15 min."""

LINE_CHARACTERS_MAX = 300


class Toll(NamedTuple):
    """What one world's torture came to."""

    version: str
    way: Way
    deliveries: int
    faults: Counter[Fault]
    missed: Counter[Fault]
    rulings: list[Ruling]
    #: Deliveries that were proved absent, and sent again.
    sent_again: int
    took_s: float
    #: What is to be read about each that is wrong.
    stories: list[str]
    #: Servers that outlived their supervisor until somebody ended them.
    orphans: int

    @property
    def wrong(self) -> list[Ruling]:
        """What must not be."""
        return [ruling for ruling in self.rulings if ruling.count in WRONG]


class Aftermath(NamedTuple):
    """A world in which all is over."""

    world: World
    armoury: Armoury
    #: Why each was in doubt that the operator gave up.
    given_up: dict[str, str]
    #: The numbers of the threads that were compacted.
    compacted: set[int]
    #: How many servers the operator had to end.
    orphans: int

    def reckon(self, version: str, took_s: float) -> Toll:
        """Read the truth, with another client and no supervisor, and judge."""
        world = self.world
        died = ["the supervisor ended by itself"] if world.machine.has_died() else []
        deliveries = self._load()
        rulings: list[Ruling] = []
        stories = [*died, *world.deaths]
        for thread, truth in self._read_truths().items():
            mine = [each for each in deliveries if each.order.thread == thread]
            found = judge(map(self._claim, mine), truth)
            rulings += found
            wrong = {ruling.id for ruling in found if ruling.count in WRONG}
            stories += [self._tell(each, truth, found) for each in mine if each.order.id in wrong]
        if stories:
            world.keep_home()
        return Toll(
            version,
            world.way,
            len(world.inputs),
            self._faults(),
            self.armoury.missed,
            rulings,
            self._count_sent_again(deliveries),
            took_s,
            stories,
            self.orphans,
        )

    def _faults(self) -> Counter[Fault]:
        done = Counter(self.armoury.done)
        if self.world.proxy.requests_cut:
            done[Fault.REQUEST_CUT] = self.world.proxy.requests_cut
        return done

    def _claim(self, each: Delivery) -> Claim:
        order, standing = each
        phase, reason = str(standing.phase), standing.reason
        if phase == "failed" and order.id in self.given_up:
            phase, reason = "uncertain", self.given_up[order.id]
        if phase == "uncertain" and reason not in UNKNOWN_S:
            phase = "unsettled"
        return Claim(
            order.id,
            order.seq,
            order.text,
            phase,
            reason,
            standing.stored,
            standing.out_of_order or standing.parked,
            self._excuse(order.id) if phase == "surfaced" and not standing.stored else None,
        )

    def _excuse(self, name: str) -> str | None:
        """Say what kept the server from storing what it had just shown."""
        with Journal(str(self.world.machine.state)) as journal:
            story = journal.story(DeliveryId(name))
        shown_at_s = max(fact.at_ms / 1000 for fact in story if fact.news.fact is Fact.SURFACED)
        return self.armoury.excuse(shown_at_s)

    def _load(self) -> list[Delivery]:
        with Journal(str(self.world.machine.state)) as journal:
            return [each for phase in Phase for each in journal.deliveries(phase)]

    def _count_sent_again(self, deliveries: list[Delivery]) -> int:
        with Journal(str(self.world.machine.state)) as journal:
            stories = [journal.story(each.order.id) for each in deliveries]
        return sum(any(fact.news.fact is Fact.ABSENT for fact in story) for story in stories)

    def _read_truths(self) -> dict[str, ThreadTruth]:
        world = self.world
        if not world.machine.has_died():
            world.machine.stop()
        world.rig.server.stop(grace_s=1.0)
        world.rig.server.start()
        truths = {}
        with world.visit() as truth:
            for number, thread in enumerate(world.threads):
                probe(truth, thread)
                truths[thread] = self._read_truth(truth, thread, number)
        return truths

    def _read_truth(self, truth: Truth, thread: str, number: int) -> ThreadTruth:
        prompts = self.world.rig.model.prompts
        reverted = frozenset(self.armoury.reverted.get(thread, ()))
        return read_thread(
            truth,
            thread,
            home=self.world.rig.home,
            prompts=[each for each in prompts if _is_of(each, number) or thread in each.key],
            reverted=reverted,
            is_abridged=number in self.compacted or thread in self.armoury.reverted,
        )

    def _tell(self, each: Delivery, truth: ThreadTruth, found: list[Ruling]) -> str:
        """Tell all that is known of a delivery that is wrong."""
        name, text = each.order.id, each.order.text
        lines = [f"--- {name}: {text!r} in {each.order.thread}, seq {each.order.seq}"]
        lines += [f"  {ruling.count}: {ruling.why}" for ruling in found if ruling.id == name]
        lines += self.world.machine.run("status", name, "--explain").out.splitlines()
        for path in rollout_files(self.world.rig.home, each.order.thread):
            lines += [
                f"  {path.name}:{number}: {line[:LINE_CHARACTERS_MAX]}"
                for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1)
                if f'"{name}"' in line or f'"{text}"' in line
            ]
            lines.append(f"  {path.name}: {len(read_lines(path))} user lines")
        places = [place for place, said in enumerate(truth.history) if said.client_id == name]
        lines.append(f"  history: at {places} of {len(truth.history)}")
        lines.append(f"  last prompt: {truth.prompt.count(text)}; most: {truth.shown.get(text, 0)}")
        lines += [f"  fault: {each}" for each in self.armoury.log]
        return "\n".join(lines)


def _is_of(prompt: Prompt, number: int) -> bool:
    """Say whether a prompt is of this thread: so begins each text that is said in it."""
    return any(text.startswith(f"t{number} ") for text in prompt.texts)
