from contextlib import asynccontextmanager

import anyio
import pytest

from codexdrv.engine.lanes import Lanes, LaneSettings
from codexdrv.engine.reconciliation import Patience
from codexdrv.errors import JournalBusy, LifeEnded
from codexdrv.protocol.events import Unrecognized
from codexdrv.rules.backoff import PARK_S
from codexdrv.rules.ownership import Phase
from codexdrv.rules.thread import Subscription
from tests.engine.kit import LANE_PACE, pass_time, until


POLL_S = 5.0
LONG_S = 600.0


class Row:
    """All lanes of one connection, and who is told that something changed."""

    def __init__(self, bench, **changes):
        self.bench = bench
        self.changes = 0
        self.is_draining = anyio.Event()
        settings = LaneSettings(
            LANE_PACE, bench.patience, {}, bench.surroundings, bench.began_ms, POLL_S
        )
        self.lanes = Lanes(
            bench.ledger,
            settings._replace(**changes),
            is_draining=self.is_draining,
            on_change=self._count,
        )

    def _count(self):
        self.changes += 1

    @asynccontextmanager
    async def serving(self):
        async with self.bench.connected() as generation, anyio.create_task_group() as tasks:
            generation.listeners.append(self.lanes.hear)
            self.bench.listeners.append(self.lanes.wake)
            tasks.start_soon(self.lanes.serve, generation.session)
            yield generation
            tasks.cancel_scope.cancel()
        self.bench.listeners.clear()
        self.lanes.clear()


@pytest.fixture
def thread(bench):
    return bench.server.add_thread()


# Which threads are served.


async def test_each_thread_that_owes_something_has_a_lane_and_no_other(bench):
    one, other, idle = (bench.server.add_thread() for _ in range(3))
    bench.admit("m1", thread=one)
    bench.admit("m2", thread=other)
    row = Row(bench)
    async with row.serving():
        await bench.until_phase(Phase.SURFACED, "m1")
        await bench.until_phase(Phase.SURFACED, "m2")
        assert set(row.lanes.watches()) == {one.id, other.id}
    assert idle.subscribers == set()


async def test_a_thread_that_is_held_up_holds_up_no_other(bench, thread):
    stuck = bench.server.add_thread(is_archived=True)
    bench.admit("m1", thread=stuck)
    bench.admit("m2", thread=thread)
    async with Row(bench).serving():
        await bench.until_phase(Phase.SURFACED, "m2")
        await until(lambda: bench.standing("m1").reason == "archived")


async def test_a_target_is_served_with_nothing_to_do(bench, thread):
    row = Row(bench, targets={thread.id: Patience()})
    async with row.serving():
        await until(lambda: len(thread.subscribers) == 1)
        await pass_time(2 * LANE_PACE.linger_s)
        assert len(thread.subscribers) == 1
        assert set(row.lanes.watches()) == {thread.id}


async def test_outside_of_the_scope_nothing_is_served(bench, thread):
    target, owing = bench.server.add_thread(), bench.server.add_thread()
    bench.admit("m1", thread=owing)
    bench.admit("m2", thread=thread)
    row = Row(bench, targets={target.id: Patience()}, scope=[thread.id])
    async with row.serving():
        await bench.until_phase(Phase.SURFACED, "m2")
        await pass_time(LONG_S)
        assert set(row.lanes.watches()) <= {thread.id}
    assert bench.standing("m1").phase is Phase.QUEUED


async def test_a_scope_that_owes_nothing_needs_no_lane(bench, thread):
    row = Row(bench, scope=[thread.id])
    async with row.serving():
        await pass_time(LONG_S)
        assert row.lanes.watches() == {}


async def test_each_target_has_a_patience_of_its_own(bench, thread):
    patient = bench.server.add_thread()
    bench.is_sole_writer = False
    for name, each in (("m1", thread), ("m2", patient)):
        bench.admit(name, thread=each)
        bench.server.twist("turn/start", is_carried_out=False)
    async with Row(bench, targets={patient.id: Patience(holds_in_doubt=True)}).serving():
        await pass_time(2 * PARK_S)
    assert bench.standing("m1").parked
    assert not bench.standing("m2").parked


async def test_what_the_host_says_is_asked_of_the_one_that_was_given(bench, thread):
    bench.is_sole_writer = False
    bench.admit(thread=thread)
    bench.server.twist("turn/start", is_carried_out=False)
    async with Row(bench).serving():
        await until(lambda: bench.standing().reason == "not_sole_writer")


async def test_once_the_supervisor_stops_nothing_new_is_sent(bench, thread):
    bench.admit(thread=thread)
    row = Row(bench)
    row.is_draining.set()
    async with row.serving():
        await pass_time(LONG_S)
    assert bench.server.sent("turn/start") == []


async def test_a_newer_life_ends_all_of_it(bench, thread):
    bench.admit(thread=thread)
    row = Row(bench)
    ends = []

    async def serve(session):
        try:
            await row.lanes.serve(session)
        except* LifeEnded:
            ends.append("another has taken over")

    async with bench.connected() as generation:
        bench.begin_life()
        await serve(generation.session)
    assert ends == ["another has taken over"]


# Rings.


async def test_a_ring_opens_the_lane_of_what_came_since(bench, thread):
    row = Row(bench)
    async with row.serving():
        await pass_time(LONG_S)
        bench.admit(thread=thread)
        await pass_time(LONG_S)
        assert bench.standing().phase is Phase.QUEUED
        row.lanes.ring()
        await bench.until_phase(Phase.SURFACED)


async def test_a_ring_makes_every_lane_look_now(bench):
    threads = [bench.server.add_thread(is_archived=True) for _ in range(2)]
    for number, thread in enumerate(threads):
        bench.admit(f"m{number}", thread=thread)
    row = Row(bench)
    async with row.serving():
        await pass_time(LONG_S)
        for thread in threads:
            thread.is_archived = False
        row.lanes.ring()
        await pass_time(0.01)
        assert bench.standing("m0").phase is Phase.SURFACED
        assert bench.standing("m1").phase is Phase.SURFACED


async def test_a_lane_is_woken_for_its_own_thread(bench, thread):
    other = bench.server.add_thread()
    row = Row(bench, targets={thread.id: Patience()})
    async with row.serving():
        await pass_time(LONG_S)
        bench.admit(thread=thread)
        row.lanes.wake(other.id)
        await pass_time(LONG_S)
        assert bench.standing().phase is Phase.QUEUED
        row.lanes.wake(thread.id)
        await bench.until_phase(Phase.SURFACED)


async def test_a_journal_that_cannot_be_read_is_tried_again_after_a_while(bench, thread):
    bench.admit(thread=thread)
    failures = [JournalBusy("locked"), JournalBusy("locked")]

    def fail():
        if failures:
            raise failures.pop()

    bench.on_journal = fail
    async with Row(bench).serving():
        await pass_time(2 * POLL_S - 0.1)
        assert bench.standing().phase is Phase.QUEUED
        await pass_time(0.2)
        assert bench.standing().phase is Phase.SURFACED


async def test_a_thread_that_was_left_is_served_again_when_something_comes(bench, thread):
    bench.admit("m1", thread=thread)
    row = Row(bench)
    async with row.serving():
        await until(lambda: bench.standing("m1").stored)
        await until(lambda: row.lanes.watches() == {})
        bench.admit("m2", thread=thread)
        row.lanes.ring()
        await bench.until_phase(Phase.SURFACED, "m2")


async def test_what_comes_unheard_while_a_thread_is_left_is_found(bench, thread):
    bench.admit("m1", thread=thread)
    row = Row(bench)

    def admit(request):
        if request.method == "thread/unsubscribe" and len(bench.server.sent(request.method)) == 1:
            bench.admit("m2", thread=thread)

    bench.server.on_request = admit
    async with row.serving():
        await bench.until_phase(Phase.SURFACED, "m1")
        await until(lambda: bench.server.sent("thread/unsubscribe") != [])
        await bench.until_phase(Phase.SURFACED, "m2")


# News.


async def test_news_of_a_thread_that_moves_it_is_told_on(bench, thread):
    row = Row(bench, targets={thread.id: Patience()})
    async with row.serving():
        await until(lambda: len(thread.subscribers) == 1)
        await pass_time()
        told = row.changes
        thread.holds_turns = True
        bench.server.begin(thread)
        await pass_time()
        assert row.changes > told
        assert row.lanes.watches()[thread.id].state.turn is not None


async def test_what_a_read_teaches_and_what_stands_in_the_way_is_told_on(bench):
    archived, target = bench.server.add_thread(is_archived=True), bench.server.add_thread()
    row = Row(bench, targets={archived.id: Patience(), target.id: Patience()})
    async with row.serving():
        await until(lambda: row.changes == 2)
        problems = row.lanes.problems()
        assert "it is archived" in problems[archived.id]
        assert problems[target.id] is None


async def test_news_that_moves_nothing_is_told_to_nobody(bench, thread):
    row = Row(bench, targets={thread.id: Patience()})
    async with row.serving():
        await until(lambda: len(thread.subscribers) == 1)
        await pass_time()
        told = row.changes
        row.lanes.hear(Unrecognized("thread/name/updated"))
        bench.server.tell(thread, "thread/name/updated")
        bench.server.tell_status(thread)  # as before
        other = bench.server.add_thread(holds_turns=True)
        bench.server.begin(other)
        await pass_time()
        assert row.changes == told


async def test_after_a_gap_nothing_is_believed_and_what_is_on_its_way_is_in_doubt(bench, thread):
    thread.holds_turns = thread.holds_steers = True
    bench.server.begin(thread)
    bench.admit(thread=thread)
    row = Row(bench)
    async with row.serving():
        await until(lambda: bench.standing().answered_turn is not None)
        row.lanes.hear_gap()
        assert row.lanes.watches()[thread.id].state.subscription is Subscription.NONE
        await pass_time()
        assert bench.story()[2:] == ["in_doubt gap", "in_doubt busy"]
        assert row.lanes.watches()[thread.id].is_subscribed
        bench.server.take_steers(thread)
        await bench.until_phase(Phase.SURFACED)


async def test_when_the_connection_has_ended_nothing_is_known_of_any_thread(bench, thread):
    bench.admit(thread=thread)
    row = Row(bench)
    async with row.serving():
        await bench.until_phase(Phase.SURFACED)
        assert row.lanes.watches() != {}
    assert row.lanes.watches() == {}
