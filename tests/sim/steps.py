"""A small run, ended or disturbed at every step of the driver, and at every pair of steps."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.sim.faults import Faults
from tests.sim.life import Life
from tests.sim.run import Ran, run_world
from tests.sim.world import World


class Bomb(NamedTuple):
    """Something that happens at a step."""

    step: int
    burst: Callable[[Faults, Life], None]


def kill_driver(_faults: Faults, life: Life) -> None:
    life.die()


def pause_driver(faults: Faults, life: Life) -> None:
    faults.pause(life, 40.0)


def kill_server(faults: Faults, _life: Life) -> None:
    faults.kill_server()


def stop_server(faults: Faults, _life: Life) -> None:
    faults.stop_server()


def cut_link(faults: Faults, _life: Life) -> None:
    faults.cut_link()


DISTURBANCES = (kill_driver, pause_driver, kill_server, stop_server, cut_link)


def run_with(*bombs: Bomb, is_old: bool = False) -> Ran:
    """Deliver two inputs to one thread, with bombs at some steps."""

    async def play(world: World) -> None:
        thread = world.server.add_thread(is_legacy=is_old)
        faults = Faults(world, [thread], world.chance)
        for step, burst in bombs:
            world.steps.bombs[step] = lambda life, burst=burst: burst(faults, life)
        world.begin_life()
        world.admit("m1", thread)
        world.admit("m2", thread)
        await world.settle()

    return run_world(1, play, is_old=is_old)


def run_singles(burst: Callable[[Faults, Life], None], *, is_old: bool) -> Iterator[Ran]:
    """Let a disturbance come at each step."""
    for step in range(1, run_with(is_old=is_old).steps + 1):
        yield run_with(Bomb(step, burst), is_old=is_old)


def run_pairs(*, is_old: bool, stride: int = 1, first: int = 1) -> Iterator[Ran]:
    """Kill the driver at each step, and what comes after it at each later one.

    Args:
        is_old: on a server as 0.144.5.
        stride: of the first kill; the second comes at every step behind it.
        first: where the first kill begins.
    """
    for step in range(first, run_with(is_old=is_old).steps + 1, stride):
        once = run_with(Bomb(step, kill_driver), is_old=is_old)
        yield once
        for later in range(step + 1, once.steps + 1):
            yield run_with(Bomb(step, kill_driver), Bomb(later, kill_driver), is_old=is_old)
