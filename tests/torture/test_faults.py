"""What a fault explains, and what it does not."""

import pytest

from tests.torture.faults import Window, excuse_of
from tests.torture.plan import Fault


KILL = Window(Fault.SERVER_KILLED, 100.0, 101.0)
FULL = Window(Fault.DISK_FULL, 50.0, 55.0)


@pytest.mark.parametrize(
    ("shown_at_s", "excuse"),
    [
        (98.9, None),
        (99.5, "server killed +0.500 s from when it was shown"),
        (101.5, None),
    ],
)
def test_a_kill_explains_what_was_shown_just_before_it(shown_at_s: float, excuse: str | None):
    assert excuse_of([KILL], shown_at_s) == excuse


def test_a_full_disk_explains_all_that_the_same_server_shows_later():
    assert excuse_of([FULL], 54.0) == "disk full -4.000 s from when it was shown"
    assert excuse_of([KILL, FULL], 80.0) == "this server's disk full 25.000 s before it was shown"
    assert excuse_of([KILL, FULL], 110.0) is None


@pytest.mark.parametrize("fault", [Fault.LINK_CUT, Fault.INTERRUPTED, Fault.DATABASE_LOCKED])
def test_other_faults_explain_nothing(fault: Fault):
    assert excuse_of([Window(fault, 100.0, 101.0)], 100.5) is None
