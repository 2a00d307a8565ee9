import json

import anyio
import pytest
import structlog

from codexdrv.engine.reconciliation import Patience
from codexdrv.errors import JournalBusy
from codexdrv.ids import DeliveryId
from codexdrv.journal.dispatch import Mark
from codexdrv.rules.backoff import PARK_S, SETTLE_S
from codexdrv.rules.evidence import Fate
from codexdrv.rules.lifecycle import Outcome, WhenBusy
from codexdrv.rules.ownership import Phase
from tests.engine.kit import LANE_PACE, pass_time, until
from tests.fakes.server import OVERLOADED, UNHEARD_OF, Drop, Reply
from tests.fakes.threads import FakeTurn, user_message


LONG_S = 1800.0


@pytest.fixture
def thread(bench):
    return bench.server.add_thread()


def ids(thread):
    return [client_id for client_id, _ in thread.messages if client_id]


def sent(bench):
    """Say which inputs were sent, in order."""
    requests = bench.server.sent("turn/start")
    return [params["clientUserMessageId"] for params in requests]


async def until_settled(bench, name="m1"):
    await until(
        lambda: bench.standing(name).stored and bench.standing(name).outcome is not Outcome.RUNNING
    )


async def test_a_delivery_surfaces_is_read_back_and_its_turn_completes(bench, thread):
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench)
    assert bench.story() == [
        "dispatched start", "answered answered", "surfaced surfaced", "turn_ended", "stored",
    ]  # fmt: skip
    assert bench.standing().outcome is Outcome.COMPLETED
    assert ids(thread) == ["m1"]


async def test_what_is_admitted_while_the_lane_rests_goes_when_it_is_woken(bench, thread):
    async with bench.connected() as generation, bench.serving(generation, thread) as lane:
        bench.admit("m1", thread=thread)
        lane.wake()
        await until_settled(bench, "m1")
        await pass_time(60)
        bench.admit("m2", thread=thread)
        lane.wake()
        await until_settled(bench, "m2")
    assert ids(thread) == ["m1", "m2"]


async def test_deliveries_go_in_the_order_of_their_admission(bench, thread):
    names = [f"m{number}" for number in range(10)]
    for name in names:
        bench.admit(name, thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench, names[-1])
    assert ids(thread) == names


# Order.


@pytest.mark.field_report("openai/codex#45194")
async def test_the_second_waits_while_the_first_is_pending(bench, thread):
    thread.holds_turns = True
    thread.holds_steers = True
    bench.admit("m1", thread=thread)
    bench.admit("m2", thread=thread)
    bench.server.begin(thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await bench.until_phase(Phase.PENDING)
        await pass_time(LONG_S)
        assert bench.standing("m1").phase is Phase.PENDING
        assert bench.standing("m2").phase is Phase.QUEUED
        bench.server.take_steers(thread)
        thread.holds_steers = False
        await bench.until_phase(Phase.SURFACED, "m2")
    assert ids(thread) == ["m1", "m2"]


@pytest.mark.parametrize(
    "twist",
    [
        {"is_carried_out": False},  # swallowed
        {"refusal": UNHEARD_OF},
        {"reply": Reply.NEVER, "is_carried_out": False},
        {"result": {"no": "turn"}, "is_carried_out": False},
    ],
)
async def test_what_is_proved_absent_is_sent_again_once_and_before_all_others(bench, thread, twist):
    bench.admit("m1", thread=thread)
    bench.admit("m2", thread=thread)
    bench.server.twist("turn/start", **twist)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await bench.until_phase(Phase.UNCERTAIN)
        await until_settled(bench, "m2")
        await pass_time(LONG_S)
    assert bench.story("m1").count("absent quiet") == 1
    assert bench.standing("m1").attempts == 2
    assert sent(bench) == ["m1", "m1", "m2"]
    assert ids(thread) == ["m1", "m2"]


async def test_what_is_in_doubt_without_proof_holds_its_lane_and_nothing_is_sent_again(
    bench, thread
):
    bench.patience = Patience(holds_in_doubt=True)
    bench.is_sole_writer = False
    bench.admit("m1", thread=thread)
    bench.admit("m2", thread=thread)
    bench.server.twist("turn/start", is_carried_out=False)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await bench.until_phase(Phase.UNCERTAIN)
        await pass_time(LONG_S)
    assert bench.standing("m1").phase is Phase.UNCERTAIN
    assert bench.standing("m2").phase is Phase.QUEUED
    assert sent(bench) == ["m1"]


async def test_a_late_echo_opens_the_lane_again_and_nothing_is_sent_again(bench, thread):
    bench.admit("m1", thread=thread)
    bench.admit("m2", thread=thread)
    bench.server.twist("turn/start", is_carried_out=False)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await bench.until_phase(Phase.UNCERTAIN)
        await pass_time(SETTLE_S / 2)
        assert bench.standing("m2").phase is Phase.QUEUED
        bench.server.begin(thread, client_id="m1")
        await until_settled(bench, "m2")
    assert sent(bench) == ["m1", "m2"]
    assert ids(thread) == ["m1", "m2"]


async def test_a_server_that_cannot_be_asked_is_asked_more_and_more_rarely(bench, thread):
    bench.admit(thread=thread)
    bench.server.twist("turn/start", is_carried_out=False)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await bench.until_phase(Phase.UNCERTAIN)
        asked = bench.server.fences
        for _ in range(1000):
            bench.server.refuse("turn/steer", OVERLOADED)
        await pass_time(LONG_S)
    assert bench.standing().phase is Phase.UNCERTAIN
    assert 20 < bench.server.fences - asked < 60


async def test_another_text_under_our_id_is_doubt_and_is_never_taken_for_ours(bench, thread):
    bench.admit("m1", thread=thread)
    bench.server.twist("turn/start", is_carried_out=False)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await bench.until_phase(Phase.PENDING)
        bench.server.begin(thread, "another", client_id="m1")
        await bench.until_phase(Phase.UNCERTAIN)
        assert bench.standing().reason == "other_text"
        await pass_time(LONG_S)
        assert bench.standing().phase is Phase.UNCERTAIN
    assert len(bench.server.sent("turn/start")) == 1


@pytest.mark.field_report("curie#536")
async def test_what_is_in_doubt_for_long_lets_the_others_pass_and_is_still_looked_for(
    bench, thread
):
    bench.is_sole_writer = False
    bench.admit("m1", thread=thread)
    bench.admit("m2", thread=thread)
    bench.server.twist("turn/start", is_carried_out=False)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await bench.until_phase(Phase.UNCERTAIN)
        await pass_time(PARK_S / 2)
        assert bench.standing("m2").phase is Phase.QUEUED
        await until_settled(bench, "m2")
        assert bench.standing("m1").parked
        assert bench.standing("m1").phase is Phase.UNCERTAIN
        thread.is_mute = True
        bench.server.begin(thread, client_id="m1")
        await bench.until_phase(Phase.SURFACED)
    assert bench.standing("m1").out_of_order
    assert ids(thread) == ["m2", "m1"]


async def test_a_cancelled_one_lets_the_others_pass(bench, thread):
    thread.is_archived = True
    bench.admit("m1", thread=thread)
    bench.admit("m2", thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread) as lane:
        await until(lambda: bench.standing("m1").reason == "archived")
        bench.journal.cancel(DeliveryId("m1"), now_ms=bench.now_ms())
        thread.is_archived = False
        lane.hurry()
        await until_settled(bench, "m2")
    assert ids(thread) == ["m2"]


async def test_a_phase_that_is_not_known_shuts_the_lane_and_is_never_replayed(bench, thread):
    bench.admit("m1", thread=thread)
    bench.admit("m2", thread=thread)
    bench.journal._database.execute(
        "UPDATE deliveries SET phase = 'teleported', dispatch = '{}' WHERE id = 'm1'"
    )
    async with bench.connected() as generation, bench.serving(generation, thread) as lane:
        for _ in range(10):
            await pass_time(600)
            lane.hurry()
        assert bench.standing("m1").phase == "teleported"
        assert bench.standing("m2").phase is Phase.QUEUED
    assert bench.server.sent("turn/start") == []


# Holding.


@pytest.mark.parametrize("begin", ["compact", "review"])
async def test_a_boundary_holds_and_the_message_goes_at_once_when_it_ends(bench, thread, begin):
    bench.admit(thread=thread)
    getattr(bench.server, begin)(thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await pass_time(LONG_S)
        assert bench.standing().phase is Phase.QUEUED
        assert ids(thread) == []
        bench.server.finish(thread)
        await pass_time(0.1)
        assert bench.standing().phase is Phase.SURFACED


@pytest.mark.field_report("overdeck#2725", "codex-mobile#112", "get-bb/bb#2275")
async def test_a_message_that_waits_goes_at_once_when_the_turn_ends(bench, thread):
    thread.holds_turns = True
    bench.server.begin(thread)
    bench.admit(thread=thread, when_busy=WhenBusy.WAIT)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await pass_time(LONG_S)
        assert bench.story() == ["held busy"]
        bench.server.finish(thread)
        await pass_time(0.1)
        assert bench.standing().phase is Phase.SURFACED


@pytest.mark.field_report("ccteam#189", "agmsg#906", "agmsg#1236")
@pytest.mark.parametrize("flag", ["is_archived", "is_held_elsewhere"])
async def test_what_kept_it_away_for_hours_is_recorded_once_and_passes(bench, thread, flag):
    setattr(thread, flag, True)
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await pass_time(LONG_S)
        assert len(bench.story()) == 1
        setattr(thread, flag, False)
        await until_settled(bench)
    assert ids(thread) == ["m1"]


@pytest.mark.field_report("openai/codex#46878")
async def test_overload_is_met_with_fewer_and_fewer_tries(bench, thread):
    bench.admit(thread=thread)
    for _ in range(1000):
        bench.server.refuse("thread/resume", OVERLOADED)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await pass_time(60)
        assert len(bench.server.sent("thread/resume")) < 20
        assert bench.story() == ["held overloaded"]


@pytest.mark.field_report("openai/codex#15095")
async def test_a_journal_that_cannot_be_written_holds_everything_until_it_can(bench, thread):
    bench.admit(thread=thread)
    database = bench.journal._database
    database.execute("PRAGMA query_only = ON")
    async with bench.connected() as generation, bench.serving(generation, thread):
        await pass_time(600)
        assert bench.server.sent("turn/start") == []
        database.execute("PRAGMA query_only = OFF")
        await until_settled(bench)
    assert ids(thread) == ["m1"]


async def test_a_question_without_an_answer_is_asked_again(bench, thread):
    bench.admit(thread=thread)
    bench.server.twist("thread/resume", reply=Reply.NEVER, is_carried_out=False)
    bench.server.twist("turn/steer", reply=Reply.NEVER)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench)
    assert ids(thread) == ["m1"]


async def test_nothing_new_is_sent_once_the_supervisor_is_stopping(bench, thread):
    async with bench.connected() as generation, bench.serving(generation, thread) as lane:
        bench.is_draining.set()
        bench.admit(thread=thread)
        lane.wake()
        await pass_time(LONG_S)
    assert bench.standing().phase is Phase.QUEUED
    # Signs of life go on.
    sent = {request.method for request in bench.server.requests}
    assert sent == {"initialize", "thread/loaded/list"}


async def test_an_attempt_that_has_begun_sends_nothing_once_the_supervisor_is_stopping(
    bench, thread
):
    bench.admit(thread=thread)

    def stop(request):
        if request.method == "turn/steer":
            bench.is_draining.set()

    bench.server.on_request = stop
    async with bench.connected() as generation, bench.serving(generation, thread):
        await pass_time(60)
    assert bench.standing().phase is Phase.QUEUED
    assert bench.server.sent("turn/start") == []


# The first turn of a thread.


async def test_a_thread_that_was_never_used_gets_its_first_turn_from_us(bench):
    thread = bench.server.add_thread(is_used=False)
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench)
    assert [request.method for request in bench.server.requests[1:8]] == [
        "thread/resume",
        "thread/read",
        "turn/steer",
        "turn/start",
        "thread/resume",
        "thread/items/list",
        "turn/steer",
    ]
    assert ids(thread) == ["m1"]


@pytest.mark.field_report("curie#536")
async def test_a_message_that_a_hook_blocks_fails_when_it_has_vanished_three_times(bench, thread):
    thread.blocks_input = True
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await bench.until_phase(Phase.FAILED)
        await pass_time(LONG_S)
    assert bench.standing().reason == "swallowed"
    assert sent(bench) == ["m1"] * 3
    assert ids(thread) == []


async def test_a_steer_whose_turn_was_cut_before_it_took_it_goes_into_a_turn_of_its_own(
    bench, thread
):
    thread.holds_turns = thread.holds_steers = True
    bench.server.begin(thread)
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until(lambda: bench.standing().answered_turn is not None)
        bench.server.finish(thread, "interrupted")
        await bench.until_phase(Phase.UNCERTAIN)
        assert bench.standing().reason == "turn_ended"
        await bench.until_phase(Phase.SURFACED)
        await pass_time(LONG_S)
    assert ids(thread) == ["m1"]
    assert len(bench.server.sent("turn/steer")) == 1
    assert sent(bench) == ["m1"]


@pytest.mark.field_report("openclaw#115445")
async def test_a_turn_that_is_cut_is_the_outcome_and_the_message_is_not_sent_again(bench, thread):
    thread.holds_turns = True
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await bench.until_phase(Phase.SURFACED)
        bench.server.finish(thread, "interrupted")
        await until_settled(bench)
        await pass_time(LONG_S)
    assert bench.standing().outcome is Outcome.INTERRUPTED
    assert ids(thread) == ["m1"]


@pytest.mark.field_report("openai/codex#35810", "openai/codex#28495")
async def test_an_end_that_was_not_told_is_found(bench, thread):
    thread.holds_turns = True
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until(lambda: bench.standing().stored)
        thread.is_mute = True
        bench.server.finish(thread)
        await until(lambda: bench.standing().outcome is Outcome.COMPLETED)


# Connections that end.


@pytest.mark.parametrize("is_carried_out", [True, False])
@pytest.mark.parametrize("drop", [Drop.BEFORE, Drop.AFTER])
@pytest.mark.parametrize("is_new_life", [True, False])
async def test_what_was_open_when_the_connection_ended_is_looked_for_and_delivered_once(
    bench, thread, drop, is_carried_out, is_new_life
):
    bench.admit("m1", thread=thread)
    bench.admit("m2", thread=thread)
    bench.server.twist("turn/start", is_carried_out=is_carried_out, drop=drop)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await generation.has_ended.wait()
    await bench.ledger.flush()
    assert bench.standing().phase in {Phase.PENDING, Phase.UNCERTAIN}
    if is_new_life:
        bench.begin_life()
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench, "m2")
        await pass_time(LONG_S)
    assert ids(thread) == ["m1", "m2"]
    assert sent(bench) == (["m1", "m2"] if is_carried_out else ["m1", "m1", "m2"])


async def test_an_input_that_died_with_its_server_is_sent_again_to_the_next_one(bench, thread):
    bench.admit(thread=thread)
    bench.server.on_follow["turn/start"] = bench.server.die
    bench.server.twist("turn/start", is_carried_out=False)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await generation.has_ended.wait()
    await bench.ledger.flush()
    assert bench.standing().phase is Phase.PENDING
    bench.fate = Fate.GONE
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench)
    assert bench.story()[1:4] == ["answered answered", "in_doubt link_lost", "absent server_gone"]
    assert sent(bench) == ["m1", "m1"]
    assert ids(thread) == ["m1"]


async def test_a_turn_that_the_server_died_in_has_an_outcome(bench, thread):
    thread.holds_turns = True
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until(lambda: bench.standing().stored)
        bench.server.die()
        await generation.has_ended.wait()
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench)
    assert bench.standing().outcome is Outcome.INTERRUPTED
    assert ids(thread) == ["m1"]


async def test_a_row_of_before_this_life_that_is_in_the_thread_is_not_sent(bench, thread):
    bench.server.begin(thread, client_id="m1")
    bench.admit("m1", thread=thread, age_ms=1)
    bench.admit("m2", thread=thread, age_ms=1)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench, "m2")
    assert ids(thread) == ["m1", "m2"]
    assert bench.standing("m1").stored


async def test_a_pending_that_was_never_sent_is_doubted_and_then_sent(bench, thread):
    bench.admit(thread=thread)
    await bench.send_away(mark=Mark(None, str(thread.path), thread.path.stat().st_size))
    bench.begin_life()
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench)
    assert bench.story()[:4] == [
        "dispatched start", "in_doubt link_lost", "absent quiet", "dispatched start",
    ]  # fmt: skip
    assert ids(thread) == ["m1"]


# Staying and leaving.


async def test_a_thread_without_a_name_is_left_when_nothing_was_owed_for_long(bench, thread):
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread) as lane:
        await until_settled(bench)
        settled_at = anyio.current_time()
        await until(lambda: bench.server.sent("thread/unsubscribe") != [])
        assert anyio.current_time() - settled_at == pytest.approx(LANE_PACE.linger_s, abs=2)
        assert not lane.watch.is_subscribed


async def test_a_thread_is_not_left_while_its_turn_runs(bench, thread):
    thread.holds_turns = True
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until(lambda: bench.standing().stored)
        await pass_time(LONG_S)
        assert bench.server.sent("thread/unsubscribe") == []
        bench.server.finish(thread)
        await until(lambda: bench.standing().outcome is Outcome.COMPLETED)
        await until(lambda: bench.server.sent("thread/unsubscribe") != [])


async def test_a_thread_is_not_left_when_something_came_unheard(bench, thread):
    bench.admit("m1", thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench, "m1")
        bench.admit("m2", thread=thread)  # and nobody rings
        await until_settled(bench, "m2")
    assert bench.server.sent("thread/unsubscribe") == []


async def test_a_thread_that_has_a_name_is_kept(bench, thread):
    async with (
        bench.connected() as generation,
        bench.serving(generation, thread, is_kept=True) as lane,
    ):
        await until(lambda: lane.watch.is_subscribed)
        await pass_time(LONG_S)
        assert bench.server.sent("thread/unsubscribe") == []
        assert len(bench.server.sent("thread/resume")) == 1


async def test_a_kept_thread_that_is_unloaded_is_loaded_again(bench, thread):
    async with (
        bench.connected() as generation,
        bench.serving(generation, thread, is_kept=True) as lane,
    ):
        await until(lambda: lane.watch.is_subscribed)
        bench.server.unload(thread)
        await until(lambda: len(bench.server.sent("thread/resume")) == 2)
        await until(lambda: lane.watch.is_subscribed)
    assert thread.is_loaded


async def test_leaving_a_thread_needs_no_answer(bench, thread):
    bench.server.twist("thread/unsubscribe", reply=Reply.NEVER)
    bench.admit(thread=thread)
    ended = []
    async with (
        bench.connected() as generation,
        bench.serving(generation, thread, on_end=ended.append),
    ):
        await until(lambda: bool(ended))


async def test_what_cannot_be_read_back_does_not_keep_the_next_message_back(bench, thread):
    bench.admit("m1", thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread) as lane:
        await until_settled(bench, "m1")
        bench.journal._database.execute("UPDATE deliveries SET stored = 0 WHERE id = 'm1'")
        thread.path.unlink()
        for _ in range(50):
            bench.server.refuse("thread/items/list", UNHEARD_OF)
        bench.admit("m2", thread=thread)
        lane.hurry()
        await bench.until_phase(Phase.SURFACED, "m2")
        assert not bench.standing("m1").stored
    assert ids(thread) == ["m1", "m2"]


# What goes wrong around a lane.


async def test_leaving_waits_until_the_journal_can_be_read(bench, thread):
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench)
        failures = [JournalBusy("locked")]

        def fail_once():
            if failures:
                raise failures.pop()

        bench.on_journal = fail_once
        await until(lambda: bench.server.sent("thread/unsubscribe") != [])
        assert not failures


@pytest.mark.parametrize("trouble", ["is_archived", "is_held_elsewhere"])
async def test_what_a_session_took_that_is_gone_is_in_doubt_until_the_thread_is_back(
    bench, thread, trouble
):
    bench.server.twist("turn/start", is_carried_out=False)
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until(lambda: bench.standing().answered_turn is not None)
        setattr(thread, trouble, True)
        bench.server.unload(thread)
        await pass_time(LONG_S)
        assert bench.story()[2:] == ["in_doubt unloaded", "in_doubt not_loaded"]
        setattr(thread, trouble, False)
        await until_settled(bench)
    assert sent(bench) == ["m1", "m1"]
    assert ids(thread) == ["m1"]


async def test_what_a_legacy_record_shows_without_a_turn_gets_its_turn_from_history(bench, thread):
    bench.admit(thread=thread)
    await bench.send_away(mark=Mark(None, str(thread.path), thread.path.stat().st_size))
    turn = FakeTurn(status="completed", items=[user_message("m1", "hello")])
    thread.turns.append(turn)
    payload = {"type": "user_message", "client_id": "m1", "message": "hello"}
    with thread.path.open("a") as record:
        record.write(json.dumps({"type": "event_msg", "payload": payload}) + "\n")
    bench.begin_life()
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench)
    assert (bench.standing().turn, bench.standing().outcome) == (turn.id, Outcome.COMPLETED)


async def test_a_turn_that_ended_long_ago_is_found_behind_many_others(bench, thread):
    thread.holds_turns = True
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until(lambda: bench.standing().stored)
    thread.running.status = "completed"
    thread.turns += [FakeTurn(status="completed") for _ in range(120)]
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench)
    assert bench.standing().outcome is Outcome.COMPLETED


async def test_a_turn_that_was_reverted_is_not_said_to_run_for_ever(bench, thread):
    thread.holds_turns = True
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until(lambda: bench.standing().stored)
    thread.turns.pop()
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_settled(bench)
    assert bench.standing().outcome is Outcome.INTERRUPTED
    assert "reverted" in bench.journal.story(DeliveryId("m1"))[-1].news.why


@pytest.mark.field_report("ccteam#189", "agmsg#906", "agmsg#1236")
@pytest.mark.parametrize(
    ("flag", "why"),
    [("is_archived", "it is archived"), ("is_held_elsewhere", "another server process has it")],
)
async def test_a_thread_that_cannot_be_kept_loaded_is_told_once_and_tried_again(bench, flag, why):
    thread = bench.server.add_thread(**{flag: True})
    with structlog.testing.capture_logs() as lines:
        async with (
            bench.connected() as generation,
            bench.serving(generation, thread, is_kept=True) as lane,
        ):
            await pass_time(LONG_S)
            setattr(thread, flag, False)
            await until(lambda: lane.watch.is_subscribed)
            await pass_time(LONG_S)
    told = [line for line in lines if line["event"].startswith("lane.")]
    assert [line["event"] for line in told] == ["lane.held_up", "lane.freed"]
    assert why in told[0]["error"]
    # Every five seconds at most.
    assert LONG_S / 5 <= told[1]["after_failures"] <= LONG_S / 5 + 10


async def test_a_thread_that_a_message_has_loaded_is_not_held_up_any_more(bench):
    thread = bench.server.add_thread(is_archived=True)
    with structlog.testing.capture_logs() as lines:
        async with (
            bench.connected() as generation,
            bench.serving(generation, thread, is_kept=True) as lane,
        ):
            for number in range(2):
                await until(lambda: lane.problem is not None)
                bench.admit(f"m{number}", thread=thread)
                lane.wake()
                await pass_time(60)
                thread.is_archived = False
                await until_settled(bench, f"m{number}")
                assert lane.problem is None
                thread.is_archived = True
                bench.server.unload(thread)
    told = [line["event"] for line in lines if line["event"].startswith("lane.")]
    assert told == ["lane.held_up", "lane.freed"] * 2


async def test_a_target_that_could_not_be_loaded_and_is_none_any_more_is_left_at_once(bench):
    thread = bench.server.add_thread(is_archived=True)
    left = []
    async with (
        bench.connected() as generation,
        bench.serving(generation, thread, is_kept=True, on_end=left.append) as lane,
    ):
        await until(lambda: lane.problem is not None)
        lane.keep(is_kept=False, patience=bench.patience)
        began = anyio.current_time()
        await until(lambda: left == [lane])
        assert anyio.current_time() - began < LANE_PACE.linger_s
    assert lane.problem is None
    assert bench.server.sent("thread/unsubscribe") == []
