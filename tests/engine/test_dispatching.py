import os
from contextlib import asynccontextmanager

import anyio
import pytest

from codexdrv.engine.dispatching import Dispatching
from codexdrv.errors import DeadlinePassed, JournalError
from codexdrv.ids import DeliveryId
from codexdrv.journal.dispatch import decode_dispatch
from codexdrv.journal.journal import Journal
from codexdrv.rules.lifecycle import News, WhenBusy
from codexdrv.rules.ownership import Fact, Phase
from codexdrv.rules.thread import TurnKind
from tests.engine.kit import PEER, pass_time, until
from tests.fakes.orders import make_order
from tests.fakes.server import (
    DRAINING,
    OVERLOADED,
    TOO_LARGE,
    UNHEARD_OF,
    Drop,
    Reply,
)


ATTEMPTS_FEW = 4


class Desk:
    """The attempts of one thread, one at a time, as its lane would ask for them."""

    def __init__(self, bench, generation, thread):
        self.bench = bench
        self.generation = generation
        self.watch = bench.watch(generation, thread)
        self.is_draining = anyio.Event()
        self.dispatching = Dispatching(self.watch, bench.ledger, began_ms=bench.began_ms)

    async def attempt(self, name="m1"):
        head = self.bench.journal.delivery(DeliveryId(name))
        with anyio.fail_after(300):
            pause_s = await self.dispatching.dispatch(head, is_draining=self.is_draining)
        await self.bench.ledger.flush()
        return pause_s


@asynccontextmanager
async def dispatching(bench, thread):
    async with bench.connected() as generation:
        yield Desk(bench, generation, thread)


@pytest.fixture
def thread(bench):
    return bench.server.add_thread(holds_turns=True)


# Write ahead.


@pytest.mark.field_report("murmur#105")
async def test_pending_is_durable_when_the_request_arrives(bench, thread):
    bench.admit(thread=thread)
    seen = []

    def look(request):
        if request.method == "turn/start":
            with Journal(str(bench.directory / "state")) as another:
                seen.append(another.delivery(DeliveryId("m1")).standing)

    bench.server.on_request = look
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    (standing,) = seen
    assert (standing.phase, standing.attempts) == (Phase.PENDING, 1)
    dispatch = decode_dispatch(standing.dispatch)
    assert dispatch.route == "start"
    assert (dispatch.life, dispatch.generation, dispatch.number) == (bench.ledger.life, 1, 1)
    assert dispatch.peer == PEER


async def test_the_mark_is_the_newest_turn_and_the_record_as_it_was_then(bench, thread):
    bench.admit(thread=thread)
    size, anchor = thread.path.stat().st_size, thread.turns[-1].id
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    mark = decode_dispatch(bench.standing().dispatch).mark
    assert mark == (anchor, str(thread.path), size)
    assert thread.path.stat().st_size > size


@pytest.mark.field_report("murmur#105")
async def test_what_cannot_be_written_ahead_is_not_sent(bench, thread):
    bench.admit(thread=thread)
    bench.journal._database.execute("PRAGMA query_only = ON")
    async with dispatching(bench, thread) as desk:
        with pytest.raises(JournalError):
            await desk.attempt()
    assert bench.server.sent("turn/start") == []
    assert bench.standing().phase is Phase.QUEUED


async def test_an_input_that_was_cancelled_meanwhile_is_not_sent(bench, thread):
    bench.admit(thread=thread)

    def cancel(request):
        if request.method == "turn/steer":  # the fence, right before the write-ahead
            bench.journal.cancel(DeliveryId("m1"), now_ms=bench.now_ms())

    bench.server.on_request = cancel
    async with dispatching(bench, thread) as desk:
        assert await desk.attempt() == 0
    assert bench.server.sent("turn/start") == []
    assert bench.standing().phase is Phase.CANCELLED


@pytest.mark.parametrize("step", range(15))
async def test_an_input_that_is_cancelled_at_any_step_is_sent_only_if_that_was_too_late(
    bench, thread, step
):
    bench.admit(thread=thread)
    steps = iter(range(100))

    def cancel_at_step():
        if next(steps) == step:
            bench.journal.cancel(DeliveryId("m1"), now_ms=bench.now_ms())

    bench.on_journal = cancel_at_step
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    is_cancelled = bench.standing().phase is Phase.CANCELLED
    assert is_cancelled == (bench.server.sent("turn/start") == [])


async def test_the_input_goes_out_with_our_id_and_its_text_as_it_is(bench, thread):
    text = "  a\x00\r\n\ufeffb "
    bench.admit(thread=thread, text=text)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    assert bench.server.sent("turn/start") == [
        {
            "threadId": thread.id,
            "clientUserMessageId": "m1",
            "input": [{"type": "text", "text": text}],
        }
    ]
    assert bench.standing().phase is Phase.SURFACED


# Which way.


async def test_a_quiet_thread_is_resumed_and_fenced_and_a_turn_started(bench, thread):
    bench.admit(thread=thread)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    assert [request.method for request in bench.server.requests[1:]] == [
        "thread/resume", "thread/items/list", "turn/steer", "turn/start",
    ]  # fmt: skip
    assert bench.server.fences == 1
    assert bench.story() == ["dispatched start", "answered answered", "surfaced surfaced"]


async def test_a_thread_is_resumed_once_a_generation(bench):
    thread = bench.server.add_thread()
    async with dispatching(bench, thread) as desk:
        for name in ("m1", "m2", "m3"):
            bench.admit(name, thread=thread)
            await desk.attempt(name)
    assert len(bench.server.sent("thread/resume")) == 1
    assert [client_id for client_id, _ in thread.messages[1:]] == ["m1", "m2", "m3"]


async def test_a_turn_that_is_known_is_steered_without_a_fence(bench, thread):
    bench.admit(thread=thread)
    async with dispatching(bench, thread) as desk:
        await desk.watch.resume()
        turn = bench.server.begin(thread)
        await pass_time()
        await desk.attempt()
    (params,) = bench.server.sent("turn/steer")
    assert params["expectedTurnId"] == turn.id
    assert bench.server.fences == 0
    assert (bench.standing().phase, bench.standing().turn) == (Phase.SURFACED, turn.id)


async def test_a_turn_that_the_fence_finds_is_steered(bench, thread):
    bench.admit(thread=thread)
    turn = bench.server.begin(thread)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    (params,) = bench.server.sent("turn/steer")
    assert params["expectedTurnId"] == turn.id
    assert bench.server.sent("turn/start") == []


@pytest.mark.field_report("omnigent#5398", "agent-bridge#248", "agent-bridge#69")
async def test_a_steer_that_finds_no_turn_starts_one_once(bench, thread):
    bench.admit(thread=thread)
    async with dispatching(bench, thread) as desk:
        await desk.watch.resume()
        bench.server.begin(thread)
        await pass_time()
        thread.is_mute = True
        bench.server.finish(thread)
        thread.is_mute = False
        await desk.attempt()
    assert len(bench.server.sent("turn/steer")) == len(bench.server.sent("turn/start")) == 1
    standing = bench.standing()
    assert (standing.phase, standing.attempts) == (Phase.SURFACED, 1)
    assert bench.story()[:3] == ["dispatched steer", "held no_active_turn", "dispatched start"]


async def test_a_steer_that_finds_another_turn_steers_that_one_once(bench, thread):
    bench.admit(thread=thread)
    async with dispatching(bench, thread) as desk:
        await desk.watch.resume()
        first = bench.server.begin(thread)
        await pass_time()
        second = change_turn(bench, thread)
        await desk.attempt()
    assert expected_turns(bench) == [first.id, second.id]
    assert (bench.standing().phase, bench.standing().turn) == (Phase.SURFACED, second.id)


async def test_a_thread_that_changes_twice_is_left_for_later(bench, thread):
    bench.admit(thread=thread)

    def change(request):
        if request.method == "turn/steer" and request.params["input"]:
            change_turn(bench, thread)

    async with dispatching(bench, thread) as desk:
        await desk.watch.resume()
        bench.server.begin(thread)
        await pass_time()
        bench.server.on_request = change
        pause_s = await desk.attempt()
        assert len(bench.server.sent("turn/steer")) == 2
        assert pause_s > 0
        standing = bench.standing()
        assert (standing.phase, standing.reason, standing.attempts) == (
            Phase.QUEUED, "restless", 1,
        )  # fmt: skip
        bench.server.on_request = lambda _: None
        await pass_time(pause_s)
        await desk.attempt()
    assert bench.standing().phase is Phase.SURFACED
    assert bench.standing().attempts == 2


@pytest.mark.parametrize("begin", ["compact", "review"])
async def test_a_boundary_holds_the_input_and_nothing_is_sent_into_it(bench, thread, begin):
    bench.admit(thread=thread)
    async with dispatching(bench, thread) as desk:
        await desk.watch.resume()
        getattr(bench.server, begin)(thread)
        await pass_time()
        pause_s = await desk.attempt()
        assert pause_s > 0
        assert (bench.standing().phase, bench.standing().reason) == (Phase.QUEUED, "boundary")
        assert bench.server.sent("turn/start") == bench.server.sent("turn/steer") == []
        bench.server.finish(thread)
        await pass_time(pause_s)
        await desk.attempt()
    assert bench.standing().phase is Phase.SURFACED


@pytest.mark.parametrize("begin", ["compact", "review"])
async def test_a_boundary_that_began_before_we_listened_is_found_by_its_refusal(
    bench, thread, begin
):
    bench.admit(thread=thread)
    turn = getattr(bench.server, begin)(thread)
    items = list(turn.items)
    async with dispatching(bench, thread) as desk:
        pause_s = await desk.attempt()
        assert pause_s > 0
        assert bench.standing().phase is Phase.QUEUED
        assert desk.watch.state.turn.kind is not TurnKind.REGULAR
        sent = len(bench.server.sent("turn/steer"))
        await pass_time(pause_s)
        await desk.attempt()
        assert bench.standing().reason == "boundary"
        assert len(bench.server.sent("turn/steer")) == sent
        assert turn.items == items


async def test_a_boundary_that_begins_behind_the_fence_refuses_the_start(bench, thread):
    bench.admit(thread=thread)

    def compact(request):
        if request.method == "turn/start":
            thread.is_mute = True
            bench.server.compact(thread)

    bench.server.on_request = compact
    async with dispatching(bench, thread) as desk:
        assert await desk.attempt() > 0
        assert bench.standing().phase is Phase.QUEUED
        assert desk.watch.state.turn.kind is TurnKind.COMPACTION


async def test_wait_holds_until_the_turn_ends(bench, thread):
    bench.admit(thread=thread, when_busy=WhenBusy.WAIT)
    bench.server.begin(thread)
    async with dispatching(bench, thread) as desk:
        for _ in range(ATTEMPTS_FEW):
            await pass_time(await desk.attempt())
        assert bench.story() == ["held busy"]
        bench.server.finish(thread)
        await pass_time(10)
        await desk.attempt()
    assert bench.server.sent("turn/steer") == []
    assert bench.standing().phase is Phase.SURFACED


@pytest.mark.field_report("omnigent#5398", "agent-bridge#248", "agent-bridge#69")
async def test_wait_goes_on_when_the_end_of_the_turn_was_missed(bench, thread):
    bench.admit(thread=thread, when_busy=WhenBusy.WAIT)
    bench.server.begin(thread)
    async with dispatching(bench, thread) as desk:
        pause_s = await desk.attempt()
        thread.is_mute = True
        bench.server.finish(thread)
        thread.is_mute = False
        await pass_time(pause_s)
        await desk.attempt()
    assert bench.standing().phase is Phase.SURFACED


async def test_interrupt_ends_the_turn_that_was_meant_and_then_starts(bench, thread):
    bench.admit(thread=thread, when_busy=WhenBusy.INTERRUPT)
    turn = bench.server.begin(thread)
    async with dispatching(bench, thread) as desk:
        pause_s = await desk.attempt()
        assert (bench.standing().phase, bench.standing().reason) == (Phase.QUEUED, "interrupting")
        await pass_time(pause_s)
        await desk.attempt()
    assert turn.status == "interrupted"
    assert [params["turnId"] for params in bench.server.sent("turn/interrupt")] == [turn.id]
    assert (bench.standing().phase, bench.standing().turn) == (Phase.SURFACED, thread.running.id)


async def test_interrupt_leaves_another_turn_alone_until_it_knows_it(bench, thread):
    bench.admit(thread=thread, when_busy=WhenBusy.INTERRUPT)
    async with dispatching(bench, thread) as desk:
        await desk.watch.resume()
        bench.server.begin(thread)
        await pass_time()
        other = change_turn(bench, thread)
        await desk.attempt()
        assert other.status == "inProgress"
    assert bench.server.sent("turn/interrupt") == []


# Threads that are not ready.


async def test_a_thread_that_was_never_used_is_started_without_a_subscription(bench):
    thread = bench.server.add_thread(is_used=False)
    bench.admit(thread=thread)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    assert [request.method for request in bench.server.requests[1:]] == [
        "thread/resume", "thread/read", "turn/steer", "turn/start",
    ]  # fmt: skip
    assert thread.messages == [("m1", "hello")]
    assert bench.standing().phase is Phase.PENDING  # nobody heard the echo


@pytest.mark.field_report("openai/codex#42099", "tidebreak#2151")
@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"is_used": False, "is_loaded": False}, "no_rollout"),
        ({"is_ephemeral": True}, "ephemeral"),
    ],
)
async def test_a_thread_that_leaves_no_evidence_is_refused_for_good(bench, flags, reason):
    thread = bench.server.add_thread(**flags)
    bench.admit(thread=thread)
    async with dispatching(bench, thread) as desk:
        assert await desk.attempt() == 0
    assert (bench.standing().phase, bench.standing().reason) == (Phase.FAILED, reason)
    assert bench.server.sent("turn/start") == []


@pytest.mark.field_report("ccteam#189", "agmsg#906", "agmsg#1236")
@pytest.mark.parametrize(
    ("flag", "reason"), [("is_archived", "archived"), ("is_held_elsewhere", "active_writer")]
)
async def test_what_keeps_us_from_the_thread_is_recorded_once_and_waited_for(bench, flag, reason):
    thread = bench.server.add_thread(**{flag: True})
    bench.admit(thread=thread)
    async with dispatching(bench, thread) as desk:
        pauses = []
        for _ in range(ATTEMPTS_FEW):
            pauses.append(await desk.attempt())
            await pass_time(pauses[-1])
        assert pauses == sorted(pauses)
        assert pauses[0] > 0
        assert bench.story() == [f"held {reason}"]
        setattr(thread, flag, False)
        await desk.attempt()
    assert bench.standing().phase is Phase.SURFACED


@pytest.mark.field_report("ccteam#189", "agmsg#906", "agmsg#1236")
async def test_who_has_the_thread_open_is_named(bench):
    thread = bench.server.add_thread(is_held_elsewhere=True)
    bench.admit(thread=thread)
    with thread.path.open("ab"):
        async with dispatching(bench, thread) as desk:
            await desk.attempt()
    assert bench.standing().why == f"another server process has this thread open: pid {os.getpid()}"


@pytest.mark.parametrize(
    ("refusal", "reason"), [(OVERLOADED, "overloaded"), (DRAINING, "draining")]
)
@pytest.mark.parametrize("method", ["thread/resume", "thread/items/list", "turn/steer"])
async def test_a_question_that_is_refused_for_now_holds_the_input_and_is_recorded_once(
    bench, thread, method, refusal, reason
):
    bench.admit(thread=thread)
    for _ in range(ATTEMPTS_FEW):
        bench.server.refuse(method, refusal)
    async with dispatching(bench, thread) as desk:
        for _ in range(ATTEMPTS_FEW):
            pause_s = await desk.attempt()
            assert pause_s > 0
            await pass_time(pause_s)
        assert bench.story() == [f"held {reason}"]
        assert bench.server.sent("turn/start") == []
        await desk.attempt()
    assert bench.standing().phase is Phase.SURFACED


@pytest.mark.parametrize(
    ("refusal", "reason"), [(OVERLOADED, "overloaded"), (DRAINING, "draining")]
)
async def test_an_input_that_is_refused_for_now_is_ours_again_and_goes_later(
    bench, thread, refusal, reason
):
    bench.admit(thread=thread)
    bench.server.refuse("turn/start", refusal)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
        assert (bench.standing().phase, bench.standing().reason) == (Phase.QUEUED, reason)
        pause_s = await desk.attempt()
        assert pause_s > 0
        assert len(bench.server.sent("turn/start")) == 1
        await pass_time(pause_s)
        await desk.attempt()
    assert (bench.standing().phase, bench.standing().attempts) == (Phase.SURFACED, 2)
    assert len(thread.messages) == 2


@pytest.mark.field_report("codex-a2a#238")
async def test_a_thread_that_is_unloaded_meanwhile_is_resumed_again(bench, thread):
    bench.admit(thread=thread)
    async with dispatching(bench, thread) as desk:
        await desk.watch.resume()
        thread.is_mute = True
        bench.server.unload(thread)
        thread.is_mute = False
        await desk.attempt()
    assert bench.standing().phase is Phase.SURFACED
    assert len(bench.server.sent("thread/resume")) == 2


async def test_a_thread_that_does_not_stay_loaded_is_left_for_later(bench, thread):
    bench.admit(thread=thread)

    def unload(request):
        if request.method == "turn/steer":
            thread.is_loaded = False

    bench.server.on_request = unload
    async with dispatching(bench, thread) as desk:
        assert await desk.attempt() > 0
    assert (bench.standing().phase, bench.standing().reason) == (Phase.QUEUED, "restless")
    assert bench.server.fences == len(bench.server.sent("thread/resume")) == 2


# What the end of the request means.


async def test_an_input_over_the_servers_limit_is_refused_for_good(bench, thread):
    bench.admit(thread=thread)
    bench.server.refuse("turn/start", TOO_LARGE)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    assert (bench.standing().phase, bench.standing().reason) == (Phase.FAILED, "input_too_large")


async def test_an_unheard_of_refusal_is_doubt(bench, thread):
    bench.admit(thread=thread)
    bench.server.refuse("turn/start", UNHEARD_OF)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    assert (bench.standing().phase, bench.standing().reason) == (Phase.UNCERTAIN, "unknown")
    assert "the sky is falling" in bench.standing().why


async def test_no_answer_in_time_is_doubt(bench, thread):
    bench.admit(thread=thread)
    bench.server.twist("turn/start", reply=Reply.NEVER, is_carried_out=False)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
        assert (bench.standing().phase, bench.standing().reason) == (
            Phase.UNCERTAIN, "deadline_passed",
        )  # fmt: skip
    assert len(bench.server.sent("turn/start")) == 1


async def test_a_refusal_after_the_deadline_makes_it_ours_again(bench, thread):
    bench.admit(thread=thread)
    bench.server.twist("turn/start", reply=Reply.LATE, refusal=OVERLOADED)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
        assert bench.standing().phase is Phase.UNCERTAIN
        bench.server.release()
        await bench.until_phase(Phase.QUEUED)


async def test_an_answer_after_the_deadline_leaves_it_in_doubt(bench, thread):
    bench.admit(thread=thread)
    bench.server.twist("turn/start", reply=Reply.LATE, is_carried_out=False)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
        bench.server.release()
        await until(lambda: bench.standing().answered_turn is not None)
    assert bench.standing().phase is Phase.UNCERTAIN


async def test_an_echo_after_the_deadline_surfaces_it(bench, thread):
    bench.admit(thread=thread)
    bench.server.twist("turn/start", reply=Reply.NEVER, is_carried_out=False)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
        assert bench.standing().phase is Phase.UNCERTAIN
        bench.server.begin(thread, client_id="m1")
        await bench.until_phase(Phase.SURFACED)


@pytest.mark.parametrize("drop", [Drop.BEFORE, Drop.AFTER])
async def test_a_connection_that_ends_under_the_request_is_doubt_or_still_pending(
    bench, thread, drop
):
    bench.admit(thread=thread)
    bench.server.twist("turn/start", is_carried_out=False, drop=drop)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
        await desk.generation.has_ended.wait()
    expected = {Drop.BEFORE: Phase.UNCERTAIN, Drop.AFTER: Phase.PENDING}
    assert bench.standing().phase is expected[drop]
    assert (bench.standing().answered_turn is None) == (drop is Drop.BEFORE)


async def test_a_steer_on_a_connection_that_has_ended_is_not_written_and_stays_ours(bench, thread):
    bench.admit(thread=thread)
    bench.server.begin(thread)
    async with dispatching(bench, thread) as desk:
        await desk.watch.resume()
        await desk.watch.fence()
        bench.server.drop_all()
        await desk.generation.has_ended.wait()
        assert await desk.attempt() == 0
        assert (bench.standing().phase, bench.standing().reason) == (Phase.QUEUED, "link_lost")
        # And it is not tried over and over.
        assert await desk.attempt() > 0


@pytest.mark.field_report("codex-plugin-cc#781")
async def test_an_answer_that_names_no_turn_is_doubt(bench, thread):
    bench.admit(thread=thread)
    bench.server.twist("turn/start", result={"no": "turn"}, is_carried_out=False)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    assert (bench.standing().phase, bench.standing().reason) == (
        Phase.UNCERTAIN, "malformed_message",
    )  # fmt: skip


@pytest.mark.field_report("openai/codex#40805", "octos#2049")
async def test_an_answer_alone_is_no_proof(bench, thread):
    bench.admit(thread=thread)
    bench.server.twist("turn/start", is_carried_out=False)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
        await pass_time()
    standing = bench.standing()
    assert (standing.phase, standing.reason) == (Phase.PENDING, "answered")
    assert standing.answered_turn is not None


async def test_a_question_without_an_answer_sends_nothing(bench, thread):
    bench.admit(thread=thread)
    bench.server.twist("turn/steer", reply=Reply.NEVER)
    async with dispatching(bench, thread) as desk:
        with pytest.raises(DeadlinePassed):
            await desk.attempt()
    assert bench.server.sent("turn/start") == []
    assert bench.standing().phase is Phase.QUEUED


# Rows of before this life.


async def test_a_row_of_before_this_life_that_the_record_knows_is_not_sent(bench):
    thread = bench.server.add_thread()
    bench.server.begin(thread, client_id="m1")
    thread.turns[-1].items.clear()  # only the record has it
    bench.admit(thread=thread, age_ms=1)
    async with dispatching(bench, thread) as desk:
        assert await desk.attempt() == 0
    assert bench.standing().phase is Phase.SURFACED
    assert bench.server.sent("turn/start") == []


async def test_a_row_of_before_this_life_that_history_knows_is_not_sent(bench):
    thread = bench.server.add_thread()
    bench.server.begin(thread, client_id="m1")
    thread.path.unlink()
    bench.admit(thread=thread, age_ms=1)
    async with dispatching(bench, thread) as desk:
        assert await desk.attempt() == 0
    assert bench.standing().phase is Phase.SURFACED
    assert bench.server.sent("turn/start") == []


async def test_a_row_of_before_this_life_that_nobody_knows_is_sent(bench, thread):
    bench.admit(thread=thread, age_ms=1)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    assert bench.standing().phase is Phase.SURFACED
    assert len(bench.server.sent("turn/start")) == 1


async def test_another_text_under_its_id_does_not_pass_for_a_row_of_before_this_life(bench):
    thread = bench.server.add_thread()
    bench.server.begin(thread, "another text", client_id="m1")
    bench.admit(thread=thread, age_ms=1)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    assert ("m1", "hello") in thread.messages


def change_turn(bench, thread):
    """End the running turn and begin another one, and tell nobody."""
    thread.is_mute = True
    bench.server.finish(thread)
    turn = bench.server.begin(thread)
    thread.is_mute = False
    return turn


def expected_turns(bench):
    return [params["expectedTurnId"] for params in bench.server.sent("turn/steer")]


@pytest.mark.parametrize("when_busy", [WhenBusy.STEER, WhenBusy.WAIT])
async def test_a_decision_that_news_has_overtaken_during_the_commit_is_not_carried_out(
    bench, thread, when_busy
):
    bench.admit(thread=thread, when_busy=when_busy)
    thread.holds_turns = True
    commits = []

    async def commit_slowly(work):
        before = len(bench.journal.story(DeliveryId("m1")))
        done = await bench._run_in_place(work)
        facts = bench.journal.story(DeliveryId("m1"))
        if len(facts) > before and facts[-1].news.fact is Fact.DISPATCHED and not commits:
            commits.append(facts[-1])
            if when_busy is WhenBusy.STEER:
                bench.server.compact(thread)
            else:
                bench.server.begin(thread)
            await pass_time(0.05)
        return done

    bench.ledger._in_thread = commit_slowly
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until(lambda: bench.standing().reason in {"boundary", "busy"})
        assert bench.server.sent("turn/start") == []
    assert bench.story()[:2] == ["dispatched start", "held moved"]


@pytest.mark.field_report("openai/codex#40953")
async def test_a_turn_that_began_after_the_one_that_was_interrupted_is_waited_for(bench, thread):
    bench.server.begin(thread)
    thread.holds_turns = True
    bench.admit(thread=thread, when_busy=WhenBusy.INTERRUPT)
    meant = thread.running.id
    bench.server.twist("turn/interrupt", is_carried_out=False)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until(lambda: bench.server.sent("turn/interrupt") != [])
        bench.server.finish(thread)
        bench.server.begin(thread)
        await until(lambda: bench.standing().reason == "busy")
        await pass_time(60)
        assert {call["turnId"] for call in bench.server.sent("turn/interrupt")} == {meant}
        bench.server.finish(thread)
        await bench.until_phase(Phase.SURFACED)


async def test_what_has_expired_is_not_sent_and_lets_the_next_one_pass(bench, thread):
    order = make_order("m1", thread=thread.id, at_ms=bench.now_ms())
    bench.journal.admit(order._replace(expires_at_ms=bench.now_ms() + 60_000))
    bench.admit("m2", thread=thread)
    await pass_time(60)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await bench.until_phase(Phase.SURFACED, "m2")
    assert (bench.standing("m1").phase, bench.standing("m1").reason) == (Phase.FAILED, "expired")
    assert [call["clientUserMessageId"] for call in bench.server.sent("turn/start")] == ["m2"]


async def test_what_goes_in_time_does_not_expire(bench, thread):
    order = make_order("m1", thread=thread.id, at_ms=bench.now_ms())
    bench.journal.admit(order._replace(expires_at_ms=bench.now_ms() + 60_000))
    async with bench.connected() as generation, bench.serving(generation, thread):
        await bench.until_phase(Phase.SURFACED)
        await pass_time(120)
        await bench.ledger.expire()
    assert bench.standing().phase is Phase.SURFACED


@pytest.mark.parametrize("has_served", [True, False])
async def test_a_home_that_has_lost_a_thread_of_ours_may_lack_its_disk(bench, has_served):
    thread = bench.server.add_thread(is_used=False, is_loaded=False)
    (bench.server.home / "sessions" / "2027").rmdir()
    if has_served:
        bench.admit("m0", thread=thread)
        await bench.ledger.record(DeliveryId("m0"), News(Fact.SURFACED, "surfaced"))
    bench.admit(thread=thread)
    async with dispatching(bench, thread) as desk:
        await desk.attempt()
    held, refused = (Phase.QUEUED, "no_threads"), (Phase.FAILED, "no_rollout")
    standing = bench.standing()
    assert (standing.phase, standing.reason) == (held if has_served else refused)
