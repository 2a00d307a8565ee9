import asyncio
import os
import socket
from contextlib import ExitStack

import anyio
import pytest

from codexdrv.transport.stream import DescriptorStream
from tests.fakes.streams import receive_all, receive_exactly


LARGE = bytes(range(256)) * 8192
"""2 MiB: more than a pipe or a socket holds."""
BROKEN = (OSError, anyio.ClosedResourceError)


def open_sockets():
    """Connect two sockets; each reads and writes."""
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    return (one, one), (other, other)


def open_pipes():
    """Lay two pipes, one for each direction."""
    (one_reads, other_writes), (other_reads, one_writes) = open_pipe(), open_pipe()
    return (one_reads, one_writes), (other_reads, other_writes)


def open_pipe():
    numbers = os.pipe()
    for number in numbers:
        os.set_blocking(number, False)
    reading, writing = numbers
    return open(reading, "rb", buffering=0), open(writing, "wb", buffering=0)


@pytest.fixture(params=[open_sockets, open_pipes])
def descriptors(request):
    """What one end reads and writes, and what the other one does."""
    one, other = request.param()
    with ExitStack() as exits:
        for descriptor in {*one, *other}:
            exits.enter_context(descriptor)
        yield one, other


@pytest.fixture
def pair(descriptors):
    one, other = descriptors
    return DescriptorStream(*one), DescriptorStream(*other)


# Bytes


async def test_bytes_arrive_in_order_both_ways(pair):
    one, other = pair
    for data in (b"ab", b"cd"):
        await one.send(data)
        await other.send(data.upper())
    assert await receive_exactly(other, 4) == b"abcd"
    assert await receive_exactly(one, 4) == b"ABCD"


async def test_no_more_is_received_than_was_asked_for(pair):
    one, other = pair
    await one.send(b"abc")
    assert await other.receive(2) == b"ab"
    assert await other.receive(2) == b"c"


async def test_nothing_is_sent_at_once(pair):
    one, other = pair
    await one.send(b"")
    await one.send(b"x")
    assert await other.receive() == b"x"


async def test_what_is_sent_may_be_any_bytes(pair):
    one, other = pair
    for data in (b"a", bytearray(b"b"), memoryview(b"c")):
        await one.send(data)
    assert await receive_exactly(other, 3) == b"abc"


async def test_a_receive_waits_for_bytes(pair):
    one, other = pair
    received = []

    async def receive():
        received.append(await one.receive())

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            assert received == []
            await other.send(b"x")
    assert received == [b"x"]


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


async def test_a_task_that_receives_or_sends_all_the_time_lets_the_others_run(pair):
    one, other = pair
    turns = []

    async def count_turns():
        while True:
            turns.append(len(turns))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count_turns)
        for _ in range(10):
            await one.send(b"x")
            await other.receive(1)
        tasks.cancel_scope.cancel()
    assert len(turns) >= 10


async def test_two_cannot_wait_for_bytes_at_once(pair):
    one, _ = pair
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.receive)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(anyio.BusyResourceError):
            await one.receive()
        tasks.cancel_scope.cancel()


# Cancelling


async def test_a_receive_that_is_cancelled_loses_nothing(pair):
    one, other = pair
    with anyio.CancelScope() as scope:
        scope.cancel()
        await one.receive()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.receive)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    await other.send(b"x")
    with anyio.fail_after(5):
        assert await one.receive() == b"x"


async def test_a_read_that_is_cancelled_in_the_moment_in_which_data_comes_leaves_no_error_behind(
    descriptors,
):
    ours, (_, writing) = descriptors
    stream = DescriptorStream(*ours)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.receive)
        await anyio.wait_all_tasks_blocked()
        os.write(writing.fileno(), b"x")
        # In the same turn of the loop: first the cancellation, then the news that it can read.
        asyncio.get_running_loop().call_soon(tasks.cancel_scope.cancel)
    await anyio.lowlevel.checkpoint()
    assert await stream.receive() == b"x"


async def test_a_send_that_is_cancelled_has_sent_the_beginning(pair):
    one, other = pair
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.send, LARGE)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    await one.aclose()
    sent = await receive_all(other)
    assert 0 < len(sent) < len(LARGE)
    assert LARGE.startswith(sent)


# Ends


async def test_a_closed_end_is_the_end_of_the_stream_behind_what_was_sent(pair):
    one, other = pair
    await one.send(b"last words")
    await one.aclose()
    assert await receive_all(other) == b"last words"
    with pytest.raises(anyio.EndOfStream):
        await other.receive()


async def test_one_direction_can_end_alone(pair):
    one, other = pair
    await one.send_eof()
    assert await receive_all(other) == b""
    await other.send(b"x")
    assert await receive_exactly(one, 1) == b"x"
    with pytest.raises(BROKEN):
        await one.send(b"x")
    await one.send_eof()


async def test_a_send_to_an_end_that_is_closed_breaks(pair):
    one, other = pair
    await other.aclose()
    with pytest.raises(BrokenPipeError):
        await one.send(b"x")


async def test_a_send_that_waits_breaks_when_the_other_end_closes(pair):
    one, other = pair
    broken = []

    async def send():
        with pytest.raises(OSError):  # EPIPE, or ECONNRESET of a socket
            await one.send(LARGE)
        broken.append(True)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            await other.aclose()
    assert broken == [True]


async def test_an_end_that_we_closed_is_of_no_use_and_closing_it_again_is_fine(pair):
    one, _ = pair
    await one.aclose()
    await one.aclose()
    await one.send_eof()
    with pytest.raises(anyio.ClosedResourceError):
        await one.send(b"x")
    with pytest.raises(anyio.ClosedResourceError):
        await one.receive()


async def test_closing_wakes_whoever_waits(pair):
    one, _ = pair
    woken = []

    async def wait_in(what):
        with pytest.raises(anyio.ClosedResourceError):
            await what()
        woken.append(what)

    def send_large():
        return one.send(LARGE)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_in, one.receive)
            tasks.start_soon(wait_in, send_large)
            await anyio.wait_all_tasks_blocked()
            await one.aclose()
    assert len(woken) == 2


async def test_the_block_closes_both_directions(descriptors):
    ours, theirs = descriptors
    async with DescriptorStream(*ours):
        pass
    assert await receive_all(DescriptorStream(*theirs)) == b""
    for descriptor in ours:
        assert isinstance(descriptor, socket.socket) or descriptor.closed


# A peer that is over


async def test_a_stream_whose_peer_is_over_ends_though_it_is_held_open(descriptors):
    ours, (_, writing) = descriptors
    asked = []

    def is_over():
        asked.append(True)
        return True

    stream = DescriptorStream(*ours, is_over=is_over)
    os.write(writing.fileno(), b"last words")
    assert await stream.receive() == b"last words"
    assert asked == []
    with anyio.fail_after(5), pytest.raises(anyio.EndOfStream):
        await stream.receive()
    assert asked == [True]


async def test_what_a_peer_said_while_it_ended_is_not_lost(descriptors):
    ours, (_, writing) = descriptors

    def is_over():
        # It was silent until we asked, spoke, and ended.
        if not said:
            said.append(os.write(writing.fileno(), b"last words"))
        return True

    said = []
    stream = DescriptorStream(*ours, is_over=is_over)
    with anyio.fail_after(5):
        assert await stream.receive() == b"last words"
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


async def test_a_peer_that_is_only_silent_is_waited_for(descriptors):
    ours, (_, writing) = descriptors
    asked = anyio.Event()

    def is_over():
        asked.set()
        return False

    async def speak():
        await asked.wait()
        os.write(writing.fileno(), b"at last")

    stream = DescriptorStream(*ours, is_over=is_over)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(speak)
            assert await stream.receive() == b"at last"
