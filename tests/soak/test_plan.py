"""The plan of a soak is a function of its seed."""

from collections import Counter
from itertools import islice

import pytest

from codexdrv.rules.lifecycle import WhenBusy
from tests.soak.plan import ONLY, OUTLIVED, Fault, Mode, draw_faults, draw_inputs


ALL = frozenset(Fault)


def inputs(count: int = 2000, *, seed: int = 1, mode: Mode = Mode.ATTACH):
    return list(islice(draw_inputs(seed, mode, threads=20, named=15), count))


@pytest.mark.parametrize("mode", Mode)
def test_a_seed_makes_one_plan(mode: Mode):
    assert draw_faults(1, mode, 60, ALL) == draw_faults(1, mode, 60, ALL)
    assert draw_faults(1, mode, 60, ALL) != draw_faults(2, mode, 60, ALL)
    assert inputs(mode=mode) == inputs(mode=mode)


@pytest.mark.parametrize("mode", Mode)
def test_each_fault_of_a_mode_comes_about_equally_often(mode: Mode):
    counts = Counter(draw_faults(1, mode, 60, ALL))
    assert set(counts) == {each for each in Fault if ONLY.get(each, mode) is mode}
    assert max(counts.values()) - min(counts.values()) <= 1
    assert counts.total() == 60


@pytest.mark.parametrize("mode", Mode)
def test_one_life_goes_through_the_first_half(mode: Mode):
    faults = draw_faults(1, mode, 60, ALL)
    assert set(faults[:30]) == OUTLIVED
    assert set(faults[30:]) - OUTLIVED


def test_a_few_faults_are_drawn_among_those_that_are_wanted():
    assert draw_faults(1, Mode.ATTACH, 3, frozenset({Fault.DEAF})) == []
    wanted = frozenset({Fault.DISK_FULL, Fault.DEAF})
    assert draw_faults(1, Mode.ATTACH, 3, wanted) == [Fault.DISK_FULL] * 3
    assert draw_faults(1, Mode.SPAWN, 0, ALL) == []


def test_all_threads_are_delivered_into_in_every_way():
    drawn = inputs()
    assert len({each.id for each in drawn}) == len(drawn)
    assert {each.thread for each in drawn} == set(range(20))
    assert {each.when_busy for each in drawn} == {WhenBusy.STEER, WhenBusy.WAIT}
    assert {each.thread for each in drawn if each.by_target} == set(range(15))
    held = [each.hold_s for each in drawn if each.hold_s]
    assert 0.3 < len(held) / len(drawn) < 0.46
    assert max(held) > 20
