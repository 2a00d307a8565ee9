from contextlib import asynccontextmanager

import anyio
import pytest

from codexdrv.errors import DeadlinePassed, Refused
from codexdrv.ids import DeliveryId, TurnId
from codexdrv.protocol.events import ThreadStatus
from codexdrv.rules.lifecycle import News
from codexdrv.rules.ownership import Fact, Phase
from codexdrv.rules.thread import Subscription, TurnKind
from codexdrv.wire.message import Notification, Request
from tests.engine.kit import pass_time, until
from tests.fakes.server import DRAINING, NOT_SUPPORTED, OVERLOADED, UNHEARD_OF, Reply
from tests.fakes.threads import user_message


@asynccontextmanager
async def watching(bench, thread):
    async with bench.connected() as generation:
        yield bench.watch(generation, thread)


@pytest.fixture
def thread(bench):
    return bench.server.add_thread(holds_turns=True)


# Subscribing.


async def test_a_resume_subscribes_and_learns_where_the_record_is(bench, thread):
    async with watching(bench, thread) as watch:
        await watch.resume()
        assert watch.is_subscribed
        assert watch.state.status is ThreadStatus.IDLE
        assert watch.path == str(thread.path)
        assert watch.newest == thread.turns[-1].id
    (params,) = bench.server.sent("thread/resume")
    assert params == {"threadId": thread.id, "excludeTurns": True}


@pytest.mark.parametrize("flags", [("waitingOnApproval",), ()])
async def test_a_resume_learns_whether_a_question_was_open_before_anybody_listened(
    bench, thread, flags
):
    bench.server.begin(thread, client_id="m1")
    thread.flags = flags
    async with watching(bench, thread) as watch:
        await watch.resume()
        assert watch.state.is_waiting is bool(flags)


CHANGE = {"id": "i1", "type": "fileChange", "changes": [{"path": "/w/a"}]}


@pytest.mark.parametrize("is_asked_first", [True, False])
async def test_what_waits_may_be_a_change_of_files_that_began_before_anybody_listened(
    bench, thread, is_asked_first
):
    bench.server.begin(thread, client_id="m1").items.append(CHANGE)
    thread.flags = ("waitingOnApproval",)
    place = {"threadId": thread.id, "turnId": thread.running.id, "itemId": "i1"}
    question = Request(0, "item/fileChange/requestApproval", place)
    async with watching(bench, thread) as watch:
        if is_asked_first:
            watch.session.questions.ask(question)
        await watch.resume()
        watch.session.questions.ask(question)
        (found,) = watch.session.questions.all()
    assert found.summary == "change “/w/a”"
    _, shown = bench.server.sent("thread/resume")
    assert shown["excludeTurns"] is True
    assert shown["initialTurnsPage"]["limit"] == 1


async def test_where_a_command_is_asked_about_no_files_are_looked_for(bench, thread):
    bench.server.begin(thread, client_id="m1")
    thread.flags = ("waitingOnApproval",)
    question = Request(0, "item/commandExecution/requestApproval", {"threadId": thread.id})
    async with watching(bench, thread) as watch:
        watch.session.questions.ask(question)
        await watch.resume()
    assert len(bench.server.sent("thread/resume")) == 1


async def test_a_turn_that_cannot_be_shown_costs_no_subscription(bench, thread):
    bench.server.begin(thread, client_id="m1")
    thread.flags = ("waitingOnApproval",)
    async with watching(bench, thread) as watch:
        real = watch.read_page

        async def read_and_refuse():
            await real()
            bench.server.refuse("thread/resume", OVERLOADED)

        watch.read_page = read_and_refuse
        await watch.resume()
        assert watch.is_subscribed
    assert len(bench.server.sent("thread/resume")) == 2


async def test_a_resume_reads_the_newest_page_for_what_was_missed(bench, thread):
    bench.admit(thread=thread)
    await bench.send_away()
    bench.server.begin(thread, client_id="m1")
    async with watching(bench, thread) as watch:
        await watch.resume()
        await bench.ledger.flush()
    assert bench.standing().phase is Phase.SURFACED
    assert bench.standing().turn == thread.running.id


@pytest.mark.parametrize("refusal", [None, NOT_SUPPORTED])
async def test_a_thread_that_never_had_a_turn_is_known_and_not_subscribed(bench, refusal):
    thread = bench.server.add_thread(is_used=False)
    if refusal is not None:
        bench.server.refuse("thread/resume", refusal)
    async with watching(bench, thread) as watch:
        await watch.resume()
        assert watch.state.subscription is Subscription.NEVER_USED
        assert watch.path == str(thread.path)


async def test_a_thread_that_could_not_be_read_is_not_taken_for_gone(bench):
    thread = bench.server.add_thread(is_used=False)
    bench.server.refuse("thread/read", OVERLOADED)
    async with watching(bench, thread) as watch:
        with pytest.raises(Refused, match=OVERLOADED.message):
            await watch.resume()
        assert watch.state.subscription is Subscription.NONE


async def test_a_thread_that_nobody_knows_is_gone(bench):
    thread = bench.server.add_thread(is_used=False, is_loaded=False)
    async with watching(bench, thread) as watch:
        await watch.resume()
        assert watch.state.subscription is Subscription.GONE


@pytest.mark.parametrize(
    ("flags", "subscription"),
    [
        ({"is_ephemeral": True}, Subscription.EPHEMERAL),
        ({"is_archived": True}, Subscription.ARCHIVED),
        ({"is_held_elsewhere": True}, Subscription.HELD_ELSEWHERE),
    ],
)
async def test_why_a_thread_cannot_be_subscribed_to_is_known(bench, flags, subscription):
    thread = bench.server.add_thread(**flags)
    async with watching(bench, thread) as watch:
        await watch.resume()
        assert watch.state.subscription is subscription


@pytest.mark.parametrize("refusal", [OVERLOADED, DRAINING, UNHEARD_OF])
async def test_a_refusal_that_says_nothing_of_the_thread_is_raised(bench, thread, refusal):
    bench.server.refuse("thread/resume", refusal)
    async with watching(bench, thread) as watch:
        with pytest.raises(Refused, match=refusal.message):
            await watch.resume()
        assert watch.state.subscription is Subscription.NONE


async def test_a_page_that_could_not_be_read_is_no_subscription(bench, thread):
    bench.server.twist("thread/items/list", reply=Reply.NEVER)
    async with watching(bench, thread) as watch:
        with pytest.raises(DeadlinePassed):
            await watch.resume()
        assert not watch.is_subscribed
        await watch.resume()
        assert watch.is_subscribed


async def test_an_answer_to_a_resume_that_nobody_waits_for_any_more_is_no_subscription(
    bench, thread
):
    bench.server.twist("thread/resume", reply=Reply.LATE)
    async with watching(bench, thread) as watch:
        with pytest.raises(DeadlinePassed):
            await watch.resume()
        bench.server.release()
        await pass_time()
        assert not watch.is_subscribed


async def test_a_thread_that_closed_right_behind_the_answer_is_not_subscribed(bench, thread):
    bench.server.on_follow["thread/resume"] = lambda: bench.server.unload(thread)
    async with watching(bench, thread) as watch:
        await watch.resume()
        assert not watch.is_subscribed
        assert watch.state.status is ThreadStatus.NOT_LOADED


async def test_a_turn_that_began_right_behind_the_answer_runs(bench, thread):
    bench.server.on_follow["thread/resume"] = lambda: bench.server.begin(thread)
    async with watching(bench, thread) as watch:
        await watch.resume()
        assert watch.state.turn.id == thread.running.id
        assert watch.state.status is ThreadStatus.ACTIVE
        assert watch.newest == thread.running.id


async def test_leaving_is_told_to_the_server(bench, thread):
    async with watching(bench, thread) as watch:
        await watch.resume()
        await watch.unsubscribe()
        assert not watch.is_subscribed
        await pass_time()
    assert thread.subscribers == set()


async def test_what_kept_us_from_subscribing_can_be_asked_again(bench):
    thread = bench.server.add_thread(is_archived=True)
    async with watching(bench, thread) as watch:
        await watch.resume()
        watch.forget_subscription()
        assert watch.state.subscription is Subscription.NONE
        thread.is_archived = False
        await watch.resume()
        watch.forget_subscription()
        assert watch.is_subscribed


# Listening.


async def test_after_a_gap_nothing_is_believed_until_it_is_read_again(bench, thread):
    async with bench.connected() as generation:
        watch = bench.watch(generation, thread)
        await watch.resume()
        thread.holds_turns = True
        bench.server.begin(thread, "hello")
        await until(lambda: watch.state.turn is not None)
        watch.distrust()
        assert not watch.is_subscribed
        assert watch.state.turn is None
        await watch.resume()
        assert watch.is_subscribed


async def test_turns_and_their_ends_are_followed(bench, thread):
    async with watching(bench, thread) as watch:
        await watch.resume()
        bench.server.begin(thread)
        await until(lambda: watch.state.turn is not None)
        turn = watch.state.turn
        assert (turn.id, turn.kind) == (thread.running.id, TurnKind.REGULAR)
        assert watch.newest == turn.id
        bench.server.finish(thread)
        await until(lambda: watch.state.turn is None)


@pytest.mark.parametrize("begin", ["compact", "review"])
async def test_a_boundary_is_seen_and_its_end_too(bench, thread, begin):
    async with watching(bench, thread) as watch:
        await watch.resume()
        getattr(bench.server, begin)(thread)
        await pass_time()
        turn = watch.state.turn
        assert turn.id == thread.running.id
        assert turn.kind in {TurnKind.COMPACTION, TurnKind.REVIEW}
        bench.server.finish(thread)
        await until(lambda: watch.state.turn is None)


async def test_idle_ends_no_turn(bench, thread):
    async with watching(bench, thread) as watch:
        await watch.resume()
        bench.server.begin(thread)
        await until(lambda: watch.state.turn is not None)
        connection = next(iter(thread.subscribers))
        idle = {"threadId": thread.id, "status": {"type": "idle"}}
        connection.send(Notification("thread/status/changed", idle))
        await until(lambda: watch.state.status is ThreadStatus.IDLE)
        assert watch.state.turn is not None


async def test_an_item_that_begins_is_no_echo_and_one_that_is_whole_is(bench, thread):
    bench.admit(thread=thread)
    await bench.send_away()
    async with watching(bench, thread) as watch:
        await watch.resume()
        turn = bench.server.begin(thread)
        item = user_message("m1", "hello")
        bench.server.tell_item(thread, turn, "item/started", item)
        await pass_time()
        assert bench.standing().phase is Phase.PENDING
        bench.server.tell_item(thread, turn, "item/completed", item)
        await bench.until_phase(Phase.SURFACED)


async def test_a_turn_that_a_hook_blocks_is_not_the_newest_that_history_lists(bench, thread):
    thread.blocks_input = True
    async with watching(bench, thread) as watch:
        await watch.resume()
        before = watch.newest
        bench.server.begin(thread)
        await until(lambda: watch.state.turn is not None)
        assert watch.newest == before


@pytest.mark.parametrize("client_id", ["m1", None])
async def test_the_turn_of_a_message_is_the_newest_that_was_seen(bench, thread, client_id):
    async with watching(bench, thread) as watch:
        await watch.resume()
        thread.is_mute = True
        turn = bench.server.begin(thread)
        thread.is_mute = False
        bench.server.put(thread, turn, user_message(client_id, "hello"))
        await until(lambda: watch.newest == turn.id)


# Asking.


async def test_the_fence_says_quiet(bench, thread):
    async with watching(bench, thread) as watch:
        assert await watch.fence()
    assert bench.server.fences == 1
    assert thread.messages == [(None, "hello")]


async def test_the_fence_finds_a_turn_that_was_not_told(bench, thread):
    turn = bench.server.begin(thread)
    async with watching(bench, thread) as watch:
        assert not await watch.fence()
        assert watch.state.turn.id == turn.id
        # It may have no message yet, and history then lists no such turn.
        assert watch.newest is None


@pytest.mark.field_report("omnigent#5398", "agent-bridge#248", "agent-bridge#69")
async def test_the_fence_clears_a_turn_whose_end_was_missed(bench, thread):
    async with watching(bench, thread) as watch:
        await watch.resume()
        bench.server.begin(thread)
        await until(lambda: watch.state.turn is not None)
        thread.is_mute = True
        bench.server.finish(thread)
        assert await watch.fence()
        assert watch.state.turn is None


async def test_a_turn_that_began_since_the_question_is_not_cleared(bench, thread):
    bench.server.on_follow["turn/steer"] = lambda: bench.server.begin(thread)
    async with watching(bench, thread) as watch:
        await watch.resume()
        assert not await watch.fence()
        assert watch.state.turn.id == thread.running.id


async def test_the_fence_finds_that_the_thread_is_not_loaded(bench, thread):
    async with watching(bench, thread) as watch:
        await watch.resume()
        thread.is_loaded = False
        assert not await watch.fence()
        assert not watch.is_subscribed


@pytest.mark.parametrize("refusal", [OVERLOADED, DRAINING, UNHEARD_OF])
async def test_a_fence_that_is_refused_for_another_reason_says_nothing(bench, thread, refusal):
    bench.server.refuse("turn/steer", refusal)
    async with watching(bench, thread) as watch:
        with pytest.raises(Refused, match=refusal.message):
            await watch.fence()


# Interrupting.


async def test_only_the_turn_that_is_known_is_interrupted(bench, thread):
    turn = bench.server.begin(thread)
    async with watching(bench, thread) as watch:
        await watch.fence()
        await watch.interrupt()
    assert turn.status == "interrupted"
    assert [params["turnId"] for params in bench.server.sent("turn/interrupt")] == [turn.id]


async def test_with_no_turn_known_nothing_is_interrupted(bench, thread):
    bench.server.begin(thread)
    async with watching(bench, thread) as watch:
        await watch.interrupt()
    assert bench.server.sent("turn/interrupt") == []


@pytest.mark.field_report("openai/codex#40953")
async def test_another_turn_than_the_one_meant_is_left_alone(bench, thread):
    async with watching(bench, thread) as watch:
        await watch.resume()
        meant = bench.server.begin(thread)
        await until(lambda: watch.state.turn is not None)
        thread.is_mute = True
        bench.server.finish(thread)
        other = bench.server.begin(thread)
        await watch.interrupt()
        assert (meant.status, other.status) == ("completed", "inProgress")
        assert watch.state.turn.id == other.id


async def test_a_turn_that_has_ended_is_not_interrupted_but_forgotten(bench, thread):
    async with watching(bench, thread) as watch:
        await watch.resume()
        bench.server.begin(thread)
        await until(lambda: watch.state.turn is not None)
        thread.is_mute = True
        bench.server.finish(thread)
        await watch.interrupt()
        assert watch.state.turn is None
    assert bench.server.sent("turn/interrupt") == []


async def test_a_compaction_that_looked_like_any_turn_is_not_interrupted(bench, thread):
    bench.server.compact(thread)
    async with watching(bench, thread) as watch:
        await watch.fence()
        assert watch.state.turn.kind is TurnKind.REGULAR
        await watch.interrupt()
        assert watch.state.turn.kind is TurnKind.COMPACTION
    assert thread.running is not None


@pytest.mark.field_report("openai/codex#36926")
async def test_an_interrupt_without_an_answer_is_not_waited_for_for_long(bench, thread):
    bench.server.begin(thread)
    bench.server.twist("turn/interrupt", reply=Reply.NEVER, is_carried_out=False)
    async with watching(bench, thread) as watch:
        await watch.fence()
        with pytest.raises(DeadlinePassed):
            await watch.interrupt()
        assert anyio.current_time() == 5


@pytest.mark.parametrize("is_page_read", [True, False])
async def test_the_end_of_a_turn_does_not_overtake_what_the_page_shows_of_it(
    bench, thread, is_page_read
):
    bench.admit(thread=thread)
    await bench.send_away()
    turn = bench.server.begin(thread, client_id="m1")
    news = News(Fact.ANSWERED, "answered", turn=TurnId(turn.id))
    await bench.ledger.record(DeliveryId("m1"), news)
    # It ends while we read what it took in before we listened.
    bench.server.on_follow["thread/resume"] = lambda: bench.server.finish(thread)
    async with watching(bench, thread) as watch:
        if is_page_read:
            await watch.resume()
        else:
            bench.server.refuse("thread/items/list", OVERLOADED)
            with pytest.raises(Refused):
                await watch.resume()
        await bench.ledger.flush()
    told = ["surfaced surfaced", "turn_ended"] if is_page_read else ["in_doubt turn_ended"]
    assert bench.story() == ["dispatched start", "answered answered", *told]
