from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from codexdrv.engine.session import Pace, Session
from codexdrv.errors import (
    CodexdrvError,
    DeadlinePassed,
    LifeEnded,
    LinkError,
    LinkLost,
    MalformedMessage,
    Refused,
)
from codexdrv.protocol.events import StatusChanged, ThreadStatus, Unrecognized
from codexdrv.protocol.methods import OPT_OUT, Call, read_thread
from codexdrv.protocol.questions import METHOD_NOT_FOUND, Policy
from codexdrv.transport.channel import Channel
from codexdrv.wire.jsonl import JsonlFraming
from codexdrv.wire.message import Notification, Request, Response, decode
from tests.engine.kit import PACE, PEER, pass_time, until
from tests.fakes.line_framing import LineFraming
from tests.fakes.server import OVERLOADED, Drop, Reply
from tests.fakes.streams import open_pair


UNANSWERED = Call("thread/read", {"threadId": "x", "includeTurns": False}, 5.0)


async def run_to_the_end(session, serve=None, pace=PACE):
    async def hold(_):
        await anyio.sleep_forever()

    with pytest.raises(CodexdrvError) as caught, anyio.fail_after(7200):
        await session.run(serve or hold, version="1.2.3", pace=pace)
    return caught.value


def make_session(stream, on_event=lambda _: None, framing=LineFraming, **options):
    return Session(
        Channel(stream, framing()), generation=1, peer=PEER, on_event=on_event, **options
    )


@asynccontextmanager
async def unanswering():
    """A server that takes bytes and says nothing."""
    ours, theirs = open_pair()

    async def swallow():
        with suppress(anyio.EndOfStream):
            while True:
                await theirs.receive()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(swallow)
        yield ours
        tasks.cancel_scope.cancel()


async def test_it_greets_before_anything_else_and_knows_the_server(bench):
    async with bench.connected() as generation:
        await pass_time()
        assert generation.session.greeting.user_agent == "codexdrv/0.171.0 (fake)"
        assert generation.session.greeting.codex_home == str(bench.server.home)
    (greeting,) = bench.server.requests
    assert greeting.method == "initialize"
    assert greeting.params["clientInfo"]["name"] == "codexdrv"
    assert greeting.params["capabilities"] == {
        "experimentalApi": True,
        "optOutNotificationMethods": list(OPT_OUT),
    }
    assert b'{"method":"initialized"}\n' in b"".join(generation.stream.sent)


async def test_a_greeting_that_is_refused_ends_the_connection_for_another_try(bench):
    bench.server.refuse("initialize", OVERLOADED)
    async with bench.served_stream() as stream:
        end = await run_to_the_end(make_session(stream))
    assert isinstance(end, LinkError)


async def test_a_greeting_without_an_answer_ends_the_connection():
    async with unanswering() as stream:
        end = await run_to_the_end(make_session(stream), pace=Pace(1000.0, 1000.0))
    assert isinstance(end, DeadlinePassed)


async def test_news_is_heard_in_the_order_of_the_wire(bench):
    thread = bench.server.add_thread()
    async with bench.connected() as generation:
        connection = next(iter(bench.server.connections))
        connection.send(Notification("some/news", {}))
        bench.server.begin(thread)
        await until(lambda: len(generation.events) == 3)
    idle = StatusChanged(thread.id, ThreadStatus.IDLE, waiting=False)
    active = StatusChanged(thread.id, ThreadStatus.ACTIVE, waiting=False)
    assert generation.events == [Unrecognized("some/news"), active, idle]


async def test_a_request_of_the_server_is_not_answered(bench):
    async with bench.connected() as generation:
        await pass_time()
        before = list(generation.stream.sent)
        connection = next(iter(bench.server.connections))
        connection.send(Request(0, "item/commandExecution/requestApproval", {"threadId": "x"}))
        connection.send(Notification("some/news", {}))
        await until(lambda: generation.events == [Unrecognized("some/news")])
        await pass_time()
        assert generation.stream.sent == before


async def ask_and_read(bench, policy, *questions):
    """Let the server ask its questions; return all that we wrote behind the greeting."""
    heard = []
    async with bench.served_stream() as stream, anyio.create_task_group() as tasks:
        session = make_session(stream, heard.append, policy=policy)
        tasks.start_soon(run_to_the_end, session)
        await until(lambda: b"initialized" in b"".join(stream.sent))
        greeted = len(stream.sent)
        connection = next(iter(bench.server.connections))
        for question in questions:
            connection.send(question)
        connection.send(Notification("some/news", {}))
        await until(lambda: heard == [Unrecognized("some/news")])
        await pass_time()
        tasks.cancel_scope.cancel()
        return [decode(line) for line in b"".join(stream.sent[greeted:]).splitlines()]


APPROVAL = Request(0, "item/commandExecution/requestApproval", {"threadId": "x"})


async def test_a_server_of_our_own_gets_its_questions_declined(bench):
    unheard_of = Request("q", "some/question", {})
    approval, unknown = await ask_and_read(bench, Policy.DECLINE, APPROVAL, unheard_of)
    assert approval == Response(0, {"decision": "decline"})
    assert (unknown.id, unknown.code) == ("q", METHOD_NOT_FOUND)


async def test_questions_that_are_left_to_the_user_are_not_answered(bench):
    assert await ask_and_read(bench, Policy.LEAVE, APPROVAL) == []


async def listed(bench, policy, *questions):
    heard = []
    async with bench.served_stream() as stream, anyio.create_task_group() as tasks:
        session = make_session(stream, heard.append, policy=policy)
        tasks.start_soon(run_to_the_end, session)
        await until(lambda: b"initialized" in b"".join(stream.sent))
        connection = next(iter(bench.server.connections))
        for question in questions:
            connection.send(question)
        connection.send(Notification("some/news", {}))
        await until(lambda: heard == [Unrecognized("some/news")])
        before = [each.request for each in session.questions.all()]
        session._lose()
        assert session.questions.all() == []
        tasks.cancel_scope.cancel()
    return before


async def test_what_nobody_answers_is_open_until_something_of_it_may_be_lost(bench):
    tokens = Request(1, "account/chatgptAuthTokens/refresh", {})
    assert await listed(bench, Policy.LEAVE, APPROVAL, tokens) == [APPROVAL, tokens]


async def test_of_what_is_declined_only_what_gets_no_answer_is_open(bench):
    tokens = Request(1, "account/chatgptAuthTokens/refresh", {})
    assert await listed(bench, Policy.DECLINE, APPROVAL, tokens) == [tokens]


async def test_a_question_is_closed_by_the_server_s_own_word(bench):
    told = {"threadId": "x", "requestId": 0}
    async with bench.connected() as generation:
        connection = next(iter(bench.server.connections))
        connection.send(APPROVAL)
        await until(lambda: bool(generation.session.questions.all()))
        generation.session.reply(Response(0, {"decision": "accept"}))
        await pass_time()
        assert len(generation.session.questions.all()) == 1
        connection.send(Notification("serverRequest/resolved", told))
        await until(lambda: not generation.session.questions.all())
        answered = b"".join(generation.stream.sent).splitlines()[-1]
    assert decode(answered) == Response(0, {"decision": "accept"})


async def test_a_server_on_stdio_that_has_nothing_to_say_but_answers_stays(bench):
    async with bench.served_stream() as stream, anyio.create_task_group() as tasks:
        session = make_session(stream, framing=JsonlFraming)
        tasks.start_soon(run_to_the_end, session)
        await pass_time(3600)
        assert session.silent_s < PACE.ping_interval_s + 1
        tasks.cancel_scope.cancel()
    assert {request.method for request in bench.server.requests[1:]} == {"thread/loaded/list"}


@pytest.mark.field_report("openclaw#116135")
async def test_a_server_on_stdio_that_is_silent_for_too_long_has_gone():
    async with unanswering() as stream:
        session = make_session(stream, framing=JsonlFraming)
        end = await run_to_the_end(session, pace=Pace(1.0, 3.0))
    assert isinstance(end, LinkLost)
    assert "has said nothing" in end.message


async def test_known_news_without_what_it_must_have_ends_the_connection(bench):
    async with bench.connected() as generation:
        connection = next(iter(bench.server.connections))
        connection.send(Notification("turn/completed", {"threadId": "x"}))
        await generation.has_ended.wait()
    assert isinstance(generation.end, MalformedMessage)


async def test_a_server_that_has_nothing_to_say_but_answers_pings_stays(bench):
    async with bench.connected() as generation:
        await pass_time(3605)
        assert generation.end is None
        assert sum(b"PING\n" in sent for sent in generation.stream.sent) == 360


@pytest.mark.field_report("openclaw#116135")
async def test_a_server_that_is_silent_for_too_long_has_gone():
    async with unanswering() as stream:
        end = await run_to_the_end(make_session(stream), pace=Pace(1.0, 3.0))
        assert anyio.current_time() == 4.0
    assert isinstance(end, LinkLost)


async def test_a_server_that_only_pongs_has_gone_in_the_end(bench):
    for _ in range(20):
        bench.server.twist("thread/loaded/list", reply=Reply.NEVER)
    async with bench.connected() as generation:
        await generation.has_ended.wait()
        assert anyio.current_time() == 190.0
    assert generation.end.message == "The server has answered nothing for 190 s."


async def test_the_end_of_the_connection_ends_what_it_serves(bench):
    bench.server.twist("thread/read", reply=Reply.NEVER, drop=Drop.AFTER)
    async with bench.connected() as generation:
        with pytest.raises(LinkLost) as caught:
            await generation.session.call(read_thread("x"))
        await generation.has_ended.wait()
    assert caught.value.maybe_written
    assert isinstance(generation.end, LinkLost)


async def test_what_goes_wrong_in_serving_ends_the_connection_as_it_is(bench):
    async def serve(_):
        raise LifeEnded("another life")

    async with bench.served_stream() as stream:
        end = await run_to_the_end(make_session(stream), serve)
    assert isinstance(end, LifeEnded)


async def test_serving_that_is_over_closes_the_connection(bench):
    async def serve(_):
        await anyio.sleep(1)

    async with bench.served_stream() as stream:
        end = await run_to_the_end(make_session(stream), serve)
        await until(lambda: not bench.server.connections)
    assert isinstance(end, LinkLost)
    assert stream.sent[-1] == b"BYE\n"


async def test_whatever_the_server_says_ends_its_silence(bench):
    async with bench.connected() as generation:
        await pass_time(7)
        assert generation.session.silent_s == 7
        with pytest.raises(Refused):
            await generation.session.call(read_thread("x"))
        assert generation.session.silent_s == 0


async def test_a_request_without_an_answer_is_no_sign_of_life(bench):
    bench.server.twist("thread/read", reply=Reply.NEVER)
    async with bench.connected() as generation:
        with pytest.raises(DeadlinePassed):
            await generation.session.call(UNANSWERED)
        assert generation.session.silent_s > 0
