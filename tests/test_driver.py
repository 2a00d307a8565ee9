"""The driver against the fake server, over a real unix socket; so in real time, a little of it."""

from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import pytest
from websockets.asyncio.server import unix_serve
from websockets.exceptions import ConnectionClosed

from codexdrv.clock import now_ms
from codexdrv.config import Config, Limits, Server, State, Target
from codexdrv.connect import attach
from codexdrv.driver import Driver
from codexdrv.engine.worker import in_one_thread
from codexdrv.errors import FrameTooBig, LifeEnded
from codexdrv.ids import DeliveryId
from codexdrv.journal.journal import Journal
from codexdrv.protocol.questions import Policy
from codexdrv.rules.lifecycle import Outcome, WhenBusy
from codexdrv.rules.ownership import Phase
from codexdrv.wire.message import Request
from tests.fakes.orders import make_order
from tests.fakes.server import FakeServer, Reply


LIMITS = Limits(poll_s=60.0, echo_s=0.2, linger_s=60.0)
WAIT_S = 5.0
LOOK_S = 0.005


class Rig:
    """A driver, its journal, and a caller's own connection to that journal."""

    def __init__(self, directory, limits=LIMITS, targets=()):
        state = str(directory / "state")
        self.socket = str(directory / "socket")
        self.server = FakeServer(directory / "home")
        self.journal = Journal(state)
        self.caller = Journal(state)
        self.config = Config(
            Server(self.socket, str(directory / "home")),
            State(state),
            limits,
            {thread.id: Target(thread.id, WhenBusy.STEER) for thread in targets},
            None,
        )
        self.begin_life()

    def begin_life(self):
        began_ms = now_ms()
        self.driver = Driver(
            self.config,
            self.journal,
            connect=partial(attach, self.socket),
            policy=Policy.LEAVE,
            life=self.journal.begin_life((1, None, None), "0", now_ms=began_ms),
            began_ms=began_ms,
            version="0",
            in_thread=in_one_thread(),
        )

    def close(self):
        self.journal.close()
        self.caller.close()

    def admit(self, thread, name="m1"):
        self.caller.admit(make_order(name, thread=thread.id, at_ms=now_ms()))

    def standing(self, name="m1"):
        return self.caller.delivery(DeliveryId(name)).standing

    @asynccontextmanager
    async def listening(self):
        """The server listens, and ends all connections at the end."""
        async with unix_serve(self._serve, self.socket, compression=None):
            yield
            self.server.drop_all()

    @asynccontextmanager
    async def driving(self):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.driver.run)
            yield
            tasks.cancel_scope.cancel()

    async def _serve(self, socket):
        connection = self.server.connect()

        async def read():
            with suppress(ConnectionClosed):
                async for text in socket:
                    self.server.receive(connection, text.encode())
            self.server.drop(connection)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            while (frames := await connection.due()) is not None:
                with suppress(ConnectionClosed):
                    for frame in frames:
                        await socket.send(frame.decode())
            tasks.cancel_scope.cancel()


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.close()


async def until(claim):
    with anyio.fail_after(WAIT_S):
        while not claim():  # noqa: ASYNC110 - a claim is no event
            await anyio.sleep(LOOK_S)


async def until_surfaced(rig, name="m1"):
    await until(lambda: rig.standing(name).phase is Phase.SURFACED)


@pytest.mark.field_report("overdeck#2725", "codex-mobile#112", "get-bb/bb#2275")
async def test_what_was_admitted_before_is_delivered_when_the_connection_stands(rig):
    thread = rig.server.add_thread()
    rig.admit(thread)
    async with rig.listening(), rig.driving():
        await until(lambda: rig.standing().outcome is Outcome.COMPLETED)
        link = rig.driver.link()
        assert (link.is_connected, link.generation, link.problem) == (True, 1, None)
        assert link.user_agent == "codexdrv/0.171.0 (fake)"
        assert link.version == "0.171.0"
        assert set(rig.driver.threads()) == {thread.id}
    assert thread.messages[1:] == [("m1", "hello")]


async def test_a_ring_brings_what_is_admitted_later(rig):
    thread = rig.server.add_thread()
    async with rig.listening(), rig.driving():
        await until(lambda: rig.driver.link().is_connected)
        rig.admit(thread)
        rig.driver.ring()
        await until_surfaced(rig)


@pytest.mark.field_report("overdeck#2725", "codex-mobile#112", "get-bb/bb#2275")
async def test_a_ring_wakes_a_lane_that_has_nothing_to_do(rig):
    thread = rig.server.add_thread()
    rig.admit(thread, "m1")
    async with rig.listening(), rig.driving():
        await until(lambda: rig.standing("m1").stored)
        rig.admit(thread, "m2")
        rig.driver.ring()
        await until_surfaced(rig, "m2")


@pytest.mark.field_report("overdeck#2725", "codex-mobile#112", "get-bb/bb#2275")
async def test_without_a_ring_the_journal_is_looked_at(tmp_path):
    rig = Rig(tmp_path, LIMITS._replace(poll_s=0.02))
    thread = rig.server.add_thread()
    async with rig.listening(), rig.driving():
        await until(lambda: rig.driver.link().is_connected)
        rig.admit(thread)
        await until_surfaced(rig)
    rig.close()


async def test_a_thread_that_is_held_up_holds_up_no_other(rig):
    stuck, free = rig.server.add_thread(is_archived=True), rig.server.add_thread()
    rig.admit(stuck, "m1")
    rig.admit(free, "m2")
    async with rig.listening(), rig.driving():
        await until_surfaced(rig, "m2")
        await until(lambda: rig.standing("m1").reason == "archived")


async def test_threads_with_a_name_are_listened_to_from_the_start(tmp_path):
    thread = FakeServer(tmp_path / "home").add_thread()
    rig = Rig(tmp_path, targets=(thread,))
    rig.server.threads[thread.id] = thread
    async with rig.listening(), rig.driving():
        await until(lambda: len(thread.subscribers) == 1)
    rig.close()


async def test_a_thread_that_was_left_is_served_again_when_something_comes(tmp_path):
    rig = Rig(tmp_path, LIMITS._replace(linger_s=0.05))
    thread = rig.server.add_thread()
    rig.admit(thread, "m1")
    async with rig.listening(), rig.driving():
        await until_surfaced(rig, "m1")
        await until(lambda: not thread.subscribers and not rig.driver.threads())
        rig.admit(thread, "m2")
        rig.driver.ring()
        await until_surfaced(rig, "m2")
    rig.close()


async def test_what_comes_while_a_thread_is_being_left_is_served(tmp_path):
    rig = Rig(tmp_path, LIMITS._replace(linger_s=0.05))
    thread = rig.server.add_thread()
    rig.admit(thread, "m1")
    rig.server.twist("thread/unsubscribe", reply=Reply.LATE)
    async with rig.listening(), rig.driving():
        await until(lambda: rig.server.sent("thread/unsubscribe") != [])
        rig.admit(thread, "m2")
        rig.driver.ring()
        await anyio.sleep(0.05)
        rig.server.release()
        await until_surfaced(rig, "m2")
    rig.close()


async def test_without_a_server_it_says_why_and_tries_again(rig):
    rig.admit(rig.server.add_thread())
    assert rig.driver.link().problem == "not connected yet"
    async with rig.driving():
        await rig.driver.wait_for_change()
        assert not rig.driver.link().is_connected
        assert "No server listens" in rig.driver.link().problem
        async with rig.listening():
            await until_surfaced(rig)


@pytest.mark.field_report("remodex#187", "openai/codex#32254")
async def test_a_lost_connection_is_made_again_and_what_was_open_is_looked_for(rig):
    thread = rig.server.add_thread()
    rig.admit(thread)
    rig.server.twist("turn/start", reply=Reply.NEVER, is_carried_out=False)
    async with rig.listening(), rig.driving():
        await until(lambda: rig.server.sent("turn/start") != [])
        rig.server.drop_all()
        await until(lambda: rig.standing().phase is Phase.UNCERTAIN)
        rig.server.begin(thread, client_id="m1")
        await until_surfaced(rig)
        assert rig.driver.link().generation == 2
    assert thread.messages[1:] == [("m1", "hello")]


async def test_a_newer_life_ends_this_one_with_its_own_name(rig):
    rig.admit(rig.server.add_thread())
    rig.caller.begin_life((2, None, None), "0", now_ms=now_ms())
    async with rig.listening():
        with pytest.raises(LifeEnded), anyio.fail_after(WAIT_S):
            await rig.driver.run()
    assert rig.server.sent("turn/start") == []


async def test_draining_waits_for_the_answers_that_are_open_and_sends_nothing_new(rig):
    thread = rig.server.add_thread()
    rig.admit(thread, "m1")
    rig.admit(thread, "m2")
    rig.server.twist("turn/start", reply=Reply.LATE, is_carried_out=False)
    async with rig.listening(), rig.driving(), anyio.create_task_group() as tasks:
        await until(lambda: rig.server.sent("turn/start") != [])
        tasks.start_soon(partial(rig.driver.drain, answers_s=WAIT_S))
        await anyio.sleep(LOOK_S)
        rig.server.release()
    assert rig.standing("m1").answered_turn is not None
    assert rig.standing("m2").phase is Phase.QUEUED


async def test_draining_does_not_wait_for_ever(rig):
    rig.admit(rig.server.add_thread())
    rig.server.twist("turn/start", reply=Reply.NEVER, is_carried_out=False)
    async with rig.listening(), rig.driving():
        await until(lambda: rig.server.sent("turn/start") != [])
        with anyio.fail_after(WAIT_S):
            await rig.driver.drain(answers_s=0.05)


async def test_draining_waits_for_the_turns_that_run_where_they_would_end_with_us(rig):
    thread = rig.server.add_thread()
    thread.holds_turns = True
    rig.admit(thread)
    async with rig.listening(), rig.driving(), anyio.create_task_group() as tasks:
        await until(lambda: rig.standing().stored)
        drained = []

        async def drain():
            await rig.driver.drain(answers_s=WAIT_S, turns_s=WAIT_S)
            drained.append(rig.standing().outcome)

        tasks.start_soon(drain)
        await anyio.sleep(LOOK_S)
        assert drained == []
        rig.server.finish(thread)
        await until(lambda: drained == [Outcome.COMPLETED])


async def test_draining_waits_no_longer_for_turns_than_asked(rig):
    thread = rig.server.add_thread()
    thread.holds_turns = True
    rig.admit(thread)
    async with rig.listening(), rig.driving():
        await until(lambda: rig.standing().stored)
        with anyio.fail_after(WAIT_S):
            await rig.driver.drain(answers_s=WAIT_S, turns_s=0.05)


async def test_a_turn_of_which_nobody_knows_any_more_is_not_waited_for(rig):
    thread = rig.server.add_thread()
    thread.holds_turns = True
    rig.admit(thread)
    async with rig.listening(), rig.driving(), anyio.create_task_group() as tasks:
        await until(lambda: rig.standing().stored)
        tasks.start_soon(partial(rig.driver.drain, answers_s=WAIT_S, turns_s=WAIT_S))
        await anyio.sleep(LOOK_S)
        # Its end was among what was dropped; nobody is told that it is not known any more.
        thread.is_mute = True
        rig.server.finish(thread)
        rig.driver._lanes.hear_gap()


async def test_what_was_just_sent_is_waited_for_like_a_turn(rig):
    rig.admit(rig.server.add_thread())
    rig.server.twist("turn/start", reply=Reply.LATE)
    async with rig.listening(), rig.driving(), anyio.create_task_group() as tasks:
        await until(lambda: rig.server.sent("turn/start") != [])
        tasks.start_soon(partial(rig.driver.drain, answers_s=WAIT_S, turns_s=WAIT_S))
        await anyio.sleep(LOOK_S)
        rig.server.release()
    assert rig.standing().phase is Phase.SURFACED


async def test_it_says_when_there_was_no_server_at_all(rig):
    assert not rig.driver.is_without_server
    async with rig.driving():
        await until(lambda: rig.driver.is_without_server)
        rig.driver.ring()
        async with rig.listening():
            await until(lambda: not rig.driver.is_without_server)
        await until(lambda: rig.driver.link().problem is not None)
        assert not rig.driver.is_without_server


async def test_draining_without_a_connection_is_over_at_once(rig):
    with anyio.fail_after(WAIT_S):
        await rig.driver.drain(answers_s=60.0)


async def test_a_request_that_is_open_at_the_end_is_in_doubt_before_we_are_gone(rig):
    rig.admit(rig.server.add_thread())
    rig.server.twist("turn/start", reply=Reply.NEVER, is_carried_out=False)
    async with rig.listening():
        async with rig.driving():
            await until(lambda: rig.server.sent("turn/start") != [])
        assert (rig.standing().phase, rig.standing().reason) == (Phase.UNCERTAIN, "link_lost")


async def test_what_was_answered_is_in_doubt_as_soon_as_its_connection_has_ended(rig):
    rig.admit(rig.server.add_thread())
    rig.server.twist("turn/start", is_carried_out=False)
    async with rig.driving():
        async with rig.listening():
            await until(lambda: rig.standing().answered_turn is not None)
        await until(lambda: rig.standing().phase is Phase.UNCERTAIN)
        assert not rig.driver.link().is_connected


async def test_what_an_earlier_life_left_on_its_way_is_in_doubt_without_a_server(rig):
    rig.admit(rig.server.add_thread())
    rig.server.twist("turn/start", is_carried_out=False)
    async with rig.listening(), rig.driving():
        await until(lambda: rig.standing().answered_turn is not None)
        rig.journal._database.execute("PRAGMA query_only = ON")  # as if killed
    assert rig.standing().phase is Phase.PENDING
    rig.journal._database.execute("PRAGMA query_only = OFF")
    rig.begin_life()
    async with rig.driving():
        await until(lambda: rig.standing().phase is Phase.UNCERTAIN)


async def test_a_note_keeps_the_generation_that_it_came_from(rig):
    limits = LIMITS._replace(drain_s=0.5)
    rig.driver._generations._limits = limits
    thread = rig.server.add_thread()
    thread.holds_turns = True
    rig.admit(thread)
    async with rig.listening(), rig.driving():
        await until(lambda: rig.standing().stored)
        rig.journal._database.execute("PRAGMA query_only = ON")
        rig.server.finish(thread)
        await until(lambda: rig.driver._ledger._notes)
        rig.server.drop_all()
        await until(lambda: rig.driver.link().generation == 2)
        rig.journal._database.execute("PRAGMA query_only = OFF")
        await until(lambda: rig.standing().outcome is Outcome.COMPLETED)
    assert rig.caller.story(DeliveryId("m1"))[-1].generation == 1


async def test_a_server_of_another_home_gets_nothing_and_fails_nothing(rig):
    rig.admit(rig.server.add_thread())
    rig.server.home = rig.server.home.with_name("another")
    async with rig.listening(), rig.driving():
        await until(lambda: "another" in (rig.driver.link().problem or ""))
    assert rig.standing().phase is Phase.QUEUED
    assert rig.server.sent("thread/resume") == []


async def test_a_page_over_the_cap_is_asked_for_in_smaller_pieces_on_the_next_connection(rig):
    rig.admit(rig.server.add_thread())
    async with rig.listening():
        rig.driver._generations._page_items = 3

        async def serve(_):
            raise FrameTooBig("a page of 40 MiB")

        rig.driver._generations._serve_threads, whole = (
            serve,
            rig.driver._generations._serve_threads,
        )
        async with rig.driving():
            await until(lambda: rig.driver._generations._page_items == 0)
            rig.driver._generations._serve_threads = whole
            await until(lambda: rig.standing().outcome is Outcome.COMPLETED)
    assert rig.server.sent("thread/items/list") == []


async def test_what_is_queued_expires_without_a_server(tmp_path):
    rig = Rig(tmp_path, LIMITS._replace(poll_s=0.01))
    order = make_order("m1", at_ms=now_ms())
    rig.caller.admit(order._replace(expires_at_ms=order.admitted_at_ms + 20))
    async with rig.driving():
        await until(lambda: rig.standing().phase is Phase.FAILED)
    assert rig.standing().reason == "expired"
    rig.close()


async def test_the_end_does_not_wait_for_a_journal_that_cannot_be_written(rig):
    limits = LIMITS._replace(drain_s=0.5)
    rig.driver._generations._limits = limits
    rig.admit(rig.server.add_thread())
    rig.server.twist("turn/start", reply=Reply.NEVER, is_carried_out=False)
    async with rig.listening():
        with anyio.fail_after(LIMITS.drain_s + WAIT_S):
            async with rig.driving():
                await until(lambda: rig.server.sent("turn/start") != [])
                rig.journal._database.execute("PRAGMA query_only = ON")
    assert rig.standing().phase is Phase.PENDING


async def test_targets_are_changed_without_dropping_the_connection(tmp_path):
    limits = LIMITS._replace(linger_s=0.05)
    rig = Rig(tmp_path, limits)
    kept, added = rig.server.add_thread(), rig.server.add_thread()
    one, two = (
        {name: Target(thread.id, WhenBusy.STEER)}
        for name, thread in (("one", kept), ("two", added))
    )
    rig.driver.retarget(one)
    async with rig.listening(), rig.driving():
        await until(lambda: is_subscribed(rig, kept))
        rig.driver.retarget(one | two)
        await until(lambda: is_subscribed(rig, added))
        rig.driver.retarget(two)
        # Nothing is owed in it, and nobody names it any more.
        await until(lambda: kept.id not in rig.driver.threads())
        assert is_subscribed(rig, added)
        rig.driver.retarget(one | two)
        await until(lambda: is_subscribed(rig, kept))
        assert rig.driver.link().generation == 1
    assert [params["threadId"] for params in rig.server.sent("thread/resume")] == [
        kept.id,
        added.id,
        kept.id,
    ]
    assert len(rig.server.sent("thread/unsubscribe")) == 1
    rig.close()


async def test_a_thread_that_loses_its_name_while_something_is_owed_is_served_on(tmp_path):
    rig = Rig(tmp_path, LIMITS._replace(linger_s=0.05))
    thread = rig.server.add_thread()
    thread.holds_turns = True
    rig.driver.retarget({"one": Target(thread.id, WhenBusy.STEER)})
    async with rig.listening(), rig.driving():
        rig.admit(thread)
        rig.driver.ring()
        await until(lambda: rig.standing().stored)
        rig.driver.retarget({})
        rig.server.finish(thread)
        await until(lambda: rig.standing().outcome is Outcome.COMPLETED)
        await until(lambda: rig.driver.threads() == {})
    rig.close()


async def test_the_link_says_since_when_it_stands_and_how_often_the_server_was_another(rig):
    async with rig.listening(), rig.driving():
        await until(lambda: rig.driver.link().is_connected)
        first = rig.driver.link()
        assert first.since_ms <= now_ms()
        assert first.answered_s < WAIT_S
        rig.server.drop_all()
        rig.driver.ring()
        await until(lambda: rig.driver.link().generation == 2 and rig.driver.link().is_connected)
        # The same process: a connection was lost, no server.
        assert rig.driver.link().restarts == 0
        assert rig.driver.link().since_ms > first.since_ms


def is_subscribed(rig, thread):
    watch = rig.driver.threads().get(thread.id)
    return watch is not None and watch.is_subscribed


async def test_a_question_is_as_old_on_the_next_connection_as_it_was_on_the_last(rig):
    approval = Request(
        0, "item/commandExecution/requestApproval", {"threadId": "t1", "turnId": "u1"}
    )

    async def ask():
        await until(lambda: rig.driver.link().is_connected)
        for connection in rig.server.connections:
            connection.send(approval)
        await until(rig.driver.questions)
        return rig.driver.questions()

    assert rig.driver.questions() == []
    async with rig.listening(), rig.driving():
        before = await ask()
        rig.server.drop_all()
        await until(lambda: not rig.driver.link().is_connected)
        assert rig.driver.questions() == []
        rig.driver.ring()
        assert await ask() == before
