import asyncio
import socket
import time

import anyio
import pytest

from tests.virtual_time import VIRTUAL_TIME, NoDescriptors, NothingWillHappen, VirtualTimeLoop


HOUR_S = 3600.0


@pytest.fixture
def anyio_backend():
    return VIRTUAL_TIME


async def test_an_hour_passes_at_once():
    began = time.monotonic()
    await anyio.sleep(HOUR_S)
    assert anyio.current_time() == HOUR_S
    assert time.monotonic() - began < 1


async def test_timers_fire_in_their_order_at_their_time():
    fired = []

    async def fire_after(seconds):
        await anyio.sleep(seconds)
        fired.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        for seconds in (0.3, 3600.0, 0.1, 86_400.0 * 400, 0.2):
            tasks.start_soon(fire_after, seconds)
    assert fired == [0.1, 0.2, 0.3, 3600.0, 86_400.0 * 400]


async def test_time_stands_while_somebody_can_run():
    for _ in range(100):
        await anyio.lowlevel.checkpoint()
    assert anyio.current_time() == 0


async def test_deadlines_follow():
    with pytest.raises(TimeoutError), anyio.fail_after(10):
        await anyio.sleep_forever()
    with anyio.move_on_after(20) as waiting:
        await anyio.Event().wait()
    assert waiting.cancelled_caught
    assert anyio.current_time() == 30


async def test_a_deadline_that_is_not_reached_cuts_nothing():
    with anyio.fail_after(10):
        await anyio.sleep(9.999)
    assert anyio.current_time() == 9.999


async def test_a_timer_that_was_taken_back_moves_no_clock():
    with anyio.move_on_after(HOUR_S):
        await anyio.sleep(1)
    await anyio.sleep(1)
    assert anyio.current_time() == 2


async def test_a_real_file_descriptor_is_refused():
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(NoDescriptors):
        await anyio.wait_readable(ours)


def test_a_wait_that_nothing_can_end_is_an_error():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        waiting = loop.create_task(asyncio.Event().wait())
        with pytest.raises(NothingWillHappen):
            loop.run_forever()
        waiting.cancel()
