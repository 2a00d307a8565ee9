"""An answer goes to the very question that was meant, and it is told truthfully what it did."""

from contextlib import asynccontextmanager

import anyio
import pytest

from codexdrv.engine.question import identify_question
from codexdrv.engine.replying import Outcome, Wanted, answer_question
from codexdrv.errors import BadInput, CodexdrvError, LinkError, NotFound, Refused
from codexdrv.ids import ThreadId
from codexdrv.protocol.questions import Decision, Said
from codexdrv.wire.message import Notification, Request, Response, decode
from tests.engine.kit import PEER, until
from tests.fakes.server import Reply


COMMAND = "item/commandExecution/requestApproval"
PERMISSIONS = "item/permissions/requestApproval"


class Asking:
    """A thread that waits for an answer, and how the server sends the question again."""

    def __init__(self, bench, method=COMMAND, **params):
        self.bench = bench
        self.thread = bench.server.add_thread()
        place = {"threadId": self.thread.id, "turnId": "u1", "itemId": "i1"}
        self.request = Request(0, method, place | params)
        self.wanted = Wanted(identify_question(self.request, PEER), self.thread.id)
        bench.server.on_follow["thread/resume"] = lambda: self.send(self.request)

    def send(self, message):
        for connection in self.bench.server.connections:
            connection.send(message)

    def tell(self, method, **params):
        self.send(Notification(method, {"threadId": self.thread.id} | params))

    def settle(self, status=None, turn_status=None):
        self.tell("serverRequest/resolved", requestId=self.request.id)
        if status is not None:
            self.tell("item/completed", turnId="u1", item={"id": "i1", "status": status})
        if turn_status is not None:
            self.tell("turn/completed", turn={"id": "u1", "status": turn_status})

    def close(self):
        """The thread is closed, and the question with it."""
        self.tell("thread/closed")

    @asynccontextmanager
    async def answering(self, decision, said=None):
        """Answer; at the end of the block the outcome is there."""
        outcomes = []

        async def answer():
            session = generation.session
            outcomes.append(await answer_question(session, self.wanted, decision, said or Said()))

        async with self.bench.connected() as generation, anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            await until(lambda: self.replies(generation) or outcomes)
            yield outcomes
            await until(lambda: bool(outcomes))
        (self.reply,) = self.replies(generation)

    @staticmethod
    def replies(generation):
        sent = b"".join(generation.stream.sent).splitlines()
        return [found for line in sent if line[:1] == b"{" and is_reply(found := decode(line))]


def is_reply(message):
    return isinstance(message, Response)


async def fail_to_answer(bench, wanted, decision=Decision.ACCEPT, said=None):
    """Try to answer; nothing is sent, and the error comes back."""
    async with bench.connected() as generation:
        try:
            await answer_question(generation.session, wanted, decision, said or Said())
        except CodexdrvError as error:
            assert Asking.replies(generation) == []
            return error
    raise AssertionError("it was answered")


@pytest.mark.parametrize(
    ("decision", "status", "turn_status", "outcome"),
    [
        (Decision.ACCEPT, "completed", None, Outcome.TAKEN),
        (Decision.ACCEPT, "failed", None, Outcome.TAKEN),
        # It runs; or somebody has declined it.
        (Decision.ACCEPT, None, None, Outcome.SETTLED),
        (Decision.ACCEPT, "declined", None, Outcome.LATE),
        # To who resumed the thread afterwards, a command that was declined never ends.
        (Decision.ACCEPT, None, "completed", Outcome.LATE),
        (Decision.ACCEPT_FOR_SESSION, None, "interrupted", Outcome.LATE),
        (Decision.DECLINE, "declined", None, Outcome.TAKEN),
        # Or somebody has accepted it, and it runs.
        (Decision.DECLINE, None, None, Outcome.SETTLED),
        (Decision.DECLINE, None, "completed", Outcome.TAKEN),
        (Decision.DECLINE, "completed", None, Outcome.LATE),
        (Decision.DECLINE, "failed", None, Outcome.LATE),
        (Decision.CANCEL, "declined", "interrupted", Outcome.TAKEN),
        (Decision.CANCEL, None, "interrupted", Outcome.TAKEN),
        # Or somebody has declined it, and the turn goes on.
        (Decision.CANCEL, "declined", None, Outcome.SETTLED),
        (Decision.CANCEL, None, None, Outcome.SETTLED),
        (Decision.CANCEL, None, "completed", Outcome.LATE),
        (Decision.CANCEL, "completed", None, Outcome.LATE),
    ],
)
async def test_what_is_done_shows_whose_answer_came_first(
    bench, decision, status, turn_status, outcome
):
    asking = Asking(bench)
    async with asking.answering(decision) as outcomes:
        asking.settle(status, turn_status)
    assert outcomes == [outcome]
    assert asking.reply.id == 0


async def test_where_nothing_is_shown_nobody_says_whose_answer_it_was(bench):
    wanted = {"network": {"enabled": True}}
    asking = Asking(bench, PERMISSIONS, permissions=wanted | {"fileSystem": None})
    async with asking.answering(Decision.ACCEPT) as outcomes:
        asking.settle()
    assert outcomes == [Outcome.SETTLED]
    assert asking.reply == Response(0, {"permissions": wanted, "scope": "turn"})


async def test_a_server_that_says_nothing_leaves_it_unclear(bench):
    asking = Asking(bench)
    async with asking.answering(Decision.ACCEPT) as outcomes:
        asking.tell("serverRequest/resolved", requestId=1)
    assert outcomes == [Outcome.UNCLEAR]


async def test_a_thread_that_is_closed_under_an_answer_leaves_it_unclear(bench):
    asking = Asking(bench, PERMISSIONS, permissions={})
    async with asking.answering(Decision.ACCEPT) as outcomes:
        asking.close()
    assert outcomes == [Outcome.UNCLEAR]


async def test_whoever_answers_is_told_when_it_cannot_be_taken_back_any_more(bench):
    asking = Asking(bench)
    sent = []
    async with bench.connected() as generation, anyio.create_task_group() as tasks:

        async def answer():
            session = generation.session
            await answer_question(
                session, asking.wanted, Decision.ACCEPT, Said(), on_sent=lambda: sent.append(1)
            )

        tasks.start_soon(answer)
        await until(lambda: bool(sent))
        await until(lambda: asking.replies(generation) != [])
        tasks.cancel_scope.cancel()


async def test_a_thread_that_is_not_loaded_is_not_loaded_for_an_answer(bench):
    asking = Asking(bench)
    bench.server.unload(asking.thread)
    error = await fail_to_answer(bench, asking.wanted)
    assert isinstance(error, NotFound)
    assert not asking.thread.is_loaded


async def test_what_is_not_asked_again_is_not_open_any_more(bench):
    asking = Asking(bench)
    bench.server.on_follow.clear()
    error = await fail_to_answer(bench, asking.wanted)
    assert isinstance(error, NotFound)
    assert "is not open any more" in error.message


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"id": 1}, {}),
        ({"id": "0"}, {}),
        ({"method": "item/fileChange/requestApproval"}, {}),
        ({}, {"turnId": "u2"}),
        ({}, {"itemId": "i2"}),
        ({}, {"command": "rm -rf /"}),
    ],
)
async def test_another_question_in_its_place_is_not_answered(bench, changes, place):
    asking = Asking(bench)
    params = asking.request.params | place
    asking.request = asking.request._replace(params=params, **changes)
    assert isinstance(await fail_to_answer(bench, asking.wanted), NotFound)


async def test_the_like_question_of_another_server_process_is_not_answered(bench):
    asking = Asking(bench)
    earlier = identify_question(asking.request, PEER._replace(start_ticks=1))
    error = await fail_to_answer(bench, asking.wanted._replace(id=earlier))
    assert isinstance(error, NotFound)


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Decision.CANCEL, None),
        (Decision.ACCEPT, Said((("a", "b"),))),
        (Decision.ACCEPT, Said(content={})),
    ],
)
async def test_what_cannot_be_said_to_it_is_not_sent(bench, decision, said):
    asking = Asking(bench, PERMISSIONS, permissions={})
    error = await fail_to_answer(bench, asking.wanted, decision, said)
    assert isinstance(error, BadInput)


@pytest.mark.parametrize("method", ["thread/read", "thread/resume"])
async def test_a_server_that_answers_nothing_ends_the_wait(bench, method):
    asking = Asking(bench)
    bench.server.twist(method, reply=Reply.NEVER)
    bench.server.on_follow.clear()
    assert isinstance(await fail_to_answer(bench, asking.wanted), LinkError)


@pytest.mark.parametrize("flag", ["is_archived", "is_held_elsewhere"])
async def test_a_thread_that_cannot_be_resumed_says_why(bench, flag):
    asking = Asking(bench)
    setattr(asking.thread, flag, True)
    assert isinstance(await fail_to_answer(bench, asking.wanted), Refused)


async def test_a_thread_that_is_gone_says_so(bench):
    gone = Wanted("0" * 16, ThreadId("01a22d0b-0000-7000-8000-ffffffffffff"))
    assert isinstance(await fail_to_answer(bench, gone), Refused)
