"""Whole: two deliveries, disturbed at every step, and killed at every pair of steps."""

import pytest

from tests.sim.steps import DISTURBANCES, run_pairs, run_singles, run_with


PARTS = 8


@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize("burst", DISTURBANCES)
def test_every_disturbance_at_every_step(burst, is_old):
    for ran in run_singles(burst, is_old=is_old):
        assert ran.broken is None, ran.show()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("first", range(1, PARTS + 1))
def test_every_pair_of_kills(first):
    for ran in run_pairs(is_old=False, first=first, stride=PARTS):
        assert ran.broken is None, ran.show()


def test_the_small_run_is_what_it_is_said_to_be():
    ran = run_with()
    story = "\n".join(ran.transcript)
    assert ran.broken is None
    assert ran.steps > 40
    assert story.count("is shown m1") == story.count("is shown m2") == 1
