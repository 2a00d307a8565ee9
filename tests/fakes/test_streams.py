"""The stream in memory behaves as a unix socket does, wherever a test relies on it."""

import socket

import anyio
import pytest
from anyio.abc import UNIXSocketStream

from tests.fakes.streams import open_pair, receive_all, receive_exactly


LARGE = bytes(range(256)) * 8192


@pytest.fixture(params=["memory", "unix"])
async def pair(request):
    if request.param == "memory":
        one, other = open_pair()
    else:
        one, other = [await UNIXSocketStream.from_socket(end) for end in socket.socketpair()]
    async with one, other:
        yield one, other


async def test_bytes_arrive_in_order(pair):
    one, other = pair
    await one.send(b"ab")
    await one.send(b"cd")
    assert await receive_exactly(other, 4) == b"abcd"


async def test_no_more_is_received_than_was_asked_for(pair):
    one, other = pair
    await one.send(b"abc")
    assert await other.receive(2) == b"ab"
    assert await other.receive(2) == b"c"


async def test_a_send_waits_for_a_peer_that_does_not_read_and_the_other_way_stays_open(pair):
    one, other = pair
    events = []

    async def send_large():
        await one.send(LARGE)
        events.append("sent")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send_large)
        await anyio.wait_all_tasks_blocked()
        await other.send(b"x")
        assert await receive_exactly(one, 1) == b"x"
        assert events == []
        assert await receive_exactly(other, len(LARGE)) == LARGE
    assert events == ["sent"]


async def test_a_closed_end_is_the_end_of_the_stream_behind_what_was_sent(pair):
    one, other = pair
    await one.send(b"last words")
    await one.aclose()
    assert await receive_all(other) == b"last words"


async def test_one_direction_can_end_alone(pair):
    one, other = pair
    await one.send_eof()
    assert await receive_all(other) == b""
    await other.send(b"x")
    assert await receive_exactly(one, 1) == b"x"


async def test_a_send_to_an_end_that_is_closed_breaks(pair):
    one, other = pair
    await other.aclose()
    with pytest.raises(anyio.BrokenResourceError):
        await one.send(b"x")


async def test_an_end_that_we_closed_is_of_no_use(pair):
    one, _ = pair
    await one.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await one.send(b"x")
    with pytest.raises(anyio.ClosedResourceError):
        await one.receive()


async def test_closing_wakes_a_receive_that_waits(pair):
    one, _ = pair
    woken = []

    async def receive():
        with pytest.raises(anyio.ClosedResourceError):
            await one.receive()
        woken.append(True)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            await one.aclose()
    assert woken == [True]


async def test_two_cannot_receive_at_once(pair):
    one, _ = pair
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.receive)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(anyio.BusyResourceError):
            await one.receive()
        tasks.cancel_scope.cancel()


async def test_a_send_can_break_in_the_middle():
    one, other = open_pair()
    one.breaks_after = 3
    with pytest.raises(anyio.BrokenResourceError):
        await one.send(b"abcdef")
    await one.aclose()
    assert await receive_all(other) == b"abc"
