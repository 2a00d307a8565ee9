from contextlib import suppress
from itertools import cycle, islice

import anyio
import pytest
from websockets.frames import CloseCode, Frame, Opcode

from codexdrv.errors import FrameTooBig, LinkLost, OutboxFull
from codexdrv.transport.channel import OUTBOX_MESSAGES_MAX
from codexdrv.wire.framing import MESSAGE_BYTES_MAX
from tests.contract.kit import BIG
from tests.contract.ways import JSONL, LINES, WAIT_S, WAYS, WEBSOCKET


CAPPED = [way for way in WAYS if way.kind.has_cap]
WITH_PING = [way for way in WAYS if way.kind is not JSONL]
SIZES = (1, 200, 65_536, 1_500_000)

PINGS = {
    WEBSOCKET: Frame(Opcode.PING, b"x" * 125).serialize(mask=False) * 500,
    LINES: b"PING\n" * 5000,
}
"""Many questions for a sign of life, as the peer writes them."""


def sized(name, count):
    """Make messages of all sizes, each unlike the others."""
    return [b"%s %d " % (name, size) + b"x" * size for size in islice(cycle(SIZES), count)]


async def take(peer, count):
    return [await peer.take() for _ in range(count)]


async def test_messages_of_all_sizes_arrive_in_order_both_ways_at_once(open_channel):
    ours, theirs, taken = sized(b"out", 16), sized(b"in", 16), []

    async def take_all():
        taken.extend(await take(link.peer, len(ours)))

    async with open_channel() as link:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_all)
            for out, back in zip(ours, theirs, strict=True):
                link.channel.post(out)
                await link.peer.send(back)
        await link.until(lambda: len(link.heard) == len(theirs))
    assert (taken == ours, link.heard == theirs) == (True, True)


async def test_many_messages_in_one_write_of_the_peer_arrive_in_order(open_channel):
    messages = [b"in %d" % number for number in range(10_000)]
    async with open_channel() as link:
        await link.peer.send(*messages)
        await link.until(lambda: len(link.heard) == len(messages))
    assert link.heard == messages


async def test_what_was_posted_before_the_peer_has_greeted_us_arrives_first(open_channel):
    async with open_channel(is_greeted=False) as link:
        link.channel.post(b"one")
        await anyio.wait_all_tasks_blocked()
        link.channel.post(b"two")
        await link.peer.greet()
        link.channel.post(b"three")
        assert await take(link.peer, 3) == [b"one", b"two", b"three"]


async def test_one_byte_at_a_time_is_enough(open_channel):
    # The greeting, too.
    async with open_channel(is_thin=True) as link:
        for message in (b"{}", "é日".encode(), b"x" * 130):
            link.channel.post(b"out " + message)
            await link.peer.send(b"in " + message)
            assert await link.peer.take() == b"out " + message
        await link.until(lambda: len(link.heard) == 3)
        await link.peer.say_goodbye()
        assert type(await link.ended()) is LinkLost
    assert link.heard == [b"in {}", "in é日".encode(), b"in " + b"x" * 130]


async def test_a_slow_reader_gets_all_messages_in_order(open_channel):
    messages = [b"out %d" % number for number in range(10_000)]
    taken, fulls = [], 0
    async with open_channel() as link:
        for message in messages:
            while True:
                try:
                    link.channel.post(message)
                except OutboxFull:
                    fulls += 1
                    taken.append(await link.peer.take())
                else:
                    break
        taken += await take(link.peer, len(messages) - len(taken))
    assert taken == messages
    assert fulls > 0


async def test_an_outbox_that_is_full_refuses_one_more_and_keeps_the_rest(open_channel):
    messages = [b"out %d" % number for number in range(OUTBOX_MESSAGES_MAX)]
    async with open_channel() as link:
        await link.choke()
        for message in messages:
            link.channel.post(message)
        with pytest.raises(OutboxFull) as full:
            link.channel.post(b"one more")
        assert not full.value.maybe_written
        assert await take(link.peer, 1 + len(messages)) == [BIG, *messages]
        link.channel.post(b"now there is room")
        assert await link.peer.take() == b"now there is room"


async def test_what_is_withdrawn_while_the_peer_does_not_read_never_arrives(open_channel):
    async with open_channel() as link:
        choking = await link.choke()
        withdrawn = link.channel.post(b"withdrawn")
        link.channel.post(b"last")
        assert not choking.withdraw()
        assert withdrawn.withdraw()
        assert await take(link.peer, 2) == [BIG, b"last"]


async def test_a_peer_that_does_not_read_is_heard_all_the_same(open_channel):
    messages = [b"in %d" % number for number in range(50)]
    async with open_channel() as link:
        await link.choke()
        for message in messages:
            link.peer.framing.send_ping()
            await link.peer.send(message)
        await link.until(lambda: link.heard == messages)
        assert await link.peer.take() == BIG


@pytest.mark.parametrize("way", WITH_PING, indirect=True, ids=str)
async def test_replies_that_the_peer_does_not_read_are_not_kept_for_ever(way, open_channel):
    async def ask():
        with suppress(anyio.BrokenResourceError, OSError):
            while True:
                await link.peer.stream.send(PINGS[way.kind])

    async with open_channel() as link:
        await link.choke()
        link.tasks.start_soon(ask)
        end = await link.ended()
    assert type(end) is LinkLost
    assert "does not read" in end.message


@pytest.mark.parametrize("way", WITH_PING, indirect=True, ids=str)
async def test_a_ping_is_answered_by_either_side_and_is_no_message(open_channel):
    async with open_channel() as link:
        link.channel.ping()
        link.channel.post(b"out")
        assert await link.peer.take() == b"out"
        # Its answer to our ping, for which it did not have to be asked.
        answer = link.peer.framing.data_to_send()
        assert answer
        await link.peer.stream.send(answer)
        await link.peer.send(b"in")
        await link.until(lambda: link.heard == [b"in"])
        await anyio.wait_all_tasks_blocked()
        link.peer.framing.send_ping()
        await link.peer.flush()
        with anyio.fail_after(WAIT_S):
            assert link.peer.framing.receive_data(await link.peer.stream.receive()) == []


async def over_the_cap(way, link, bytes_max):
    """Go beyond the cap, and say what comes of it."""
    link.tasks.start_soon(link.peer.push, b"x" * (bytes_max + 1), b"next")
    if way.kind is JSONL:
        await link.until(lambda: len(link.heard) == 3)
        assert (link.heard[2], link.gaps, link.end) == (b"next", 1, None)
        return
    assert type(await link.ended()) is FrameTooBig
    await link.channel.aclose()
    await link.peer.take_rest()
    assert link.peer.framing.close_code == CloseCode.MESSAGE_TOO_BIG


@pytest.mark.parametrize("way", CAPPED, indirect=True, ids=str)
@pytest.mark.parametrize("bytes_max", [1000, MESSAGE_BYTES_MAX])
async def test_the_cap_is_the_largest_message_that_is_read(way, open_channel, bytes_max):
    async with open_channel(bytes_max=bytes_max) as link:
        await link.peer.send(b"x" * (bytes_max - 1), b"x" * bytes_max)
        await link.until(lambda: len(link.heard) == 2)
        await over_the_cap(way, link, bytes_max)
    assert [len(message) for message in link.heard[:2]] == [bytes_max - 1, bytes_max]
