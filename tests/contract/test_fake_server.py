"""The fake server is a peer as the others are; it speaks lines, in memory."""

from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from codexdrv.errors import LinkLost
from codexdrv.protocol.methods import Call, initialize
from codexdrv.transport.channel import Channel
from codexdrv.wire.message import Notification, Request, encode
from tests.contract.kit import Link, run_link
from tests.contract.ways import WAIT_S
from tests.fakes.connection import serve_lines
from tests.fakes.line_framing import LineFraming
from tests.fakes.server import Drop, FakeServer
from tests.fakes.streams import open_pair


@pytest.fixture
def server(tmp_path):
    return FakeServer(tmp_path / "home")


@pytest.fixture
def thread(server):
    return server.add_thread()


@pytest.fixture
def read(thread):
    return Call("thread/read", {"threadId": thread.id, "includeTurns": False})


@asynccontextmanager
async def open_greeted(server):
    """Connect to the server and greet it; yields our stream as well."""
    ours, theirs = open_pair()
    async with run_link(Link(Channel(ours, LineFraming())), Link.run_rpc) as link:
        link.tasks.start_soon(serve_lines, server, theirs)
        await link.rpc.call(initialize("codexdrv", "0"))
        yield link, ours


async def test_answers_and_news_come_in_the_order_of_the_requests(server, thread, read):
    numbers = range(1, 51)
    async with open_greeted(server) as (link, _):
        for number in numbers:
            server.twist(read.method, result=number)
            link.tasks.start_soon(partial(link.rpc.call, read, on_answer=link.hear))
        server.on_follow[read.method] = lambda: server.tell_status(thread)
        await link.until(lambda: len(link.heard) == len(numbers) + 1)
    news = link.heard.pop(1)
    assert isinstance(news, Notification)
    assert [answer.result for answer in link.heard] == list(numbers)


async def test_a_big_answer_is_whole_and_the_next_call_works(server, read):
    length = 2_000_000
    server.twist(read.method, result="x" * length)
    async with open_greeted(server) as (link, _):
        big, next_one = link.ask(read), link.ask(read)
        await big.over()
        await next_one.over()
    assert len(big.result) == length
    assert next_one.error is None


async def test_the_end_of_our_side_is_the_end_of_the_connection(server):
    async with open_greeted(server) as (link, stream):
        await stream.send_eof()
        assert type(await link.ended()) is LinkLost
    assert server.connections == set()


async def test_a_server_that_leaves_is_heard_to_the_end(server, read):
    server.twist(read.method)
    server.twist(read.method, drop=Drop.AFTER)
    async with open_greeted(server) as (link, _):
        answered, last, unanswered = [link.ask(read) for _ in range(3)]
        assert type(await link.ended()) is LinkLost
        for asked in (answered, last, unanswered):
            await asked.over()
    assert (answered.error, last.error) == (None, None)
    assert (type(unanswered.error), unanswered.error.maybe_written) == (LinkLost, True)


async def test_our_close_is_an_end_for_the_server(server):
    async with open_greeted(server) as (link, _):
        await link.channel.aclose()
        assert type(await link.ended()) is LinkLost
        await anyio.wait_all_tasks_blocked()
        assert server.connections == set()


async def test_a_client_that_does_not_read_is_heard_all_the_same(server, read):
    ours, theirs = open_pair(capacity=8)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_lines, server, theirs)
        for number in range(50):
            with anyio.fail_after(WAIT_S):
                await ours.send(encode(Request(number, read.method, read.params)) + b"\n")
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert [request.id for request in server.requests] == list(range(50))
