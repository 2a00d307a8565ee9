"""One line a delivery: its end; doubt is a warning; steps on the way are for the curious."""

import pytest
import structlog

from codexdrv.engine.chronicle import tell
from codexdrv.rules.lifecycle import Delivery, Outcome, Standing
from codexdrv.rules.ownership import Phase
from tests.fakes.orders import NOW_MS, make_order


TEXT = "the secret text"


def told(**standing):
    order = make_order(text=TEXT)
    delivery = Delivery(order, Standing(changed_at_ms=NOW_MS + 250, **standing))
    with structlog.testing.capture_logs() as lines:
        tell(delivery)
    (line,) = lines
    assert TEXT not in str(line)
    assert (line["delivery_id"], line["after_ms"]) == (order.id, 250)
    return line["log_level"], line["event"]


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED, Outcome.INTERRUPTED])
def test_the_end_of_a_delivery_is_its_line(outcome):
    line = told(phase=Phase.SURFACED, stored=True, outcome=outcome)
    assert line == ("info", "delivery.settled")


def test_a_delivery_that_failed_is_settled_with_a_warning():
    assert told(phase=Phase.FAILED, reason="no_rollout") == ("warning", "delivery.settled")


def test_doubt_is_a_warning():
    assert told(phase=Phase.UNCERTAIN, reason="link_lost") == ("warning", "delivery.doubted")


@pytest.mark.parametrize(
    "standing",
    [
        {"phase": Phase.QUEUED},
        {"phase": Phase.PENDING},
        {"phase": Phase.SURFACED, "stored": False, "outcome": Outcome.COMPLETED},
        {"phase": Phase.SURFACED, "stored": True, "outcome": Outcome.RUNNING},
        {"phase": Phase.SURFACED, "stored": True, "outcome": None},
    ],
)
def test_steps_on_the_way_are_for_the_curious(standing):
    assert told(**standing) == ("debug", "delivery.recorded")
