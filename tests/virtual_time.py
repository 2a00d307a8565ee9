"""Time that jumps: an event loop that never waits, for tests of whatever waits.

When every task waits for a timer, the clock is set to the first one. So an hour costs nothing, the
order is that of the timers, and `fail_after`, `move_on_after` and `anyio.sleep` follow, since they
ask the loop for the time. Use it through a fixture:

    @pytest.fixture
    def anyio_backend():
        return VIRTUAL_TIME

What the clock cannot see does not go with it, and says so: file descriptors, threads, processes.
"""

import asyncio
import selectors


class NothingWillHappen(RuntimeError):
    """Every task waits and no timer is set: the test would hang for ever."""


class NoDescriptors(RuntimeError):
    """Virtual time does not pass while a real file descriptor is waited for."""


class JumpingSelector(selectors.SelectSelector):
    """Waits for nothing: sets its own clock forward by the time it was to wait."""

    def __init__(self):
        super().__init__()
        self.now = 0.0

    def register(self, fileobj, events, data=None):
        # The first is the loop's own pipe, by which threads would wake it.
        if self.get_map():
            raise NoDescriptors(f"A real file descriptor under virtual time: {fileobj!r}.")
        return super().register(fileobj, events, data)

    def select(self, timeout=None):
        if timeout is None:
            raise NothingWillHappen("Every task waits, and no timer is set.")
        self.now += max(0.0, timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop of asyncio on a clock that jumps; it starts at 0."""

    def __init__(self):
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)
        # A timer is due within this much of the clock. After some weeks a nanosecond, the default,
        # is less than a float can tell, and no timer would ever be due.
        self._clock_resolution = 1e-6

    def time(self):
        return self._jumping.now


VIRTUAL_TIME = ("asyncio", {"loop_factory": VirtualTimeLoop})
"""What the fixture `anyio_backend` returns, to run a test in virtual time."""
