from functools import partial

import pytest
from websockets.frames import CloseCode

from codexdrv.errors import (
    AnswerTooBig,
    DeadlinePassed,
    FrameTooBig,
    LinkLost,
    MalformedFrame,
    OutboxFull,
    Refused,
)
from codexdrv.protocol.methods import Call
from codexdrv.transport.channel import OUTBOX_MESSAGES_MAX
from codexdrv.wire.jsonl import JsonlFraming
from codexdrv.wire.message import Notification, Refusal, Response, encode
from tests.contract.kit import ASK, BIG
from tests.contract.ways import JSONL, WAYS, WEBSOCKET


MIB = 1_048_576
NOISE = b"npm WARN deprecated"
SOON_S = 0.05
"""A deadline that is to pass: nobody answers, so it may as well come soon."""

CAPPED = [way for way in WAYS if way.kind.has_cap]
ON_JSONL = [way for way in WAYS if way.kind is JSONL]
ON_WEBSOCKET = [way for way in WAYS if way.kind is WEBSOCKET]
STRICT = [way for way in WAYS if way.kind is not JSONL]


async def next_call_works(link):
    asked = link.ask()
    request = await link.peer.request()
    await link.peer.answer(Response(request.id, "fine"))
    await asked.over()
    assert (asked.result, asked.told) == ("fine", [Response(request.id, "fine")])
    return request


async def choke(link):
    """Have a call written in part, to a peer that does not read; return it."""
    waiters = link.rpc._waiters
    number_of_waiters = len(waiters)
    asked = link.ask(Call("choke", {"text": BIG.decode()}))
    await link.turn_until(lambda: len(waiters) > number_of_waiters)
    ticket = [*waiters.values()][-1].ticket
    await link.turn_until(lambda: ticket.is_started)
    return asked


# Answers


async def test_answers_and_news_are_told_in_the_order_of_the_wire(open_rpc):
    async with open_rpc() as link:
        for _ in range(3):
            link.tasks.start_soon(partial(link.rpc.call, ASK, on_answer=link.hear))
        first, second, third = [await link.peer.request() for _ in range(3)]
        messages = [
            Notification("one", {}),
            Response(second.id, {"text": "x" * 100_000}),
            Notification("two", {}),
            Response(third.id, None),
            Response(first.id, "last"),
            Notification("three", {}),
        ]
        await link.peer.answer(*messages)
        await link.until(lambda: len(link.heard) == len(messages))
        assert link.end is None
    assert link.heard == messages


async def test_a_refusal_is_raised_and_the_connection_goes_on(open_rpc):
    async with open_rpc() as link:
        asked = link.ask()
        request = await link.peer.request()
        await link.peer.answer(Refusal(request.id, -32600, "no", {"reason": "why"}))
        await asked.over()
        assert type(asked.error) is Refused
        await next_call_works(link)


@pytest.mark.field_report("codex-a2a#39", "acodex#24", "openai/codex#16554")
@pytest.mark.parametrize("way", CAPPED, indirect=True, ids=str)
async def test_an_answer_of_31_mib_is_read(open_rpc):
    length = 31 * MIB
    async with open_rpc() as link:
        asked = link.ask()
        request = await link.peer.request()
        await link.peer.answer(Response(request.id, "x" * length))
        await asked.over()
        # Not compared as a whole: a difference of that size takes minutes to print.
        assert (len(asked.result), asked.result.count("x")) == (length, length)
        await next_call_works(link)


@pytest.mark.parametrize("way", ON_JSONL, indirect=True, ids=str)
async def test_an_answer_of_33_mib_costs_its_waiter_alone_on_stdio(open_rpc):
    async with open_rpc() as link:
        other, asked = link.ask(), link.ask()
        first, second = await link.peer.request(), await link.peer.request()
        await link.peer.answer(Response(second.id, "x" * (33 * MIB)), Response(first.id, "small"))
        await asked.over()
        await other.over()
        assert type(asked.error) is AnswerTooBig
        assert asked.error.maybe_written
        assert asked.told == [asked.error]
        assert (other.result, link.gaps, link.end) == ("small", 1, None)
        await next_call_works(link)
        assert link.gaps == 1


@pytest.mark.parametrize("way", ON_WEBSOCKET, indirect=True, ids=str)
async def test_an_answer_of_33_mib_costs_one_connection_on_a_socket(open_rpc):
    async with open_rpc() as link:
        asked = link.ask()
        request = await link.peer.request()
        link.tasks.start_soon(link.peer.push, encode(Response(request.id, "x" * (33 * MIB))))
        assert type(await link.ended()) is FrameTooBig
        await asked.over()
        assert type(asked.error) is LinkLost
        assert asked.error.maybe_written
        await link.channel.aclose()
        await link.peer.take_rest()
        assert link.peer.framing.close_code == CloseCode.MESSAGE_TOO_BIG
        assert link.gaps == 0
    async with open_rpc() as link:
        await next_call_works(link)


@pytest.mark.parametrize("way", ON_JSONL, indirect=True, ids=str)
async def test_news_of_33_mib_costs_no_waiter_on_stdio(open_rpc):
    async with open_rpc() as link:
        asked = link.ask()
        request = await link.peer.request()
        news = Notification("news", {"text": "x" * (33 * MIB)})
        await link.peer.answer(news, Response(request.id, "small"))
        await asked.over()
        assert (asked.result, link.heard, link.gaps) == ("small", [], 1)


@pytest.mark.parametrize("way", ON_JSONL, indirect=True, ids=str)
async def test_an_answer_over_the_cap_that_does_not_say_whose_it_is_costs_every_waiter(open_rpc):
    async with open_rpc(bytes_max=1000) as link:
        waiting = [link.ask() for _ in range(2)]
        numbers = [(await link.peer.request()).id for _ in waiting]
        await link.peer.send(b'{"result":"%s","id":%d}' % (b"x" * 1000, numbers[0]))
        for asked in waiting:
            await asked.over()
            assert (type(asked.error), asked.error.maybe_written) == (AnswerTooBig, True)
        await next_call_works(link)
        assert link.gaps == 1


# Callers that leave


async def test_a_call_that_is_cancelled_before_it_was_written_never_arrives(open_rpc):
    async with open_rpc() as link:
        choking = await choke(link)
        asked, last = link.ask(Call("withdrawn", {})), link.ask()
        await link.waiting(2)
        await asked.cancel()
        assert [(type(told), told.maybe_written) for told in asked.told] == [(LinkLost, False)]
        assert (await link.peer.request()).method == "choke"
        request = await link.peer.request()
        assert request.method == ASK.method
        await link.peer.answer(Response(request.id, "fine"))
        await last.over()
        assert (last.result, choking.told) == ("fine", [])


async def test_a_call_that_is_cancelled_after_it_was_written_is_told_its_answer(open_rpc):
    async with open_rpc() as link:
        asked = link.ask()
        request = await link.peer.request()
        await asked.cancel()
        assert asked.told == []
        await next_call_works(link)
        await link.peer.answer(Response(request.id, "late"))
        await link.quiet()
        assert asked.told == [Response(request.id, "late")]
        await next_call_works(link)


async def test_a_call_whose_deadline_passes_before_it_was_written_never_arrives(open_rpc):
    async with open_rpc() as link:
        await choke(link)
        asked = link.ask(Call("late", {}, SOON_S))
        await asked.over()
        last = link.ask()
        assert (type(asked.error), asked.error.maybe_written) == (LinkLost, False)
        assert asked.told == [asked.error]
        methods = [(await link.peer.request()).method for _ in range(2)]
        assert methods == ["choke", ASK.method]
        assert last.told == []


async def test_a_call_whose_deadline_passes_is_in_doubt_until_its_late_answer(open_rpc):
    async with open_rpc() as link:
        asked = link.ask(Call("late", {}, SOON_S))
        request = await link.peer.request()
        await asked.over()
        assert (type(asked.error), asked.error.maybe_written) == (DeadlinePassed, True)
        await next_call_works(link)
        await link.peer.answer(Response(request.id, "late"))
        await link.quiet()
        assert asked.told == [asked.error, Response(request.id, "late")]


async def test_a_full_outbox_refuses_one_more_call_and_loses_none_before_it(open_rpc):
    async with open_rpc() as link:
        waiting = [await choke(link)]
        waiting += [link.ask() for _ in range(OUTBOX_MESSAGES_MAX)]
        await link.waiting(OUTBOX_MESSAGES_MAX)
        refused = link.ask()
        await refused.over()
        assert (type(refused.error), refused.error.maybe_written) == (OutboxFull, False)
        assert refused.told == [refused.error]
        for asked in waiting:
            await link.peer.answer(Response((await link.peer.request()).id, "fine"))
            await asked.over()
        assert {asked.result for asked in waiting} == {"fine"}


# Ends


@pytest.mark.field_report("codex-a2a#39", "acodex#24", "openai/codex#16554")
async def test_a_peer_that_vanishes_inside_an_answer_wakes_every_waiter(open_rpc):
    async with open_rpc() as link:
        waiting = [link.ask() for _ in range(3)]
        numbers = [(await link.peer.request()).id for _ in waiting]
        await link.peer.answer(Response(numbers[0], "whole"))
        await link.peer.send_half(encode(Response(numbers[1], "cut")))
        await link.peer.stream.aclose()
        assert type(await link.ended()) is MalformedFrame
        for asked in waiting:
            await asked.over()
        assert waiting[0].result == "whole"
        for asked in waiting[1:]:
            assert (type(asked.error), asked.error.maybe_written) == (LinkLost, True)
            assert asked.told == [asked.error]


@pytest.mark.parametrize("leave", ["vanish", "read no more"])
async def test_a_peer_that_leaves_inside_a_request_wakes_every_waiter(open_rpc, leave):
    async with open_rpc() as link:
        read = link.ask()
        await link.peer.request()
        if leave == "read no more":
            link.peer.stop_reading()
        written = await choke(link)
        unwritten = link.ask()
        if leave == "vanish":
            await link.waiting(1)
            await link.peer.stream.aclose()
        assert type(await link.ended()) is LinkLost
        for asked, maybe_written in ((read, True), (written, True), (unwritten, False)):
            await asked.over()
            assert (type(asked.error), asked.error.maybe_written) == (LinkLost, maybe_written)
            assert asked.told == [asked.error]


async def test_a_call_after_the_end_writes_nothing(open_rpc):
    async with open_rpc() as link:
        await link.peer.say_goodbye()
        await link.ended()
        asked = link.ask()
        await asked.over()
        assert (type(asked.error), asked.error.maybe_written) == (LinkLost, False)
        assert asked.told == [asked.error]


# What is no message


@pytest.mark.parametrize("way", ON_JSONL, indirect=True, ids=str)
async def test_a_few_lines_that_are_no_messages_may_come_first_on_stdio(open_rpc):
    async with open_rpc() as link:
        await link.peer.send(*[NOISE] * JsonlFraming.noise_frames_max)
        await next_call_works(link)
        assert (link.heard, link.end) == ([], None)


@pytest.mark.parametrize("way", ON_JSONL, indirect=True, ids=str)
async def test_more_lines_than_a_few_are_no_server_on_stdio(open_rpc):
    async with open_rpc() as link:
        asked = link.ask()
        await link.peer.request()
        await link.peer.send(*[NOISE] * (JsonlFraming.noise_frames_max + 1))
        assert type(await link.ended()) is MalformedFrame
        await asked.over()
        assert asked.error.maybe_written


@pytest.mark.parametrize("way", ON_JSONL, indirect=True, ids=str)
async def test_a_line_that_is_no_message_may_not_come_later_on_stdio(open_rpc):
    async with open_rpc() as link:
        await link.peer.send(NOISE)
        await next_call_works(link)
        await link.peer.send(NOISE)
        assert type(await link.ended()) is MalformedFrame


@pytest.mark.parametrize("way", STRICT, indirect=True, ids=str)
async def test_nothing_else_than_messages_may_come_on_a_socket(open_rpc):
    async with open_rpc() as link:
        asked = link.ask()
        await link.peer.request()
        await link.peer.send(b"hello")
        assert type(await link.ended()) is MalformedFrame
        await asked.over()
        assert asked.error.maybe_written
