"""The model holds an answer until its time is over, or it is released."""

from codexdrv.demo.script import Gate, Hold
from tests.soak.model import PatientModel


def test_what_is_held_is_answered_when_its_time_is_over_or_it_is_released():
    model = PatientModel()
    model.hold("short", 0.01)
    model.hold("not at all", 0.0)
    model.hold("long", 3600.0)
    assert set(model.script) == {"short", "long"}
    assert model.script["long"] == Hold("done")
    assert model._opens(Gate("short"))
    model.release("long")
    assert model._opens(Gate("long"))
    model.stop()
    assert not model._opens(Gate("long"))
