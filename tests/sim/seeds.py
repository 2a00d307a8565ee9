"""A run by chance: everything of it follows from its seed."""

from collections.abc import Callable
from random import Random

import anyio

from tests.sim.faults import FAULTS, PLANTABLE, Faults
from tests.sim.run import Ran, run_world
from tests.sim.world import World


Happening = Callable[[Faults], None]


def run_seed(seed: int) -> Ran:
    """Run the world of a seed."""
    chance = Random(f"schedule {seed}")
    is_old, knows_peer = chance.random() < 0.3, chance.random() < 0.8

    async def play(world: World) -> None:
        await play_by_chance(world, chance)

    return run_world(seed, play, is_old=is_old, knows_peer=knows_peer)


async def play_by_chance(world: World, chance: Random) -> None:
    """Let deliveries and faults happen, close together or far apart."""
    threads = [
        world.server.add_thread(is_used=chance.random() < 0.75, is_legacy=world.server.is_old)
        for _ in range(chance.choice((1, 1, 1, 2, 3)))
    ]
    faults = Faults(world, threads, chance)
    world.begin_life()
    for at_s, happening in sorted(_plan(chance), key=lambda planned: planned[0]):
        await anyio.sleep(max(0.0, at_s - anyio.current_time()))
        if happening in PLANTABLE and chance.random() < 0.4:
            faults.plant(happening)
        else:
            happening(faults)
    await anyio.sleep(chance.choice((0.0, 5.0, 60.0)))


def _plan(chance: Random) -> list[tuple[float, Happening]]:
    """Say what is to happen when: most of it about the time of a delivery."""
    happenings, weights = zip(*((each, weight) for weight, each in FAULTS), strict=True)
    span_s = chance.choice((2.0, 20.0, 120.0))
    plan: list[tuple[float, Happening]] = []
    for _ in range(chance.randint(2, 6)):
        at_s = chance.uniform(1.0, 1.0 + span_s)
        plan.append((at_s, Faults.admit))
        others = chance.choices(happenings, weights, k=chance.randint(0, 4))
        plan += [(at_s + chance.uniform(-1.0, 2.0), happening) for happening in others]
    return plan
