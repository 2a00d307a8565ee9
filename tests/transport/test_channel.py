from contextlib import asynccontextmanager

import anyio
import pytest

from codexdrv.errors import LinkLost, MalformedFrame, OutboxFull
from codexdrv.transport.channel import (
    BATCH_BYTES_MAX,
    OUTBOX_MESSAGES_MAX,
    READ_BYTES_MAX,
    UNSENT_BYTES_MAX,
    Channel,
)
from tests.fakes.line_framing import LineFraming
from tests.fakes.streams import open_pair, receive_all, receive_exactly


class Inbox:
    """What a channel has delivered, in order."""

    def __init__(self):
        self.messages = []
        self._changed = anyio.Event()

    def __call__(self, message):
        self.messages.append(message)
        self._changed.set()

    async def wait_for(self, *expected):
        with anyio.fail_after(5):
            while self.messages != list(expected):
                self._changed = anyio.Event()
                await self._changed.wait()


def open_channel(capacity=65_536, **framing):
    stream, peer = open_pair(capacity)
    return Channel(stream, LineFraming(**framing)), stream, peer


@asynccontextmanager
async def running(channel, on_message=lambda _: None):
    """Run a channel for a while, then cancel it."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(channel.run, on_message)
        yield
        tasks.cancel_scope.cancel()


async def run_to_the_end(channel, on_message=lambda _: None):
    with anyio.fail_after(5):
        await channel.run(on_message)


async def test_what_is_due_goes_out_in_one_write():
    channel, stream, peer = open_channel()
    for message in (b"a", b"b", b"c"):
        channel.post(message)
    async with running(channel):
        await receive_exactly(peer, 6)
    assert stream.sent == [b"a\nb\nc\n"]


async def test_what_comes_while_a_write_waits_goes_out_in_the_next_one():
    channel, stream, peer = open_channel(capacity=4)
    channel.post(b"long message")
    async with running(channel):
        await stream.blocked.wait()
        channel.post(b"a")
        channel.ping()
        channel.post(b"b")
        await receive_exactly(peer, len(b"long message\nPING\na\nb\n"))
    assert stream.sent == [b"long message\n", b"PING\na\nb\n"]


async def test_a_posted_message_wakes_an_idle_writer():
    channel, _, peer = open_channel()
    async with running(channel):
        await anyio.wait_all_tasks_blocked()
        channel.post(b"a")
        assert await receive_exactly(peer, 2) == b"a\n"


async def test_a_withdrawn_message_is_never_sent():
    channel, _, peer = open_channel()
    first, second = channel.post(b"first"), channel.post(b"second")
    assert first.withdraw()
    assert first.withdraw()
    async with running(channel):
        assert await receive_exactly(peer, 7) == b"second\n"
    assert not first.is_started
    assert second.is_started


async def test_one_write_ends_with_the_message_that_makes_it_big_enough():
    channel, stream, _ = open_channel()
    tickets = [channel.post(b"x" * (BATCH_BYTES_MAX // 2)) for _ in range(4)]
    async with running(channel):
        await stream.blocked.wait()
        assert [ticket.is_started for ticket in tickets] == [True, True, False, False]


async def test_no_byte_is_written_before_its_ticket_says_so():
    channel, stream, _ = open_channel()
    ticket = channel.post(b"a")
    assert (ticket.is_started, stream.sent) == (False, [])
    async with running(channel):
        await anyio.wait_all_tasks_blocked()
        assert (ticket.is_started, stream.sent) == (True, [b"a\n"])


async def test_a_full_outbox_takes_nothing_until_there_is_room():
    channel, _, _ = open_channel()
    tickets = [channel.post(b"x") for _ in range(OUTBOX_MESSAGES_MAX)]
    with pytest.raises(OutboxFull) as full:
        channel.post(b"one more")
    assert not full.value.maybe_written
    tickets[0].withdraw()
    channel.post(b"one more")


async def test_a_peer_that_does_not_read_is_heard_all_the_same():
    channel, stream, peer = open_channel(capacity=8)
    inbox = Inbox()
    channel.post(b"x" * 1000)
    async with running(channel, inbox):
        await stream.blocked.wait()
        for number in range(50):
            await peer.send(b"PING\n%d\n" % number)
        await inbox.wait_for(*(b"%d" % number for number in range(50)))
        # Only now does it read: the replies were kept.
        assert (await receive_exactly(peer, 1001 + 250)).endswith(b"x\n" + b"PONG\n" * 50)


async def test_a_big_message_of_ours_that_the_peer_does_not_read_is_no_reason_to_leave():
    channel, stream, peer = open_channel(capacity=8)
    inbox = Inbox()
    channel.post(b"x" * UNSENT_BYTES_MAX)
    async with running(channel, inbox):
        await stream.blocked.wait()
        await peer.send(b"PING\nPING\na\n")
        await inbox.wait_for(b"a")


async def test_the_time_of_the_last_bytes_is_noted_also_when_they_are_no_whole_message():
    channel, _, peer = open_channel()
    made_at = channel.last_received_at
    async with running(channel):
        await peer.send(b"half a line")
        await anyio.wait_all_tasks_blocked()
        assert made_at < channel.last_received_at <= anyio.current_time()
        assert channel.last_message_at is None


async def test_the_time_of_the_last_message_is_not_that_of_the_noise_behind_it():
    channel, _, peer = open_channel()
    inbox = Inbox()
    async with running(channel, inbox):
        await peer.send(b"a\n")
        await inbox.wait_for(b"a")
        said_at = channel.last_message_at
        assert said_at == channel.last_received_at
        await peer.send(b"PING\n")
        await anyio.wait_all_tasks_blocked()
        assert said_at == channel.last_message_at < channel.last_received_at


async def test_a_malformed_message_ends_it_without_waiting_for_more_bytes():
    channel, _, peer = open_channel()
    inbox = Inbox()
    await peer.send(b"a\nMALFORMED\nb\n")
    with pytest.raises(MalformedFrame):
        await run_to_the_end(channel, inbox)
    assert inbox.messages == [b"a"]


async def test_what_on_message_raises_comes_out_as_it_is():
    channel, _, peer = open_channel()

    def refuse(message):
        raise KeyError(message)

    await peer.send(b"a\n")
    with pytest.raises(KeyError):
        await run_to_the_end(channel, refuse)


async def test_a_cancelled_channel_is_closed():
    channel, stream, _ = open_channel(capacity=4)
    begun = channel.post(b"long message")
    async with running(channel):
        await stream.blocked.wait()
        waiting = channel.post(b"waiting")
    assert begun.is_started
    assert not waiting.is_started
    with pytest.raises(LinkLost):
        channel.post(b"late")


async def test_a_message_posted_from_on_message_at_the_end_is_not_started():
    channel, _, peer = open_channel()
    tickets = []

    await peer.send(b"a\nBYE\n")
    with pytest.raises(LinkLost):
        await run_to_the_end(channel, lambda _: tickets.append(channel.post(b"answer")))
    await channel.aclose()
    assert not tickets[0].is_started
    assert b"answer" not in await receive_all(peer)


async def test_a_broken_write_does_not_hide_what_the_peer_said_before_it_left():
    channel, stream, peer = open_channel(capacity=10 * READ_BYTES_MAX)
    inbox = Inbox()
    message = b"x" * (READ_BYTES_MAX - 1)
    stream.breaks_after = 0
    channel.post(b"a")
    for _ in range(10):
        await peer.send(message + b"\n")
    await peer.aclose()
    with pytest.raises(LinkLost):
        await run_to_the_end(channel, inbox)
    assert inbox.messages == [message] * 10


async def test_after_a_broken_write_nothing_can_be_posted_while_the_rest_is_read():
    channel, stream, peer = open_channel(capacity=10 * READ_BYTES_MAX)
    stream.breaks_after = 0
    channel.post(b"a")
    for _ in range(10):
        await peer.send(b"x" * (READ_BYTES_MAX - 1) + b"\n")
    with pytest.raises(LinkLost, match="The connection has ended"):
        await run_to_the_end(channel, channel.post)


async def test_a_broken_read_is_a_lost_link():
    channel, stream, _ = open_channel()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.aclose)
        with pytest.raises(LinkLost, match="while we read"):
            await run_to_the_end(channel)


async def test_a_write_cut_in_the_middle_retires_the_connection_without_another_byte():
    channel, stream, peer = open_channel()
    stream.breaks_after = 3
    ticket = channel.post(b"abcdef")
    with pytest.raises(LinkLost):
        await run_to_the_end(channel)
    stream.breaks_after = None
    await channel.aclose()
    assert not ticket.withdraw()
    assert await receive_all(peer) == b"abc"


async def test_a_write_cut_by_cancelling_is_not_followed_by_a_goodbye():
    channel, stream, peer = open_channel(capacity=4)
    channel.post(b"long message")
    async with running(channel):
        await stream.blocked.wait()
    await channel.aclose()
    assert await receive_all(peer) == b"long"


async def test_closing_says_goodbye_behind_what_was_sent_and_closes_the_stream():
    channel, _, peer = open_channel()
    async with running(channel):
        channel.post(b"a")
        await anyio.wait_all_tasks_blocked()
    await channel.aclose()
    assert await receive_all(peer) == b"a\nBYE\n"


async def test_closing_works_inside_a_cancelled_scope():
    channel, _, peer = open_channel()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await channel.aclose()
    assert await receive_all(peer) == b"BYE\n"


async def test_closing_does_not_wait_for_a_peer_that_does_not_read():
    channel, _, peer = open_channel(capacity=2)
    with anyio.fail_after(5):
        await channel.aclose()
    assert await receive_all(peer) == b"BY"


async def test_closing_a_broken_stream_is_no_error():
    channel, _, peer = open_channel()
    await peer.aclose()
    await channel.aclose()
    await channel.aclose()
