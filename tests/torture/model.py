"""A scripted model whose gates open by themselves, after a while of their own."""

import random

from codexdrv.demo.model import ScriptedModel
from codexdrv.demo.script import COMPACTION, Gate, Hold, RunCommand, Step
from tests.torture.plan import HOLD_S_MAX, Input, Turn


class ImpatientModel(ScriptedModel):
    """Holds an answer for some of HOLD_S_MAX; nobody has to release it."""

    def __init__(self, inputs: list[Input], seed: int) -> None:
        super().__init__(
            {each.text: step for each in inputs if (step := _step(each)) is not None}
            | {COMPACTION: Hold("a summary of it all")}
        )
        self._chance = random.Random(seed)

    def _opens(self, gate: Gate) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, self._chance.uniform(0, HOLD_S_MAX))
            return not self._stopped


def _step(each: Input) -> Step | None:
    match each.turn:
        case Turn.HELD:
            return Hold("done")
        case Turn.COMMAND:
            return RunCommand("touch asked", then="it ran")
    return None
