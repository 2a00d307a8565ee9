"""Blocking work beside the event loop: one piece at a time, in the order of asking."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import anyio


Result = TypeVar("Result")


class InThread(Protocol):
    """Run blocking work where it does not block the loop; simulations run it in place."""

    async def __call__(self, work: Callable[[], Result]) -> Result:
        """Run it and wait for its result."""


def in_one_thread() -> InThread:
    """Make a runner with one thread at a time; made inside the event loop."""
    limiter = anyio.CapacityLimiter(1)

    async def run(work: Callable[[], object]) -> object:
        return await anyio.to_thread.run_sync(work, limiter=limiter)

    return run  # type: ignore[return-value]
