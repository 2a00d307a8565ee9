"""The wall clock of a world."""

import anyio

from tests.fakes.orders import NOW_MS


def wall_clock_ms() -> int:
    """Say what time it is: the loop's own, from some day on."""
    return NOW_MS + round(anyio.current_time() * 1000)
