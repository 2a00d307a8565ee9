import json
from contextlib import asynccontextmanager

import pytest

from codexdrv.engine.reconciliation import Patience, Reconciliation
from codexdrv.errors import DeadlinePassed, Refused
from codexdrv.ids import DeliveryId, TurnId
from codexdrv.journal.dispatch import Mark
from codexdrv.rules.backoff import LOOK_DELAY_S_FIRST, LOOK_DELAY_S_LATER, PARK_S, SETTLE_S
from codexdrv.rules.evidence import Fate
from codexdrv.rules.lifecycle import OPERATOR, News
from codexdrv.rules.ownership import Fact, Phase
from tests.engine.kit import DISPATCH, pass_time
from tests.fakes.server import OVERLOADED, Reply
from tests.fakes.threads import FakeTurn, user_message


LONG_S = 3600.0
"""Longer than a lane is ever held by a doubt."""


class Desk:
    """What one lane finds out about its inputs that are in doubt, asked for step by step."""

    def __init__(self, bench, generation, thread):
        self.bench = bench
        self.watch = bench.watch(generation, thread)
        self.reconciliation = Reconciliation(
            self.watch, bench.ledger, patience=bench.patience, surroundings=bench.surroundings
        )

    async def look(self, name="m1"):
        """Look once, if a look is due; say when to look again."""
        delivery = self.bench.journal.delivery(DeliveryId(name))
        pause_s = await self.reconciliation.look_for(delivery)
        await self.bench.ledger.flush()
        return pause_s

    async def look_at_once(self):
        self.reconciliation.hurry()
        return await self.look()

    async def look_for(self, seconds):
        """Look as often as it is due, for so long."""
        while seconds > 0 and self.bench.standing().phase is Phase.UNCERTAIN:
            pause_s = await self.look()
            await pass_time(pause_s)
            seconds -= pause_s


@asynccontextmanager
async def reconciling(bench, thread):
    """Sit at a desk that listens to the thread already, if that can be."""
    async with bench.connected() as generation:
        desk = Desk(bench, generation, thread)
        await desk.watch.resume()
        yield desk


@pytest.fixture
def thread(bench):
    return bench.server.add_thread(holds_turns=True)


def mark(thread):
    anchor = TurnId(thread.turns[-1].id) if thread.turns else None
    size = thread.path.stat().st_size if thread.path.exists() else 0
    return Mark(anchor, str(thread.path), size)


async def send_away(bench, thread, name="m1", **changes):
    """Record a dispatch, of which nothing reaches the server."""
    number = bench.standing(name).revision + 1
    await bench.send_away(name, number=number, **{"mark": mark(thread)} | changes)


async def doubt(bench, thread, name="m1", **changes):
    """Admit a delivery, and bring it into doubt."""
    bench.admit(name, thread=thread)
    await send_away(bench, thread, name, **changes)
    await bench.ledger.doubt_pending()


DOUBTED = ["dispatched start", "in_doubt link_lost"]


def put_unheard(bench, thread, text="hello", *, in_record=True, in_history=True):
    """Let the input come into a turn that nobody tells of; say which one."""
    thread.is_mute = True
    thread.writes_record = in_record
    turn = bench.server.begin(thread, text, client_id="m1")
    bench.server.finish(thread)
    thread.unsaved.clear()
    if not in_history:
        turn.items.clear()
    return turn


def requests(bench):
    return [request.method for request in bench.server.requests]


# What shows it.


async def test_a_pending_of_an_earlier_connection_is_doubt_first(bench, thread):
    bench.admit(thread=thread)
    await send_away(bench, thread)
    async with reconciling(bench, thread) as desk:
        assert await desk.look() == 0
    assert bench.story() == DOUBTED
    assert bench.server.fences == 0


async def test_the_record_surfaces_what_history_does_not_show(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        turn = put_unheard(bench, thread, in_history=False)
        assert await desk.look() == 0
    assert bench.story() == [*DOUBTED, "surfaced surfaced", "stored"]
    assert bench.standing().turn == turn.id


async def test_history_surfaces_what_the_record_does_not_show_and_it_is_not_stored(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        turn = put_unheard(bench, thread, in_record=False)
        assert await desk.look() == 0
    assert bench.story() == [*DOUBTED, "surfaced surfaced"]
    assert bench.standing().turn == turn.id


async def test_what_both_show_is_one_message(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        turn = put_unheard(bench, thread)
        assert await desk.look() == 0
    assert bench.story() == [*DOUBTED, "surfaced surfaced", "stored"]
    assert bench.standing().turn == turn.id


async def test_what_is_there_twice_surfaced_and_says_so(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        first = put_unheard(bench, thread)
        put_unheard(bench, thread)
        await desk.look()
    assert bench.story() == [*DOUBTED, "surfaced duplicate_seen", "stored"]
    assert bench.standing().turn == first.id


async def test_a_record_that_names_no_turn_gets_it_from_history(bench):
    thread = bench.server.add_thread(holds_turns=True, is_legacy=True)
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        turn = put_unheard(bench, thread)
        await desk.look()
    assert bench.story() == [*DOUBTED, "surfaced surfaced", "stored"]
    assert bench.standing().turn == turn.id


async def test_a_line_of_before_the_attempt_surfaces_nothing(bench, thread):
    thread.record(thread.turns[0], user_message("m1", "hello"))
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        await desk.look()
    assert bench.story() == DOUBTED


async def test_the_same_text_of_another_client_is_not_ours(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        bench.server.begin(thread, "hello", client_id="another's")
        bench.server.finish(thread)
        await desk.look_for(10)
    assert bench.story() == [*DOUBTED, "absent quiet"]


@pytest.mark.parametrize("where", [{"in_history": False}, {"in_record": False}, {}])
async def test_another_text_under_our_id_is_said_once_and_left_to_an_operator(bench, thread, where):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        put_unheard(bench, thread, "another", **where)
        await desk.look_for(60)
    assert bench.story() == [*DOUBTED, "in_doubt other_text"]


@pytest.mark.parametrize(
    ("is_answered", "fact"), [(True, "surfaced ghost"), (False, "in_doubt ghost")]
)
async def test_a_text_without_its_id_is_ours_only_in_the_turn_that_the_answer_named(
    bench, thread, is_answered, fact
):
    bench.admit(thread=thread)
    await send_away(bench, thread)
    turn = FakeTurn(status="interrupted")
    if is_answered:
        news = News(Fact.ANSWERED, "answered", turn=TurnId(turn.id))
        await bench.ledger.record(DeliveryId("m1"), news)
    await bench.ledger.doubt_pending()
    thread.record_input(turn, user_message("m1", "hello"))
    bench.fate = Fate.GONE
    async with reconciling(bench, thread) as desk:
        await desk.look()
    assert fact in bench.story()
    assert bench.standing().turn == (turn.id if is_answered else None)


async def test_what_surfaces_while_it_is_looked_for_is_heard(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        await desk.look()
        bench.server.begin(thread, client_id="m1")
        await bench.until_phase(Phase.SURFACED)
    assert bench.story() == [*DOUBTED, "surfaced surfaced"]


# What proves that it is absent.


async def test_a_server_that_is_gone_proves_absence_at_the_first_look(bench, thread):
    await doubt(bench, thread)
    bench.fate = Fate.GONE
    async with reconciling(bench, thread) as desk:
        assert await desk.look() == 0
    assert bench.story() == [*DOUBTED, "absent server_gone"]
    assert bench.standing().phase is Phase.QUEUED


@pytest.mark.parametrize("flag", ["is_archived", "is_held_elsewhere"])
async def test_of_a_server_that_is_gone_nothing_can_come_whoever_has_the_thread(
    bench, thread, flag
):
    await doubt(bench, thread)
    bench.fate, bench.is_sole_writer = Fate.GONE, False
    thread.is_loaded = False
    setattr(thread, flag, True)
    async with reconciling(bench, thread) as desk:
        await desk.look()
    assert bench.story() == [*DOUBTED, "absent server_gone"]


async def test_a_turn_that_runs_is_waited_for_though_the_server_seems_to_be_gone(bench, thread):
    await doubt(bench, thread)
    bench.fate = Fate.GONE
    bench.server.begin(thread, "another's")
    async with reconciling(bench, thread) as desk:
        await desk.look()
        assert bench.story() == [*DOUBTED, "in_doubt busy"]
        bench.server.finish(thread)
        await desk.look_at_once()
    assert bench.story() == [*DOUBTED, "in_doubt busy", "absent server_gone"]


@pytest.mark.parametrize("fate", [Fate.ALIVE, Fate.UNKNOWN])
async def test_a_thread_that_is_quiet_twice_proves_absence(bench, thread, fate):
    await doubt(bench, thread)
    bench.fate = fate
    async with reconciling(bench, thread) as desk:
        assert await desk.look() == SETTLE_S
        assert bench.story() == DOUBTED
        await pass_time(SETTLE_S)
        assert await desk.look() == 0
    assert bench.story() == [*DOUBTED, "absent quiet"]
    assert bench.server.fences == 2


async def test_looks_that_are_less_apart_prove_nothing_however_many(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        for _ in range(16):
            await desk.look_at_once()
            await pass_time(SETTLE_S / 16)
        assert bench.server.fences == 16
        assert bench.story() == DOUBTED
        await desk.look_at_once()
    assert bench.story() == [*DOUBTED, "absent quiet"]


async def test_the_time_between_is_that_between_an_answer_and_the_next_question(bench, thread):
    await doubt(bench, thread)
    bench.server.twist("turn/steer")
    bench.server.twist("turn/steer", reply=Reply.LATE)
    async with reconciling(bench, thread) as desk:
        await desk.look()
        bench.tasks.start_soon(desk.look_at_once)
        await pass_time(SETTLE_S)
        bench.server.release()
        await pass_time()
    assert bench.server.fences == 2
    assert bench.story() == DOUBTED


async def test_how_long_the_thread_must_be_quiet_can_be_set(bench, thread):
    await doubt(bench, thread)
    bench.patience = Patience(settle_s=30.0)
    async with reconciling(bench, thread) as desk:
        assert await desk.look() == 30.0
        await pass_time(29.0)
        await desk.look_at_once()
        assert bench.story() == DOUBTED
        await pass_time(1.0)
        await desk.look_at_once()
    assert bench.story() == [*DOUBTED, "absent quiet"]


async def test_a_new_connection_begins_anew(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        await desk.look()
    await pass_time(SETTLE_S)
    async with reconciling(bench, thread) as desk:
        assert await desk.look() == SETTLE_S
    assert bench.story() == DOUBTED


async def test_record_and_history_are_read_after_each_fence(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        before = len(bench.server.requests)
        read_at = []
        bench.on_journal = lambda: read_at.append(len(bench.server.requests) - before)
        await desk.look()
        assert read_at == [1]
        await pass_time(SETTLE_S)
        await desk.look()
        assert read_at[1] == 3
    assert requests(bench)[before:] == ["turn/steer", "thread/items/list"] * 2


@pytest.mark.parametrize("where", [{"in_history": False}, {"in_record": False}])
@pytest.mark.parametrize("nth", [1, 2])
async def test_what_comes_right_behind_a_fence_is_seen(bench, thread, nth, where):
    await doubt(bench, thread)

    def come():
        if bench.server.fences == nth:
            put_unheard(bench, thread, **where)

    async with reconciling(bench, thread) as desk:
        for _ in range(nth):
            bench.server.on_follow["turn/steer"] = come
            await desk.look_at_once()
            await pass_time(SETTLE_S)
    assert bench.standing().phase is Phase.SURFACED


async def test_a_turn_that_runs_in_between_starts_it_over(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        await desk.look()
        await pass_time(SETTLE_S / 2)
        bench.server.begin(thread, "another's")
        await desk.look_at_once()
        bench.server.finish(thread)
        await pass_time(SETTLE_S / 2)
        assert await desk.look_at_once() == SETTLE_S
        assert bench.story() == [*DOUBTED, "in_doubt busy"]
        await pass_time(SETTLE_S)
        await desk.look()
    assert bench.story() == [*DOUBTED, "in_doubt busy", "absent quiet"]


@pytest.mark.parametrize("is_hidden", [False, True])
async def test_while_a_turn_runs_it_may_still_come_whatever_status_says(bench, thread, is_hidden):
    bench.patience = Patience(park_s=0.0)
    await doubt(bench, thread)
    thread.turns.append(FakeTurn(is_hidden=is_hidden))
    async with reconciling(bench, thread) as desk:
        await desk.look_for(LONG_S)
        assert bench.story() == [*DOUBTED, "in_doubt busy"]
        thread.turns[-1].status = "completed"
        await desk.look_for(LONG_S)
    assert bench.story() == [*DOUBTED, "in_doubt busy", "absent quiet"]


async def test_a_thread_that_was_never_used_and_stays_so_proves_absence(bench):
    thread = bench.server.add_thread(is_used=False)
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        await desk.look_for(60)
    assert bench.story() == [*DOUBTED, "absent quiet"]


async def test_a_thread_that_went_with_its_server_before_its_first_turn_proves_absence(bench):
    thread = bench.server.add_thread(is_used=False)
    await doubt(bench, thread)
    thread.is_loaded, bench.fate = False, Fate.GONE
    async with reconciling(bench, thread) as desk:
        await desk.look()
    assert bench.story() == [*DOUBTED, "absent server_gone"]


# What stands in the way.


def have_nothing_to_read(bench, thread, desk):
    thread.path.unlink()


def revert(bench, thread, desk):
    thread.revert(bench.server.begin(thread, "to be reverted"))
    bench.server.tell(thread, "thread/reverted")


def have_items_over_the_cap(bench, thread, desk):
    desk.watch.session.page_items = 0


def lose_the_anchor(bench, thread, desk):
    bench.server.begin(thread, "another's")
    bench.server.finish(thread)
    del thread.turns[0]


def be_full(bench, thread, desk):
    bench.has_room = False


def let_another_write(bench, thread, desk):
    bench.is_sole_writer = False


def archive(bench, thread, desk):
    thread.is_archived = True
    bench.server.unload(thread)


def restart_host(bench, thread, desk):
    bench.fate = Fate.HOST_RESTARTED


def warn(bench, thread, desk):
    # As the lanes note it when the server says so.
    bench.ledger.unsaved.add(DISPATCH.peer)
    # It has not the record open since.
    bench.is_sole_writer = False


@pytest.mark.parametrize(
    ("bend", "reason"),
    [
        (have_nothing_to_read, "record_unreadable"),
        (revert, "moved"),
        (have_items_over_the_cap, "history_incomplete"),
        (lose_the_anchor, "anchor_gone"),
        (warn, "cannot_save"),
        (be_full, "cannot_save"),
        (let_another_write, "not_sole_writer"),
        (archive, "not_loaded"),
        (restart_host, "host_restarted"),
    ],
)
async def test_without_proof_it_stays_and_says_why_once(bench, thread, bend, reason):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        bend(bench, thread, desk)
        await pass_time()
        await desk.look_for(PARK_S / 2)
    assert bench.story() == [*DOUBTED, f"in_doubt {reason}"]
    assert bench.standing().phase is Phase.UNCERTAIN
    assert bench.server.fences > 10


@pytest.mark.parametrize(
    ("bend", "is_absent"),
    [
        (have_nothing_to_read, False),
        (revert, False),
        (have_items_over_the_cap, False),
        (lose_the_anchor, False),
        (be_full, False),
        (let_another_write, True),
        (archive, True),
    ],
)
async def test_only_who_lives_needs_a_thread_of_his_own(bench, thread, bend, is_absent):
    await doubt(bench, thread)
    bench.fate = Fate.GONE
    async with reconciling(bench, thread) as desk:
        bend(bench, thread, desk)
        await pass_time()
        await desk.look()
    assert (bench.standing().phase is Phase.QUEUED) is is_absent


async def test_what_stood_in_the_way_may_pass(bench, thread):
    await doubt(bench, thread)
    bench.is_sole_writer = False
    async with reconciling(bench, thread) as desk:
        await desk.look_for(10)
        bench.is_sole_writer = True
        await desk.look_for(10)
    assert bench.story() == [*DOUBTED, "in_doubt not_sole_writer", "absent quiet"]


async def test_another_obstacle_is_another_reason(bench, thread):
    await doubt(bench, thread)
    bench.is_sole_writer = False
    async with reconciling(bench, thread) as desk:
        await desk.look_for(10)
        bench.has_room = False
        await desk.look_for(10)
    assert bench.story() == [*DOUBTED, "in_doubt not_sole_writer", "in_doubt cannot_save"]


async def test_a_thread_that_nobody_knows_any_more_has_lost_its_anchor(bench, thread):
    await doubt(bench, thread)
    del bench.server.threads[thread.id]
    async with reconciling(bench, thread) as desk:
        await desk.look_for(10)
    assert bench.story() == [*DOUBTED, "in_doubt anchor_gone"]


# What vanishes again and again.


async def vanish(bench, thread, desk, *, reason="turn_ended"):
    """Send it once more, and look for it."""
    await send_away(bench, thread)
    await bench.ledger.record(DeliveryId("m1"), News(Fact.IN_DOUBT, reason, "it is not shown"))
    await desk.look()


async def test_what_a_server_had_held_back_and_has_written_is_believed_again(bench, thread):
    await doubt(bench, thread)
    bench.ledger.unsaved.add(DISPATCH.peer)
    async with reconciling(bench, thread) as desk:
        await desk.look_for(10)
    assert bench.story() == [*DOUBTED, "absent quiet"]


@pytest.mark.field_report("companion#530")
async def test_what_is_lost_with_its_server_again_and_again_is_sent_more_often(bench, thread):
    bench.admit(thread=thread)
    bench.fate = Fate.GONE
    async with reconciling(bench, thread) as desk:
        for _ in range(9):
            await vanish(bench, thread, desk, reason="link_lost")
            assert bench.standing().phase is Phase.QUEUED
        await vanish(bench, thread, desk, reason="link_lost")
    assert (bench.standing().phase, bench.standing().reason) == (Phase.FAILED, "lost")


@pytest.mark.field_report("companion#530")
async def test_the_third_absence_ends_it(bench, thread):
    bench.admit(thread=thread)
    bench.fate = Fate.GONE
    async with reconciling(bench, thread) as desk:
        await vanish(bench, thread, desk)
        await vanish(bench, thread, desk)
        assert bench.standing().phase is Phase.QUEUED
        await vanish(bench, thread, desk)
    standing = bench.standing()
    assert (standing.phase, standing.reason) == (Phase.FAILED, "swallowed")
    assert standing.why == "it was taken 3 times and vanished each time: a hook may block it"
    assert bench.story()[2::3] == ["absent server_gone", "absent server_gone", "refused swallowed"]


async def test_an_operator_who_says_absent_grants_it_three_more(bench, thread):
    bench.admit(thread=thread)
    bench.fate = Fate.GONE
    async with reconciling(bench, thread) as desk:
        await vanish(bench, thread, desk)
        await vanish(bench, thread, desk)
        await send_away(bench, thread)
        await bench.ledger.doubt_pending()
        say(bench, Fact.RESOLVED_ABSENT)
        for _ in range(2):
            await vanish(bench, thread, desk)
            assert bench.standing().phase is Phase.QUEUED
        await vanish(bench, thread, desk)
    assert bench.standing().reason == "swallowed"


async def test_another_attempt_is_looked_for_anew(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        await desk.look()
        say(bench, Fact.RESOLVED_ABSENT)
        await pass_time(SETTLE_S)
        await send_away(bench, thread)
        await bench.ledger.doubt_pending()
        assert await desk.look() == SETTLE_S
    assert bench.standing().phase is Phase.UNCERTAIN


# Parking.


async def test_after_long_the_lane_goes_on_without_it(bench, thread):
    await doubt(bench, thread)
    bench.is_sole_writer = False
    async with reconciling(bench, thread) as desk:
        await desk.look_for(PARK_S - LOOK_DELAY_S_LATER)
        assert not bench.standing().parked
        await desk.look_for(2 * LOOK_DELAY_S_LATER)
    assert bench.story() == [*DOUBTED, "in_doubt not_sole_writer", "parked"]
    standing = bench.standing()
    assert (standing.phase, standing.parked) == (Phase.UNCERTAIN, True)
    assert standing.reason == "not_sole_writer"


async def test_how_long_is_counted_over_connections(bench, thread):
    await doubt(bench, thread)
    bench.is_sole_writer = False
    async with reconciling(bench, thread) as desk:
        await desk.look()
    await pass_time(PARK_S)
    async with reconciling(bench, thread) as desk:
        assert await desk.look() == 0
    assert bench.standing().parked


async def test_where_doubt_holds_the_lane_it_is_never_parked(bench, thread):
    bench.patience = Patience(holds_in_doubt=True)
    await doubt(bench, thread)
    bench.is_sole_writer = False
    async with reconciling(bench, thread) as desk:
        await desk.look_for(LONG_S)
    assert bench.story() == [*DOUBTED, "in_doubt not_sole_writer"]


async def test_while_a_turn_runs_it_is_never_parked(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        put_unheard(bench, thread, "another")
        bench.server.begin(thread, "another's")
        await desk.look_for(LONG_S)
        assert bench.story() == [*DOUBTED, "in_doubt other_text"]
        bench.server.finish(thread)
        await desk.look_for(LOOK_DELAY_S_LATER)
    assert bench.standing().parked


async def test_while_the_thread_is_not_loaded_it_is_never_parked(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        archive(bench, thread, desk)
        await desk.look_for(LONG_S)
    assert not bench.standing().parked


async def test_what_was_parked_is_looked_for_all_the_same_and_surfaces_out_of_order(bench, thread):
    bench.patience = Patience(park_s=0.0)
    await doubt(bench, thread)
    bench.is_sole_writer = False
    async with reconciling(bench, thread) as desk:
        await desk.look_for(LONG_S)
        assert bench.standing().parked
        put_unheard(bench, thread)
        await desk.look_for(LOOK_DELAY_S_LATER)
    standing = bench.standing()
    assert (standing.phase, standing.parked) == (Phase.SURFACED, False)
    assert standing.out_of_order


async def test_what_was_parked_and_is_absent_is_queued_out_of_order(bench, thread):
    bench.patience = Patience(park_s=0.0)
    await doubt(bench, thread)
    bench.is_sole_writer = False
    async with reconciling(bench, thread) as desk:
        await desk.look_for(60)
        bench.is_sole_writer = True
        await desk.look_for(LONG_S)
    standing = bench.standing()
    assert (standing.phase, standing.parked) == (Phase.QUEUED, False)
    assert standing.out_of_order


# Who else writes.


def say(bench, fact):
    """Say something as an operator does, beside the supervisor."""
    news = News(fact, OPERATOR, "he looked")
    revision = bench.standing().revision
    bench.journal.resolve(DeliveryId("m1"), news, revision=revision, now_ms=bench.now_ms())


@pytest.mark.parametrize(
    ("fact", "phase"),
    [
        (Fact.RESOLVED_SURFACED, Phase.SURFACED),
        (Fact.RESOLVED_ABSENT, Phase.QUEUED),
        (Fact.RESOLVED_FAILED, Phase.FAILED),
    ],
)
@pytest.mark.parametrize("fate", [Fate.GONE, Fate.HOST_RESTARTED])
async def test_what_an_operator_says_during_a_look_stands(bench, thread, fate, fact, phase):
    await doubt(bench, thread)
    bench.fate = fate
    async with reconciling(bench, thread) as desk:
        bench.server.on_follow["thread/items/list"] = lambda: say(bench, fact)
        await desk.look()
    assert bench.story() == [*DOUBTED, f"{fact} operator"]
    assert bench.standing().phase is phase


async def test_an_echo_during_a_look_wins(bench, thread):
    await doubt(bench, thread)
    bench.fate = Fate.GONE
    async with reconciling(bench, thread) as desk:
        bench.server.on_follow["thread/items/list"] = lambda: bench.server.begin(
            thread, client_id="m1"
        )
        await desk.look()
    assert bench.story() == [*DOUBTED, "surfaced surfaced"]


# Witnesses that cannot be asked.


@pytest.mark.parametrize("method", ["turn/steer", "thread/items/list"])
async def test_a_witness_that_refuses_counts_as_nothing(bench, thread, method):
    await doubt(bench, thread)
    bench.fate = Fate.GONE
    async with reconciling(bench, thread) as desk:
        bench.server.refuse(method, OVERLOADED)
        with pytest.raises(Refused):
            await desk.look()
        assert bench.story() == DOUBTED
        await desk.look_at_once()
    assert bench.story() == [*DOUBTED, "absent server_gone"]


@pytest.mark.parametrize("method", ["turn/steer", "thread/items/list"])
async def test_a_witness_that_is_silent_counts_as_nothing(bench, thread, method):
    await doubt(bench, thread)
    bench.fate = Fate.GONE
    async with reconciling(bench, thread) as desk:
        bench.server.twist(method, reply=Reply.NEVER)
        with pytest.raises(DeadlinePassed):
            await desk.look()
    assert bench.story() == DOUBTED


async def test_a_quiet_fence_without_history_is_no_look(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        bench.server.refuse("thread/items/list", OVERLOADED)
        with pytest.raises(Refused):
            await desk.look()
        await pass_time(SETTLE_S)
        assert await desk.look_at_once() == SETTLE_S
    assert bench.story() == DOUBTED


async def test_a_witness_that_refuses_is_asked_again_no_sooner_than_others(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        pauses = []
        for _ in range(20):
            bench.server.refuse("turn/steer", OVERLOADED)
            with pytest.raises(Refused):
                await desk.look()
            pauses.append(await desk.look())
            await pass_time(pauses[-1])
    assert pauses[0] == pytest.approx(LOOK_DELAY_S_FIRST)
    assert pauses[-1] == pytest.approx(LOOK_DELAY_S_LATER)


# When.


async def test_it_is_looked_for_often_at_first_and_then_for_ever(bench, thread):
    await doubt(bench, thread)
    bench.is_sole_writer = False
    async with reconciling(bench, thread) as desk:
        pauses = []
        for _ in range(100):
            pauses.append(await desk.look())
            await pass_time(pauses[-1])
        parked = pauses.index(0)
        assert pauses[:parked] == sorted(pauses[:parked])
        assert pauses[0] == LOOK_DELAY_S_FIRST
        assert pauses[-1] == LOOK_DELAY_S_LATER
        put_unheard(bench, thread)
        await desk.look_for(LOOK_DELAY_S_LATER)
    assert bench.standing().phase is Phase.SURFACED


async def test_between_looks_nothing_is_asked_but_when_something_moved(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        pause_s = await desk.look()
        asked = len(bench.server.requests)
        await pass_time(pause_s / 2)
        assert await desk.look() == pause_s / 2
        assert len(bench.server.requests) == asked
        await desk.look_at_once()
        assert len(bench.server.requests) > asked


async def test_what_moves_during_a_look_is_looked_at_right_after(bench, thread):
    await doubt(bench, thread)
    bench.server.begin(thread, "another's")
    async with reconciling(bench, thread) as desk:
        await desk.look_for(120)
        bench.server.on_follow["thread/items/list"] = desk.reconciliation.hurry
        assert await desk.look_at_once() == 0


async def test_each_delivery_is_looked_for_by_itself(bench, thread):
    await doubt(bench, thread, "m1")
    await doubt(bench, thread, "m2")
    async with reconciling(bench, thread) as desk:
        await desk.look("m1")
        await pass_time(SETTLE_S)
        assert await desk.look("m2") == SETTLE_S
        assert await desk.look("m1") == 0
    assert bench.standing("m1").reason == "quiet"
    assert bench.standing("m2").reason == "link_lost"


# What is kept of it.


def witness(bench, nth=-1):
    return json.loads(bench.journal.story(DeliveryId("m1"))[nth].news.witness)


async def test_what_the_witnesses_said_is_kept_with_a_proof_of_absence(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        await desk.look_for(10)
    said = witness(bench)
    assert (said["fence"], said["fate"], said["quiet_s"]) == ("quiet", "alive", SETTLE_S)
    assert said["record"]["is_readable"]
    assert said["record"]["sightings"] == []
    assert said["history"] == {"is_complete": True, "sightings": [], "has_anchor": True}


async def test_what_the_witnesses_said_is_kept_with_what_surfaced(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        turn = put_unheard(bench, thread)
        await desk.look()
    said = witness(bench, -2)
    assert said["record"]["sightings"] == [[turn.id, True]]
    assert said["history"]["sightings"] == [[turn.id, True]]


async def test_what_the_witnesses_said_is_kept_with_the_reason_of_a_doubt(bench, thread):
    await doubt(bench, thread)
    async with reconciling(bench, thread) as desk:
        turn = put_unheard(bench, thread, "another", in_record=False)
        await desk.look()
    said = witness(bench)
    assert said["record"]["sightings"] == []
    assert said["history"]["sightings"] == [[turn.id, False]]


async def test_the_last_word_of_a_server_that_ends_while_we_look_is_heard(bench, thread):
    """Who is seen gone after the record was read may have written in between."""
    await doubt(bench, thread)

    def end_with_a_last_word(_):
        put_unheard(bench, thread, in_history=False)
        return Fate.GONE

    bench.surroundings = bench.surroundings._replace(fate_of=end_with_a_last_word)
    async with reconciling(bench, thread) as desk:
        await desk.look()
    assert bench.story() == [*DOUBTED, "surfaced surfaced", "stored"]
