"""The wall clock, for what is shown and kept; waits use anyio's, which is monotonic."""

import time


def now_ms() -> int:
    """Say what time it is: Unix milliseconds."""
    return time.time_ns() // 1_000_000
