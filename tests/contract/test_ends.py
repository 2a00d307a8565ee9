import anyio
import pytest
from websockets.frames import CloseCode

from codexdrv.errors import LinkLost, MalformedFrame
from tests.contract.kit import BIG
from tests.contract.ways import WAYS, WEBSOCKET


# What goes through a process of its own comes when that one likes.
DIRECT = [way for way in WAYS if way.name != "child"]


async def test_a_peer_that_ends_its_side_is_heard_to_the_end(open_channel):
    messages = [b"in %d " % number + b"x" * 1000 for number in range(1000)]
    async with open_channel() as link:
        await link.peer.send(*messages)
        await link.peer.stream.send_eof()
        end = await link.ended()
    assert type(end) is LinkLost
    assert "ended" in end.message
    assert link.heard == messages


async def test_a_peer_that_ends_its_side_still_gets_what_was_written(open_channel):
    async with open_channel() as link:
        ticket = link.channel.post(b"last words")
        await link.written(ticket)
        await link.peer.stream.send_eof()
        assert type(await link.ended()) is LinkLost
        await link.channel.aclose()
        assert await link.peer.take_rest() == [b"last words"]


async def test_a_goodbye_of_the_peer_is_an_end_behind_all_messages(open_channel):
    async with open_channel() as link:
        await link.peer.send(b"one", b"two")
        await link.peer.say_goodbye()
        assert type(await link.ended()) is LinkLost
        with pytest.raises(LinkLost) as lost:
            link.channel.post(b"too late")
    assert not lost.value.maybe_written
    assert link.heard == [b"one", b"two"]


async def test_our_close_is_an_end_for_the_peer_behind_all_messages(way, open_channel):
    async with open_channel() as link:
        link.channel.post(b"one")
        await link.written(link.channel.post(b"two"))
        await link.channel.aclose()
        assert await link.peer.take_rest() == [b"one", b"two"]
        assert type(await link.ended()) is LinkLost
    assert link.peer.framing.is_closed is way.kind.has_goodbye
    if way.kind is WEBSOCKET:
        assert link.peer.framing.close_code == CloseCode.NORMAL_CLOSURE


async def test_our_close_does_not_wait_for_a_peer_that_does_not_read(open_channel):
    async with open_channel() as link:
        await link.choke()
        with anyio.fail_after(5):
            await link.channel.aclose()
        assert type(await link.ended()) is LinkLost
        # Half a message, and no goodbye that the peer would take for its other half.
        assert await link.peer.take_rest() == []


@pytest.mark.parametrize("size", [100, 200_000])
async def test_a_peer_that_vanishes_inside_its_message_is_malformed(open_channel, size):
    async with open_channel() as link:
        await link.peer.send(b"one")
        await link.peer.send_half(b"x" * size)
        await link.peer.stream.aclose()
        assert type(await link.ended()) is MalformedFrame
    assert link.heard == [b"one"]


async def test_a_peer_that_vanishes_inside_our_message_is_a_lost_link(open_channel):
    async with open_channel() as link:
        begun = await link.choke()
        waiting = link.channel.post(b"behind it")
        assert await link.peer.stream.receive()
        await link.peer.stream.aclose()
        assert type(await link.ended()) is LinkLost
        with pytest.raises(LinkLost):
            link.channel.post(b"too late")
    assert (begun.is_started, waiting.is_started) == (True, False)
    assert (begun.withdraw(), waiting.withdraw()) == (False, True)


async def test_a_peer_that_reads_no_more_is_a_lost_link(open_channel):
    async with open_channel() as link:
        link.peer.stop_reading()
        ticket = link.channel.post(BIG)
        end = await link.ended()
        assert type(end) is LinkLost
        assert "while we wrote" in end.message
    assert ticket.is_started


@pytest.mark.parametrize("way", DIRECT, indirect=True, ids=str)
async def test_what_a_peer_said_before_it_read_no_more_is_heard(open_channel):
    async with open_channel() as link:
        await link.peer.send(b"what it said last")
        link.peer.stop_reading()
        link.channel.post(BIG)
        assert type(await link.ended()) is LinkLost
    assert link.heard == [b"what it said last"]
