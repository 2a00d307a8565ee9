"""Deliver while things go wrong, wait until nothing is owed, and read the truth."""

import contextlib
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.torture.board import LIVE
from tests.torture.faults import Armoury
from tests.torture.plan import Input, Turn, Way
from tests.torture.reckoning import UNKNOWN_S, Aftermath, Toll
from tests.torture.world import Unreachable, World, approving


LIVE_IN_THREAD_MAX = 3
"""Enough for an order to be lost; more would only wait."""

STUCK_S = 300.0
"""No proof takes so long; a lane that does not move is a finding."""

SETTLE_S_MAX = 240.0
"""For what is left when all faults are over."""

REPORT_S = 5.0

RING_S = 1.0
"""What is rung comes back at once; else a supervisor whose server ends often pauses for long."""

IN_THE_WAY = "A server that is not ours"
ORPHAN_S = 20.0
"""A server finishes its turns and goes, in 10 s at most; one that does not is the operator's."""


class Drill:
    """One world, tortured once."""

    def __init__(self, world: World, inputs: list[Input], version: str) -> None:
        self.world = world
        self.version = version
        self.armoury = Armoury(world)
        self._inputs = inputs
        self._admitted: Counter[int] = Counter()
        self._compacted: set[int] = set()
        #: Why each was in doubt that the operator gave up.
        self._given_up: dict[str, str] = {}
        self._began = time.monotonic()
        #: Servers that outlived their supervisor until our operator ended them.
        self.orphans = 0
        self._blocked_since = time.monotonic()
        self._shots: deque[Future[None]] = deque()

    def run(self) -> Toll:
        """Deliver all, settle all, and judge."""
        began = time.monotonic()
        self.world.begin()
        with approving(self.world), every(RING_S, self._operate), every(REPORT_S, self._report):
            self._deliver_all()
            self._settle()
        aftermath = Aftermath(
            self.world, self.armoury, self._given_up, self._compacted, self.orphans
        )
        return aftermath.reckon(self.version, time.monotonic() - began)

    def _operate(self) -> None:
        """Ring, and give up what nobody can know."""
        self.world.ring()
        self._end_orphans()
        for name, found in self.world.board.stands().items():
            patience_s = UNKNOWN_S.get(found.reason or "", STUCK_S)
            is_old = time.time() - found.changed_at_s > patience_s
            if found.phase == "uncertain" and found.reason in UNKNOWN_S and is_old:
                word = ("--as", "failed", "--why", "nobody can know")
                if self.world.machine.run("resolve", name, *word).code == 0:
                    self._given_up[name] = found.reason

    def _end_orphans(self) -> None:
        """End the server of a killed supervisor that stays in the way of the next one's."""
        self.world.note_child()
        if not self.world.problem().startswith(IN_THE_WAY):
            self._blocked_since = time.monotonic()
        elif time.monotonic() - self._blocked_since > ORPHAN_S:
            self.orphans += self.world.kill_orphans()
            self._blocked_since = time.monotonic()

    def _deliver_all(self) -> None:
        lanes: dict[int, list[Input]] = {}
        for each in self._inputs:
            lanes.setdefault(each.thread, []).append(each)
        with (
            ThreadPoolExecutor(len(lanes), "lane") as workers,
            ThreadPoolExecutor(len(lanes) * LIVE_IN_THREAD_MAX + 2, "shot") as shooters,
        ):
            work = [workers.submit(self._deliver_lane, lane, shooters) for lane in lanes.values()]
            for done in work:
                done.result()
            while self._shots:
                self._shots.popleft().result()

    def _deliver_lane(self, lane: list[Input], shooters: ThreadPoolExecutor) -> None:
        for place, each in enumerate(lane):
            names = [earlier.id for earlier in lane[:place]]
            if not self.world.board.wait_for(lambda names=names: self._has_room(names), STUCK_S):
                raise TimeoutError(f"{each.id} cannot be admitted: {self._live(names)}")
            if each.turn is Turn.COMPACTION:
                self._compact(each)
            self.armoury.arm(each)
            self.world.admit(each)
            self._admitted[each.thread] += 1
            if each.shot is not None:
                self._shots.append(shooters.submit(self.armoury.shoot, each))

    def _has_room(self, names: list[str]) -> bool:
        return len(self._live(names)) < LIVE_IN_THREAD_MAX

    def _live(self, names: list[str]) -> list[str]:
        stands = self.world.board.stands()
        return [name for name in names if name not in stands or stands[name].phase in LIVE]

    def _compact(self, each: Input) -> None:
        thread = self.world.threads[each.thread]
        self._compacted.add(each.thread)
        try:
            with self.world.visit() as truth:
                truth.resume(thread)
                truth.call("thread/compact/start", threadId=thread)
        except Unreachable:
            pass  # the server is away just now

    def _settle(self) -> None:
        """Wait until nothing is live, and nothing waits to be read back."""
        board = self.world.board

        def is_settled() -> bool:
            stands = board.stands().values()
            return not any(found.phase in LIVE for found in stands)

        board.wait_for(is_settled, SETTLE_S_MAX)
        board.wait_for(lambda: all(found.is_stored for found in board.stands().values()), 5.0)

    def _report(self) -> None:
        phases = Counter(found.phase for found in self.world.board.stands().values())
        done = phases["surfaced"] + phases["failed"]
        elapsed_s = time.monotonic() - self._began
        left_s = elapsed_s / done * (len(self._inputs) - done) if done else 0
        sys.stderr.write(
            f"{self.version} {self.world.way}: {done} of {len(self._inputs)} delivered,"
            f" {self.armoury.done.total()} faults, {phases['uncertain']} uncertain,"
            f" {elapsed_s:.0f} s, {left_s:.0f} s to go\n"
        )


def torture(
    root: Path, *, binary: str, version: str, way: Way, inputs: list[Input], seed: int
) -> Toll:
    """Torture one world in a directory of its own."""
    with World(root, binary=binary, way=way, inputs=inputs, seed=seed) as world:
        return Drill(world, inputs, version).run()


@contextlib.contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Do something again and again, for as long as the block lasts."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(seconds):
            act()

    thread = threading.Thread(target=repeat, name=act.__name__)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
