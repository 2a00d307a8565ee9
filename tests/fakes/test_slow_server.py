"""The slow server does what WIRE-FACTS says of the real one, where a simulation relies on it."""

from contextlib import asynccontextmanager
from random import Random

import anyio
import pytest

from codexdrv.ids import NIL_TURN
from codexdrv.wire.message import Refusal, Request, decode, encode
from tests.fakes.server import Stage
from tests.fakes.slow_server import SlowServer
from tests.virtual_time import VIRTUAL_TIME


@pytest.fixture
def anyio_backend():
    return VIRTUAL_TIME


class Client:
    """A greeted connection that waits for what it asks."""

    def __init__(self, server):
        self._server = server
        self.connection = server.connect()
        self.connection.is_greeted = True
        self.seen = []

    def send(self, method, thread, **params):
        request = Request(1, method, {"threadId": thread.id, **params})
        self._server.receive(self.connection, encode(request))

    async def ask(self, method, thread, **params):
        self.seen.clear()
        self.send(method, thread, **params)
        await self.wait()
        return next(each for each in self.seen if not hasattr(each, "method"))

    async def wait(self, seconds=1.0):
        await anyio.sleep(seconds)
        self.seen += [decode(frame) for frame in self.connection._outbox]
        self.connection.forget()

    async def fence(self, thread):
        found = await self.ask("turn/steer", thread, expectedTurnId=NIL_TURN, input=[])
        assert isinstance(found, Refusal)
        return found.message


def said(text="hello", client_id="m1"):
    return {"clientUserMessageId": client_id, "input": [{"type": "text", "text": text}]}


@asynccontextmanager
async def serving(directory):
    async with anyio.create_task_group() as tasks:
        yield SlowServer(directory / "home", tasks=tasks, chance=Random(1))
        tasks.cancel_scope.cancel()


async def test_an_input_becomes_a_turn_and_the_turn_ends(tmp_path):
    async with serving(tmp_path) as server:
        thread = server.add_thread()
        Client(server).send("turn/start", thread, **said())
        assert server.may_come("m1")
        await anyio.sleep(20)
        assert not server.may_come("m1")
    assert thread.messages[1:] == [("m1", "hello")]
    assert thread.running is None


async def test_what_has_not_begun_when_its_connection_closes_never_begins(tmp_path):
    async with serving(tmp_path) as server:
        thread, client = server.add_thread(), Client(server)
        for number in range(20):
            client.send("turn/start", thread, **said(client_id=f"m{number}"))
        await anyio.sleep(0.05)
        server.drop(client.connection)
        await anyio.sleep(20)
        assert not any(server.may_come(f"m{number}") for number in range(20))
    assert 0 < len(thread.messages) - 1 < 20


async def test_a_locked_database_shows_idle_and_interrupted_and_the_fence_tells_the_truth(tmp_path):
    async with serving(tmp_path) as server:
        thread, client = server.add_thread(), Client(server)
        server.locked_until[thread.id] = 15.0
        await client.ask("turn/start", thread, **said())
        view = await client.ask("thread/read", thread, includeTurns=False)
        assert view.result["thread"]["status"] == {"type": "idle"}
        listed = await client.ask("thread/turns/list", thread, limit=1, itemsView="full")
        assert (listed.result["data"][0]["status"], listed.result["data"][0]["items"]) == (
            "interrupted", [],
        )  # fmt: skip
        assert "but found" in await client.fence(thread)
        await anyio.sleep(20)
        assert await client.fence(thread) == "no active turn to steer"
    assert thread.messages[1:] == [("m1", "hello")]


async def test_a_cold_read_lacks_what_was_written_last_until_the_thread_is_resumed(tmp_path):
    async with serving(tmp_path) as server:
        thread = server.add_thread(lags_cold=True)
        server.dies_at = Stage.WRITTEN
        Client(server).send("turn/start", thread, **said())
        await anyio.sleep(1)
        assert not server.is_up
        server.start()
        client, shown = Client(server), []
        for method in ("thread/items/list", "thread/resume", "thread/items/list"):
            answer = await client.ask(method, thread, limit=50)
            shown.append('"m1"' in encode(answer).decode())
    assert shown == [False, False, True]


async def test_a_kill_between_the_two_lines_leaves_a_ghost(tmp_path):
    async with serving(tmp_path) as server:
        thread = server.add_thread()
        server.dies_at = Stage.HALF
        Client(server).send("turn/start", thread, **said("boo"))
        await anyio.sleep(1)
    record = thread.path.read_text("utf-8")
    assert record.count('"boo"') == 1
    assert '"m1"' not in record
    assert thread.messages[1:] == []


async def test_with_a_full_disk_all_is_shown_and_a_kill_forgets_it(tmp_path):
    async with serving(tmp_path) as server:
        thread, forgotten = server.add_thread(), []
        thread.writes_record = False
        server.on_forgotten = lambda _, client_id: forgotten.append(client_id)
        client = Client(server)
        await client.ask("thread/resume", thread)
        await client.ask("turn/start", thread, **said())
        await client.wait(20)
        methods = [getattr(each, "method", None) for each in client.seen]
        assert methods.index("item/completed") < methods.index("warning")
        server.die()
    assert forgotten == ["m1"]
    assert thread.messages[1:] == []


async def test_a_stopped_server_does_later_what_it_was_asked(tmp_path):
    async with serving(tmp_path) as server:
        thread, client = server.add_thread(), Client(server)
        server.stop()
        client.send("turn/start", thread, **said())
        await anyio.sleep(60)
        assert thread.messages[1:] == []
        assert server.may_come("m1")
        server.proceed()
        await anyio.sleep(20)
    assert thread.messages[1:] == [("m1", "hello")]


async def test_a_draining_server_refuses_ends_its_turn_and_is_gone(tmp_path):
    async with serving(tmp_path) as server:
        thread, client = server.add_thread(), Client(server)
        await client.ask("turn/start", thread, **said())
        server.drain()
        refused = await client.ask("turn/start", thread, **said(client_id="m2"))
        assert refused.data == {"reason": "serverShuttingDown"}
        await anyio.sleep(20)
        assert not server.is_up
    assert thread.messages[1:] == [("m1", "hello")]
