"""A scripted model that holds each answer for as long as was said, or until it is released."""

from codexdrv.demo.model import ScriptedModel
from codexdrv.demo.script import Gate, Hold


class PatientModel(ScriptedModel):
    """Nobody has to release what it holds."""

    def __init__(self) -> None:
        super().__init__()
        self._hold_s: dict[str, float] = {}

    def hold(self, text: str, hold_s: float) -> None:
        """Hold the answer to a text for so long at most."""
        if hold_s > 0:
            self._hold_s[text] = hold_s
            self.script[text] = Hold("done")

    def _opens(self, gate: Gate) -> bool:
        def is_open() -> bool:
            return self._stopped or gate.text in self._released

        with self._changed:
            self._changed.wait_for(is_open, self._hold_s.get(gate.text, 0.0))
            return not self._stopped
