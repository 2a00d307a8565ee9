"""The plan of a torture is a function of its seed."""

from collections import Counter

import pytest

from tests.torture.plan import CUTS, Fault, Turn, Way, draw_inputs, is_asking


def draw(seed: int = 1, way: Way = Way.PROXY, **changes):
    return draw_inputs(seed, way, **{"deliveries": 2000, "threads": 8, "faults": 0.3} | changes)


@pytest.mark.parametrize("way", Way)
def test_a_seed_makes_one_plan(way: Way):
    assert draw(way=way) == draw(way=way)
    assert draw(1, way) != draw(2, way)


def test_each_delivery_has_an_id_of_its_own_and_some_say_the_same():
    inputs = draw()
    assert len({each.id for each in inputs}) == len(inputs)
    texts = Counter(each.text for each in inputs)
    assert sum(count > 1 for count in texts.values()) == 8
    threads = {each.text: each.thread for each in inputs}
    assert all(threads[each.text] == each.thread for each in inputs)


def test_faults_come_as_often_as_was_asked_and_of_every_kind():
    shots = [each.shot for each in draw() if each.shot is not None]
    assert 0.27 < len(shots) / 2000 < 0.33
    assert {shot.fault for shot in shots} == set(Fault)
    assert all(0 <= shot.delay_s <= 0.5 for shot in shots)
    locks = [shot.lasts_s for shot in shots if shot.fault is Fault.DATABASE_LOCKED]
    assert all(20 <= lasts_s <= 40 for lasts_s in locks)
    assert all(each.shot is None for each in draw(faults=0))


@pytest.mark.parametrize("way", [Way.DIRECT, Way.SPAWN])
def test_only_a_proxy_cuts(way: Way):
    assert not CUTS & {each.shot.fault for each in draw(way=way) if each.shot is not None}


def test_commands_are_run_where_somebody_approves():
    asking = {each.thread for each in draw() if each.turn is Turn.COMMAND}
    assert asking
    assert all(map(is_asking, asking))
