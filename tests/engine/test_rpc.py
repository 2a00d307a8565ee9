from contextlib import asynccontextmanager

import anyio
import pytest

from codexdrv.engine.rpc import Rpc
from codexdrv.errors import (
    AnswerTooBig,
    CodexdrvError,
    DeadlinePassed,
    LinkError,
    LinkLost,
    MalformedFrame,
    OutboxFull,
    Refused,
)
from codexdrv.protocol.methods import Call
from codexdrv.transport.channel import OUTBOX_MESSAGES_MAX, Channel
from codexdrv.wire.jsonl import JsonlFraming
from codexdrv.wire.message import Notification, Refusal, Response, decode, encode
from tests.engine.kit import until
from tests.fakes.line_framing import LineFraming
from tests.fakes.streams import open_pair


ASK = Call("ask", {}, 30.0)
NOISE_MAX = JsonlFraming.noise_frames_max


class Peer:
    """The other end, by hand: a message at a time."""

    def __init__(self, stream):
        self.stream = stream
        self._begun = b""

    async def take(self):
        with anyio.fail_after(5):
            while b"\n" not in self._begun:
                self._begun += await self.stream.receive()
        line, self._begun = self._begun.split(b"\n", 1)
        return decode(line)

    async def send(self, *messages):
        await self.stream.send(b"".join(encode(message) + b"\n" for message in messages))


class Link:
    def __init__(self, rpc, peer, stream, heard, gaps):
        self.rpc, self.peer, self.stream, self.heard = rpc, peer, stream, heard
        self._gaps = gaps
        self.end = None

    @property
    def gaps(self):
        return len(self._gaps)


@asynccontextmanager
async def linked(capacity=65_536, framing=LineFraming):
    stream, theirs = open_pair(capacity)
    heard = []
    channel = Channel(stream, framing())
    gaps = []
    rpc = Rpc(channel, heard.append, lambda: gaps.append(None))
    link = Link(rpc, Peer(theirs), stream, heard, gaps)

    async def run():
        try:
            await rpc.run()
        except CodexdrvError as error:
            link.end = error

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        yield link
        tasks.cancel_scope.cancel()


class Asked:
    """One call in a task of its own: how it ended, and what `on_answer` was told."""

    def __init__(self, tasks, rpc, call=ASK):
        self.told = []
        self.result = None
        self.error = None
        self.is_over = anyio.Event()
        self.scope = anyio.CancelScope()
        tasks.start_soon(self._run, rpc, call)

    async def _run(self, rpc, call):
        with self.scope:
            try:
                self.result = await rpc.call(call, on_answer=self.told.append)
            except CodexdrvError as error:
                self.error = error
        self.is_over.set()


async def test_each_answer_reaches_its_caller_in_whatever_order_they_come():
    async with linked() as link, anyio.create_task_group() as tasks:
        one, other = Asked(tasks, link.rpc), Asked(tasks, link.rpc)
        first, second = await link.peer.take(), await link.peer.take()
        assert type(first.id) is int
        assert first.id != second.id
        await link.peer.send(Response(second.id, "second"), Response(first.id, "first"))
        await one.is_over.wait()
        await other.is_over.wait()
    assert (one.result, other.result) == ("first", "second")


async def test_a_refusal_is_raised_with_all_that_it_said():
    async with linked() as link, anyio.create_task_group() as tasks:
        asked = Asked(tasks, link.rpc)
        request = await link.peer.take()
        await link.peer.send(Refusal(request.id, -32600, "no", {"reason": "why"}))
        await asked.is_over.wait()
    assert isinstance(asked.error, Refused)
    assert (asked.error.rpc_code, asked.error.message, asked.error.data) == (
        -32600, "no", {"reason": "why"},
    )  # fmt: skip
    assert asked.told == [asked.error]


async def test_an_answer_that_nobody_waits_for_is_dropped():
    async with linked() as link, anyio.create_task_group() as tasks:
        asked = Asked(tasks, link.rpc)
        request = await link.peer.take()
        await link.peer.send(Response(request.id + 1, "not ours"), Response(str(request.id), "nor"))
        await link.peer.send(Response(request.id, "ours"), Response(request.id, "twice"))
        await asked.is_over.wait()
    assert asked.result == "ours"
    assert asked.told == [Response(request.id, "ours")]
    assert link.end is None


async def test_answers_and_news_are_told_in_the_order_of_the_wire():
    told = []
    stream, theirs = open_pair()
    rpc = Rpc(Channel(stream, LineFraming()), told.append)
    peer = Peer(theirs)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rpc.run)
        tasks.start_soon(lambda: rpc.call(ASK, on_answer=told.append))
        request = await peer.take()
        messages = [Notification("a", {}), Response(request.id, 1), Notification("b", {})]
        await peer.send(*messages)
        await until(lambda: len(told) == len(messages))
        tasks.cancel_scope.cancel()
    assert told == messages


async def test_a_deadline_after_writing_says_that_it_may_have_arrived():
    async with linked() as link, anyio.create_task_group() as tasks:
        asked = Asked(tasks, link.rpc)
        await link.peer.take()
        await asked.is_over.wait()
        assert anyio.current_time() == ASK.timeout_s
        assert asked.told == [asked.error]
    assert isinstance(asked.error, DeadlinePassed)
    assert asked.error.maybe_written


async def test_an_answer_after_the_deadline_is_still_told():
    async with linked() as link, anyio.create_task_group() as tasks:
        asked = Asked(tasks, link.rpc)
        request = await link.peer.take()
        await asked.is_over.wait()
        await link.peer.send(Response(request.id, "late"))
        await link.rpc.wait_until_quiet()
    assert asked.told == [asked.error, Response(request.id, "late")]


async def test_what_was_not_written_by_its_deadline_never_is():
    async with linked(capacity=4) as link, anyio.create_task_group() as tasks:
        Asked(tasks, link.rpc)
        await link.stream.blocked.wait()
        asked = Asked(tasks, link.rpc, Call("late", {}, 1.0))
        await asked.is_over.wait()
        assert (await link.peer.take()).method == "ask"
        with pytest.raises(TimeoutError):
            await link.peer.take()
        tasks.cancel_scope.cancel()
    assert isinstance(asked.error, LinkLost)
    assert not asked.error.maybe_written
    assert asked.told == [asked.error]


async def test_a_cancelled_call_is_told_how_it_ended():
    async with linked() as link, anyio.create_task_group() as tasks:
        asked = Asked(tasks, link.rpc)
        request = await link.peer.take()
        asked.scope.cancel()
        await asked.is_over.wait()
        assert asked.told == []
        await link.peer.send(Response(request.id, "for nobody"))
        await link.rpc.wait_until_quiet()
    assert asked.told == [Response(request.id, "for nobody")]


async def test_a_call_that_is_cancelled_before_a_byte_was_written_says_so():
    async with linked(capacity=4) as link, anyio.create_task_group() as tasks:
        Asked(tasks, link.rpc)
        await link.stream.blocked.wait()
        asked = Asked(tasks, link.rpc)
        await anyio.sleep(1)
        asked.scope.cancel()
        await asked.is_over.wait()
        tasks.cancel_scope.cancel()
    assert [error.maybe_written for error in asked.told] == [False]


@pytest.mark.field_report("codex-a2a#39", "acodex#24", "openai/codex#16554")
async def test_the_end_wakes_every_waiter_and_says_whose_request_may_have_arrived():
    async with linked(capacity=4) as link, anyio.create_task_group() as tasks:
        written = Asked(tasks, link.rpc)
        await link.stream.blocked.wait()
        unwritten = Asked(tasks, link.rpc)
        await anyio.sleep(1)
        await link.peer.stream.aclose()
        await written.is_over.wait()
        await unwritten.is_over.wait()
        assert anyio.current_time() < ASK.timeout_s
    for asked, maybe_written in ((written, True), (unwritten, False)):
        assert isinstance(asked.error, LinkLost)
        assert asked.error.maybe_written is maybe_written
        assert asked.told == [asked.error]
    assert isinstance(link.end, LinkError)


async def test_a_call_on_a_connection_that_has_ended_writes_nothing():
    async with linked() as link, anyio.create_task_group() as tasks:
        await link.peer.stream.aclose()
        await until(lambda: link.end is not None)
        asked = Asked(tasks, link.rpc)
        await asked.is_over.wait()
    assert not asked.error.maybe_written
    assert asked.told == [asked.error]


async def test_a_full_outbox_refuses_a_call_and_tells_it():
    async with linked(capacity=4) as link, anyio.create_task_group() as tasks:
        Asked(tasks, link.rpc)
        await link.stream.blocked.wait()
        for _ in range(OUTBOX_MESSAGES_MAX):
            Asked(tasks, link.rpc)
        await anyio.sleep(1)
        asked = Asked(tasks, link.rpc)
        await asked.is_over.wait()
        tasks.cancel_scope.cancel()
    assert isinstance(asked.error, OutboxFull)
    assert not asked.error.maybe_written
    assert asked.told == [asked.error]


async def test_a_malformed_frame_ends_the_connection_and_wakes_the_waiters():
    async with linked() as link, anyio.create_task_group() as tasks:
        asked = Asked(tasks, link.rpc)
        await link.peer.take()
        await link.peer.stream.send(b'{"id": 1}\n')
        await asked.is_over.wait()
    assert asked.error.maybe_written
    assert isinstance(link.end, MalformedFrame)


async def test_a_notification_has_no_id():
    async with linked() as link:
        link.rpc.send(Notification("initialized", {}))
        assert await link.peer.take() == Notification("initialized", {})


async def test_what_comes_before_the_first_message_on_stdio_is_skipped_if_it_is_little():
    async with linked(framing=JsonlFraming) as link, anyio.create_task_group() as tasks:
        asked = Asked(tasks, link.rpc)
        request = await link.peer.take()
        await link.peer.stream.send(b"npm warn: old\n[1]\n" + b"noise\n" * (NOISE_MAX - 2))
        await link.peer.send(Response(request.id, "hello"))
        await asked.is_over.wait()
        assert asked.result == "hello"
        await link.peer.stream.send(b"noise\n")
        await until(lambda: isinstance(link.end, MalformedFrame))


async def test_too_much_noise_on_stdio_is_no_server():
    async with linked(framing=JsonlFraming) as link:
        await link.peer.stream.send(b"noise\n" * NOISE_MAX)
        await anyio.wait_all_tasks_blocked()
        assert link.end is None
        await link.peer.stream.send(b"noise\n")
        await until(lambda: isinstance(link.end, MalformedFrame))


async def test_no_noise_is_skipped_on_a_socket():
    async with linked() as link:
        await link.peer.stream.send(b"noise\n")
        await until(lambda: isinstance(link.end, MalformedFrame))


def small_lines():
    return JsonlFraming(message_bytes_max=100)


@pytest.mark.parametrize("begins", ['{"id":%d,"result":"', ' { "id" : %d , "error" : "'])
async def test_an_answer_over_the_cap_costs_its_caller_alone(begins):
    async with linked(framing=small_lines) as link, anyio.create_task_group() as tasks:
        one, other = Asked(tasks, link.rpc), Asked(tasks, link.rpc)
        first, second = await link.peer.take(), await link.peer.take()
        await link.peer.stream.send((begins % first.id).encode() + b"x" * 100)
        # At once, not when its line ends: it may be long.
        await one.is_over.wait()
        await link.peer.stream.send(b"x" * 1000 + b"\n")
        await link.peer.send(Response(second.id, "second"))
        await other.is_over.wait()
    assert isinstance(one.error, AnswerTooBig)
    assert one.error.maybe_written
    assert one.told == [one.error]
    assert other.result == "second"
    assert link.gaps == 1


@pytest.mark.parametrize("begins", [b'{"method":"item/completed"', b'{"id":0,"method":"ask"'])
async def test_news_over_the_cap_is_a_gap_and_costs_no_caller(begins):
    async with linked(framing=small_lines) as link, anyio.create_task_group() as tasks:
        asked = Asked(tasks, link.rpc)
        request = await link.peer.take()
        await link.peer.stream.send(begins + b"x" * 100 + b"\n")
        await link.peer.send(Response(request.id, "hello"))
        await asked.is_over.wait()
    assert (asked.result, link.gaps) == ("hello", 1)


@pytest.mark.parametrize("begins", [b'{"result":"', b"x", b'{"id":"1","result":"', b"\xff"])
async def test_where_nobody_can_tell_whose_answer_it_was_it_may_have_been_anybodys(begins):
    async with linked(framing=small_lines) as link, anyio.create_task_group() as tasks:
        one, other = Asked(tasks, link.rpc), Asked(tasks, link.rpc)
        await link.peer.take()
        await link.peer.take()
        await link.peer.stream.send(begins + b"x" * 100 + b"\n")
        await one.is_over.wait()
        await other.is_over.wait()
    assert isinstance(one.error, AnswerTooBig)
    assert isinstance(other.error, AnswerTooBig)
    assert link.gaps == 1


async def test_a_late_answer_over_the_cap_is_a_gap():
    async with linked(framing=small_lines) as link:
        await link.peer.stream.send(b'{"id":77,"result":"' + b"x" * 100 + b"\n")
        await until(lambda: link.gaps == 1)


async def test_a_probe_is_a_request_whose_answer_is_dropped():
    async with linked() as link, anyio.create_task_group() as tasks:
        link.rpc.probe(ASK)
        probe = await link.peer.take()
        assert probe.method == "ask"
        await link.rpc.wait_until_quiet()
        asked = Asked(tasks, link.rpc)
        request = await link.peer.take()
        assert request.id != probe.id
        await link.peer.send(Response(probe.id, None), Response(request.id, "hello"))
        await asked.is_over.wait()
    assert asked.result == "hello"


async def test_waiting_for_quiet_ends_with_the_last_answer():
    async with linked() as link, anyio.create_task_group() as tasks:
        await link.rpc.wait_until_quiet()
        Asked(tasks, link.rpc)
        Asked(tasks, link.rpc)
        one, other = await link.peer.take(), await link.peer.take()
        await link.peer.send(Response(one.id, None))
        with anyio.move_on_after(1) as waiting:
            await link.rpc.wait_until_quiet()
        assert waiting.cancelled_caught
        await link.peer.send(Response(other.id, None))
        with anyio.fail_after(1):
            await link.rpc.wait_until_quiet()


async def test_waiting_for_quiet_ends_when_the_connection_does():
    async with linked() as link, anyio.create_task_group() as tasks:
        Asked(tasks, link.rpc)
        await link.peer.take()
        tasks.start_soon(link.peer.stream.aclose)
        with anyio.fail_after(1):
            await link.rpc.wait_until_quiet()


async def test_waiting_for_quiet_ends_when_the_last_request_is_taken_back():
    async with linked(capacity=4) as link, anyio.create_task_group() as tasks:
        first = Asked(tasks, link.rpc)
        await link.stream.blocked.wait()
        Asked(tasks, link.rpc, Call("late", {}, 5.0))
        await link.peer.send(Response(1, None))
        await first.is_over.wait()
        with anyio.fail_after(10):
            await link.rpc.wait_until_quiet()
