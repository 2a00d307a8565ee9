"""What is said of a queued delivery that nobody looks at yet."""

import pytest

from codexdrv.cli.shapes import Scene, delivery_object, delivery_sentence, explain, one_line
from codexdrv.rules.lifecycle import Delivery, Standing
from codexdrv.rules.ownership import Phase
from tests.fakes.orders import THREAD, make_order


UP = Scene(is_up=True, problem=None, heads={THREAD: "m1"})
DOWN = Scene(is_up=False, problem=None, heads={THREAD: "m1"})
AWAY = Scene(is_up=True, problem="No server listens at /x.sock.", heads={THREAD: "m1"})
QUEUED = Delivery(make_order("m1"), Standing(Phase.QUEUED))
SECOND = Delivery(make_order("m2"), Standing(Phase.QUEUED))


@pytest.mark.parametrize(
    ("delivery", "scene", "reason", "sentence"),
    [
        (QUEUED, UP, None, "m1 is queued."),
        (QUEUED, DOWN, "no_supervisor", "m1 is queued: no supervisor is running."),
        (QUEUED, AWAY, "no_server", "m1 is queued: No server listens at /x.sock."),
        (SECOND, UP, "behind", "m2 is queued: it waits behind m1, which came before."),
        (SECOND, AWAY, "no_server", "m2 is queued: No server listens at /x.sock."),
        (SECOND, DOWN, "no_supervisor", "m2 is queued: no supervisor is running."),
    ],
)
def test_a_queued_delivery_says_what_it_waits_for(delivery, scene, reason, sentence):
    assert delivery_object(delivery, scene)["reason"] == reason
    assert delivery_sentence(delivery, scene) == sentence
    assert (f"queued/{reason}" in one_line(delivery, scene)) is (reason is not None)


def test_the_reason_that_a_lane_wrote_stands_while_it_looks_at_the_delivery():
    held = QUEUED._replace(standing=Standing(Phase.QUEUED, reason="busy", why="a turn runs"))
    assert explain(held, UP) == held
    assert explain(held, DOWN).standing.reason == "no_supervisor"


@pytest.mark.parametrize("phase", [each for each in Phase if each is not Phase.QUEUED])
@pytest.mark.parametrize("scene", [UP, DOWN, AWAY])
def test_every_other_phase_speaks_for_itself(phase, scene):
    delivery = Delivery(make_order("m2"), Standing(phase, reason="because", why="it is so"))
    assert explain(delivery, scene) == delivery
