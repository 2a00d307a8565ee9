"""Deliveries, one after the other, by the command; what could not be stored is tried again."""

import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Self

from tests.soak.plan import Input
from tests.soak.world import World


TRY_AGAIN_S = 1.0


class Trickle:
    """What a bridge does all day."""

    def __init__(self, world: World, inputs: Iterator[Input], may_refuse: Callable[[], bool]):
        self.world = world
        self.admitted: list[Input] = []
        #: By exit code, how often it could not be stored.
        self.refused: Counter[str] = Counter()
        #: Refusals while nothing was in the way.
        self.broken: list[str] = []
        self._inputs = inputs
        self._may_refuse = may_refuse
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trickle")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        for each in self._inputs:
            while not self._admit(each):
                if self._is_over.wait(TRY_AGAIN_S):
                    return
            self.admitted.append(each)
            if self._is_over.wait(each.pause_s):
                return

    def _admit(self, each: Input) -> bool:
        may_refuse = self._may_refuse()
        try:
            done = self.world.deliver(each)
        except subprocess.TimeoutExpired:
            code, said = "none in time", ""
        else:
            code, said = str(done.code), done.err
        if code == "0":
            return True
        self.refused[code] += 1
        if not may_refuse and not self._may_refuse() and not self._is_over.is_set():
            self.broken.append(f"deliver {each.id}: exit {code}: {said.strip()}")
        return False
