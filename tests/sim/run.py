"""Run one world: set it up, let something happen, end the faults, and look whether it settles."""

import logging
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import structlog

from codexdrv import driver
from tests.fakes.threads import begin_ids_anew
from tests.sim.clock import wall_clock_ms
from tests.sim.laws import LawBroken
from tests.sim.repeatable import run_repeatably
from tests.sim.world import World


class Ran(NamedTuple):
    """What came of a run."""

    seed: int
    #: Which law does not hold; None: all do.
    broken: LawBroken | None
    transcript: list[str]
    steps: int

    def show(self) -> str:
        return "\n".join([*self.transcript, f"seed {self.seed}: {self.broken or 'all laws hold'}"])


Play = Callable[[World], Awaitable[None]]
"""What happens; the faults end behind it."""


def run_world(seed: int, play: Play, **kind) -> Ran:
    """Run a world to its end."""
    begin_ids_anew()
    directory = Path(tempfile.mkdtemp(prefix="codexdrv-sim-", dir=_memory()))
    worlds = []

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            world = World(seed, directory, tasks, **kind)
            worlds.append(world)
            await play(world)
            world.heal()
            await world.settle()
            tasks.cancel_scope.cancel()

    try:
        with _simulated_clock(), _without_logs():
            run_repeatably(run)
    finally:
        for world in worlds:
            world.caller.close()
        shutil.rmtree(directory)
    (world,) = worlds
    return Ran(seed, world.broken, world.transcript, world.steps.count)


def _memory() -> str | None:
    """Say where files are in memory only, if there is such a place."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextmanager
def _simulated_clock() -> Iterator[None]:
    """Give the driver the simulated wall clock.

    Patched: the driver imports the clock, since nobody but a simulator has another one.
    """
    real, driver.now_ms = driver.now_ms, wall_clock_ms
    try:
        yield
    finally:
        driver.now_ms = real


@contextmanager
def _without_logs() -> Iterator[None]:
    """Say nothing: the transcript does, and thousands of runs would fill a disk."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)
