import math
from contextlib import asynccontextmanager

import anyio
import pytest

from codexdrv.engine.settling import READ_BACK_DELAY_S_MAX, Settling
from codexdrv.ids import DeliveryId
from codexdrv.journal.dispatch import Mark
from codexdrv.protocol.events import ThreadStatus
from codexdrv.rules.lifecycle import Outcome
from codexdrv.rules.ownership import Phase
from tests.engine.kit import pass_time, until
from tests.fakes.threads import user_message


ECHO_S = 5.0


class Desk:
    """What one lane has to find out, asked for step by step."""

    def __init__(self, bench, generation, thread):
        self.bench = bench
        self.thread = thread
        self.watch = bench.watch(generation, thread)
        self.settling = Settling(self.watch, bench.ledger, echo_s=ECHO_S)

    async def settle(self):
        pause_s = await self.settling.settle(self.bench.journal.unsettled(self.thread.id))
        await self.bench.ledger.flush()
        return pause_s

    async def settle_for_ever(self):
        while (pause_s := await self.settle()) < math.inf:
            await pass_time(pause_s)

    async def await_echo(self, name="m1"):
        return await self.settling.await_echo(self.bench.journal.delivery(DeliveryId(name)))


@asynccontextmanager
async def settling(bench, thread):
    async with bench.connected() as generation:
        yield Desk(bench, generation, thread)


@pytest.fixture
def thread(bench):
    return bench.server.add_thread(holds_turns=True)


async def send_away(bench, thread, name="m1", **changes):
    """Record a dispatch, and let nothing of it reach the server."""
    bench.admit(name, thread=thread)
    size = thread.path.stat().st_size if thread.path.exists() else 0
    changes.setdefault("mark", Mark(None, str(thread.path), size))
    await bench.send_away(name, **changes)


@asynccontextmanager
async def surfaced(bench, thread, name="m1"):
    """Bring a delivery to the phase surfaced, by the echo."""
    await send_away(bench, thread, name)
    async with settling(bench, thread) as desk:
        await desk.watch.resume()
        bench.server.begin(thread, client_id=name)
        await bench.until_phase(Phase.SURFACED, name)
        yield desk


# Reading back.


async def test_with_nothing_unsettled_there_is_nothing_to_do(bench, thread):
    async with settling(bench, thread) as desk:
        assert await desk.settle() == math.inf
    assert len(bench.server.requests) == 1


async def test_what_the_record_shows_is_stored(bench, thread):
    async with surfaced(bench, thread) as desk:
        assert await desk.settle() == math.inf
    assert bench.standing().stored
    assert bench.standing().reason == "surfaced"


async def test_a_record_that_fills_late_is_read_again_and_again(bench, thread):
    thread.writes_record = False
    async with surfaced(bench, thread) as desk:
        pauses = [await desk.settle() for _ in range(20)]
        assert pauses == sorted(pauses)
        assert pauses[0] < 0.1
        assert pauses[-1] == READ_BACK_DELAY_S_MAX
        assert not bench.standing().stored
        thread.writes_record = True
        thread.record(thread.running, thread.running.items[0])
        assert await desk.settle() == math.inf
    assert bench.standing().stored


async def test_an_older_message_that_is_never_read_back_does_not_slow_a_newer_one(bench, thread):
    thread.writes_record = False
    async with surfaced(bench, thread) as desk:
        for _ in range(20):
            await desk.settle()
        await send_away(bench, thread, "m2")
        bench.server.put(thread, thread.running, user_message("m2", "hello"))
        await bench.until_phase(Phase.SURFACED, "m2")
        assert await desk.settle() < 0.1


async def test_a_line_of_before_the_attempt_stores_nothing(bench, thread):
    thread.record(thread.turns[0], user_message("m1", "hello"))
    thread.writes_record = False
    async with surfaced(bench, thread) as desk:
        assert await desk.settle() < math.inf
    assert not bench.standing().stored


async def test_another_text_in_the_record_stores_nothing(bench, thread):
    thread.writes_record = False
    async with surfaced(bench, thread) as desk:
        thread.writes_record = True
        thread.record(thread.running, user_message("m1", "another"))
        await desk.settle()
    assert not bench.standing().stored


async def test_history_does_not_store_what_a_readable_record_lacks(bench, thread):
    thread.writes_record = False
    async with surfaced(bench, thread) as desk:
        await desk.settle()
    assert ("m1", "hello") in thread.messages
    assert not bench.standing().stored


async def test_history_stores_where_the_record_cannot_be_read(bench, thread):
    async with surfaced(bench, thread) as desk:
        thread.path.rename(f"{thread.path}.zst")
        assert await desk.settle() == math.inf
    assert bench.standing().stored


async def test_history_stores_where_the_home_of_the_server_is_not_seen(bench, thread):
    async with surfaced(bench, thread) as desk:
        thread.path.unlink()
        greeting = desk.watch.session.greeting
        desk.watch.session.greeting = greeting._replace(codex_home="/not/here")
        assert await desk.settle() == math.inf
    assert bench.standing().stored


async def test_history_stores_nothing_where_no_record_was_written(bench, thread):
    async with surfaced(bench, thread) as desk:
        thread.path.unlink()
        assert await desk.settle() < math.inf
    assert not bench.standing().stored


async def test_another_text_in_history_stores_nothing(bench, thread):
    async with surfaced(bench, thread) as desk:
        thread.path.rename(f"{thread.path}.zst")
        thread.running.items[0]["content"][0]["text"] = "another"
        await desk.settle()
    assert not bench.standing().stored


# Ends of turns.


async def test_while_its_turn_is_known_to_run_nothing_is_asked(bench, thread):
    async with surfaced(bench, thread) as desk:
        assert await desk.settle() == math.inf
    assert bench.server.fences == 0
    assert bench.standing().outcome is Outcome.RUNNING


@pytest.mark.parametrize("status", ["completed", "interrupted", "failed"])
async def test_an_end_that_was_missed_is_read_when_the_thread_is_quiet(bench, thread, status):
    async with surfaced(bench, thread):
        pass
    bench.server.finish(thread, status)
    async with settling(bench, thread) as desk:
        await desk.settle_for_ever()
    assert bench.standing().outcome == status
    assert bench.server.fences == 1


async def test_a_turn_that_the_fence_finds_has_not_ended_whatever_history_says(bench, thread):
    async with surfaced(bench, thread):
        pass
    async with settling(bench, thread) as desk:
        await desk.settle_for_ever()
        assert desk.watch.state.turn.id == bench.standing().turn
    assert bench.server.sent("thread/turns/list") == []
    assert bench.standing().outcome is Outcome.RUNNING


@pytest.mark.field_report("openai/codex#35810", "openai/codex#28495")
async def test_idle_that_stays_beside_a_turn_is_asked_about(bench, thread):
    async with surfaced(bench, thread) as desk:
        thread.is_mute = True
        bench.server.finish(thread)
        await pass_time()
        assert desk.watch.state.turn is not None
        pause_s = await desk.settle()
        assert pause_s == ECHO_S
        assert bench.server.fences == 0
        await pass_time(pause_s)
        await desk.settle_for_ever()
    assert bench.standing().outcome is Outcome.COMPLETED


@pytest.mark.field_report("openai/codex#35810", "openai/codex#28495")
async def test_idle_beside_a_turn_that_runs_all_the_same_ends_nothing(bench, thread):
    async with surfaced(bench, thread) as desk:
        desk.watch.state = desk.watch.state._replace(status=ThreadStatus.IDLE)
        for _ in range(10):
            await pass_time(await desk.settle())
        assert bench.server.fences > 1
    assert bench.standing().outcome is Outcome.RUNNING


async def test_a_turn_that_history_does_not_show_is_asked_for_again(bench, thread):
    async with surfaced(bench, thread):
        pass
    bench.server.finish(thread)
    turn = thread.turns.pop()
    async with settling(bench, thread) as desk:
        pauses = [await desk.settle() for _ in range(3)]
        assert pauses == sorted(pauses)
        thread.turns.append(turn)
        await desk.settle_for_ever()
    assert bench.standing().outcome is Outcome.COMPLETED


async def test_who_is_unsettled_is_listened_for(bench, thread):
    async with surfaced(bench, thread):
        pass
    async with settling(bench, thread) as desk:
        await desk.settle()
        assert desk.watch.is_subscribed
        bench.server.finish(thread)
        await until(lambda: bench.standing().outcome is Outcome.COMPLETED)


# Waiting for the echo.


async def test_an_echo_that_is_late_is_waited_for(bench, thread):
    await send_away(bench, thread)
    async with settling(bench, thread) as desk:
        await desk.watch.resume()
        assert await desk.await_echo() == ECHO_S
        await pass_time(2)
        assert await desk.await_echo() == ECHO_S - 2
    assert bench.server.fences == 0
    assert bench.standing().phase is Phase.PENDING


@pytest.mark.field_report("get-bb/bb#2580")
async def test_lateness_proves_nothing_while_a_turn_runs(bench, thread):
    await send_away(bench, thread)
    bench.server.begin(thread)
    async with settling(bench, thread) as desk:
        for _ in range(10):
            await pass_time(await desk.await_echo())
    assert bench.server.fences > 0
    assert bench.standing().phase is Phase.PENDING


async def test_a_quiet_thread_without_the_message_is_doubt(bench, thread):
    await send_away(bench, thread)
    async with settling(bench, thread) as desk:
        await pass_time(await desk.await_echo())
        assert await desk.await_echo() == 0
    assert (bench.standing().phase, bench.standing().reason) == (Phase.UNCERTAIN, "no_echo")


async def test_a_quiet_thread_whose_page_has_the_message_surfaced_it(bench):
    thread = bench.server.add_thread()
    await send_away(bench, thread)
    async with settling(bench, thread) as desk:
        await pass_time(await desk.await_echo())
        thread.is_mute = True
        bench.server.begin(thread, client_id="m1")
        await desk.await_echo()
    assert bench.story() == ["dispatched start", "surfaced surfaced"]


async def test_each_attempt_waits_for_an_echo_of_its_own(bench, thread):
    await send_away(bench, thread, "m1")
    await send_away(bench, thread, "m2")
    async with settling(bench, thread) as desk:
        await desk.watch.resume()
        assert await desk.await_echo("m1") == ECHO_S
        await pass_time(2)
        assert await desk.await_echo("m2") == ECHO_S


async def test_a_thread_that_had_never_been_used_is_listened_to_after_its_first_turn(bench):
    thread = bench.server.add_thread(is_used=False)
    await send_away(bench, thread)
    bench.server.begin(thread, client_id="m1")  # while nobody listened
    async with settling(bench, thread) as desk:
        await desk.await_echo()
        assert desk.watch.is_subscribed
    assert bench.standing().phase is Phase.SURFACED


async def test_a_thread_that_stays_without_a_turn_is_asked_again_soon_and_then_doubted(bench):
    thread = bench.server.add_thread(is_used=False)
    await send_away(bench, thread)
    async with settling(bench, thread) as desk:
        with anyio.fail_after(60):
            while (pause_s := await desk.await_echo()) > 0:
                assert pause_s < ECHO_S
                await pass_time(pause_s)
    assert (bench.standing().phase, bench.standing().reason) == (Phase.UNCERTAIN, "no_echo")
