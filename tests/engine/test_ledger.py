import anyio
import pytest

from codexdrv.engine.notes import Attempted, Echo, Ending, Gap
from codexdrv.errors import JournalError, LifeEnded
from codexdrv.ids import DeliveryId, TurnId
from codexdrv.journal.dispatch import decode_dispatch
from codexdrv.protocol.events import TurnStatus
from codexdrv.rules.lifecycle import News, Outcome
from codexdrv.rules.ownership import Fact, Phase
from tests.engine.kit import pass_time, until


M1, M2 = DeliveryId("m1"), DeliveryId("m2")
TURN, OTHER_TURN = TurnId("turn-1"), TurnId("turn-2")
HELD = News(Fact.HELD, "overloaded")
ANSWERED = News(Fact.ANSWERED, "answered", turn=TURN)
IN_DOUBT = News(Fact.IN_DOUBT, "link_lost")


@pytest.fixture
def thread(bench):
    return bench.server.add_thread()


@pytest.fixture
async def pending(bench, thread):
    bench.admit(thread=thread)
    return await bench.send_away()


def echo(thread, name="m1", text="hello", turn=TURN):
    return Echo(thread.id, turn, name, text, "the server shows it")


def ending(thread, turn=TURN, status=TurnStatus.COMPLETED):
    return Ending(thread.id, turn, status)


def attempted(delivery, news, **changes):
    dispatch = decode_dispatch(delivery.standing.dispatch)._replace(**changes)
    return Attempted(delivery.order.id, (dispatch.life, dispatch.generation, dispatch.number), news)


async def write(bench, *notes):
    for note in notes:
        bench.ledger.post(note)
    await bench.ledger.flush()


async def test_a_gap_in_what_the_server_said_puts_all_that_is_on_its_way_in_doubt(
    bench, thread, pending
):
    other = bench.server.add_thread()
    bench.admit("m2", thread=other)
    await bench.send_away("m2")
    bench.admit("m3", thread=thread)
    await write(bench, Gap())
    for name in ("m1", "m2"):
        standing = bench.standing(name)
        assert (standing.phase, standing.reason) == (Phase.UNCERTAIN, "gap")
    assert bench.standing("m3").phase is Phase.QUEUED
    # Behind it the wire goes on, and says what became of them.
    await write(bench, echo(thread))
    assert bench.standing().phase is Phase.SURFACED


async def test_an_echo_surfaces_an_input_and_says_in_which_turn(bench, thread, pending):
    await write(bench, echo(thread))
    standing = bench.standing()
    assert (standing.phase, standing.turn, standing.outcome) == (
        Phase.SURFACED, TURN, Outcome.RUNNING,
    )  # fmt: skip
    assert not standing.stored


@pytest.mark.parametrize(
    "facts",
    [
        (),
        (Fact.IN_DOUBT,),
        (Fact.REFUSED,),
        (Fact.HELD,),
    ],
)
async def test_a_late_echo_surfaces_whatever_was_thought_of_it(bench, thread, pending, facts):
    for fact in facts:
        await bench.ledger.record(M1, News(fact, "so it seemed"))
    await write(bench, echo(thread))
    assert bench.standing().phase is Phase.SURFACED


async def test_an_input_that_was_taken_back_and_comes_all_the_same_is_surfaced(bench, thread):
    bench.admit(thread=thread)
    bench.journal.cancel(M1, now_ms=bench.now_ms())
    await write(bench, echo(thread))
    assert bench.standing().phase is Phase.SURFACED


@pytest.mark.field_report("Spexcode#79")
async def test_an_echo_counts_once(bench, thread, pending):
    await write(bench, echo(thread), echo(thread), echo(thread, turn=OTHER_TURN))
    assert bench.story() == ["dispatched start", "surfaced surfaced"]
    assert bench.standing().turn == TURN


async def test_another_text_under_our_id_is_doubt_and_no_proof(bench, thread, pending):
    await write(bench, echo(thread, text="hello "))
    standing = bench.standing()
    assert (standing.phase, standing.reason) == (Phase.UNCERTAIN, "other_text")
    await write(bench, echo(thread))
    assert bench.standing().phase is Phase.SURFACED


async def test_another_text_does_not_shake_an_input_that_is_not_on_its_way(bench, thread):
    bench.admit(thread=thread)
    await write(bench, echo(thread, text="other"))
    assert bench.story() == []


async def test_ids_of_others_and_ours_in_other_threads_are_no_news(bench, thread, pending):
    await write(bench, echo(thread, "nobody"), echo(bench.server.add_thread()))
    assert bench.story() == ["dispatched start"]
    assert bench.changed == []


async def test_the_echo_of_a_row_whose_phase_is_unknown_leaves_it_alone(bench, thread, pending):
    bench.journal._database.execute("UPDATE deliveries SET phase = 'from_the_future'")
    await write(bench, echo(thread), ending(thread), attempted(pending, IN_DOUBT))
    assert bench.standing().phase == "from_the_future"
    assert bench.pen_end is None


async def test_a_turns_end_is_written_behind_the_echo_that_came_in_front_of_it(
    bench, thread, pending
):
    await write(bench, attempted(pending, ANSWERED), echo(thread), ending(thread))
    assert bench.story() == [
        "dispatched start", "answered answered", "surfaced surfaced", "turn_ended",
    ]  # fmt: skip
    assert bench.standing().outcome is Outcome.COMPLETED


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (TurnStatus.COMPLETED, Outcome.COMPLETED),
        (TurnStatus.FAILED, Outcome.FAILED),
        (TurnStatus.INTERRUPTED, Outcome.INTERRUPTED),
        (TurnStatus.OTHER, Outcome.RUNNING),
    ],
)
async def test_how_the_turn_ended_is_the_outcome(bench, thread, pending, status, outcome):
    await write(bench, echo(thread), ending(thread, status=status))
    assert bench.standing().outcome is outcome


async def test_a_turn_ends_once(bench, thread, pending):
    failed = ending(thread, status=TurnStatus.FAILED)
    await write(bench, echo(thread), failed, ending(thread))
    assert bench.standing().outcome is Outcome.FAILED
    assert bench.story().count("turn_ended") == 1


async def test_the_end_of_another_turn_says_nothing(bench, thread, pending):
    await write(bench, attempted(pending, ANSWERED), ending(thread, OTHER_TURN))
    assert bench.standing().phase is Phase.PENDING
    await write(bench, echo(thread), ending(thread, OTHER_TURN))
    assert bench.standing().outcome is Outcome.RUNNING


async def test_the_answered_turn_ended_without_the_input_is_doubt(bench, thread, pending):
    await write(bench, attempted(pending, ANSWERED), ending(thread))
    standing = bench.standing()
    assert (standing.phase, standing.reason) == (Phase.UNCERTAIN, "turn_ended")


async def test_the_steered_turn_ended_without_the_input_is_doubt(bench, thread):
    bench.admit(thread=thread)
    pending = await bench.send_away(route="steer", steered=TURN)
    await write(bench, attempted(pending, ANSWERED._replace(turn=OTHER_TURN)), ending(thread))
    assert bench.standing().reason == "turn_ended"


async def test_the_steered_turn_ending_before_the_answer_is_no_doubt_yet(bench, thread):
    bench.admit(thread=thread)
    await bench.send_away(route="steer", steered=TURN)
    await write(bench, ending(thread))
    assert bench.standing().phase is Phase.PENDING


async def test_a_late_refusal_makes_it_ours_again(bench, thread, pending):
    await write(bench, attempted(pending, IN_DOUBT))
    assert bench.standing().phase is Phase.UNCERTAIN
    await write(bench, attempted(pending, HELD))
    assert bench.standing().phase is Phase.QUEUED


async def test_a_late_answer_names_the_turn_and_proves_nothing(bench, thread, pending):
    await write(bench, attempted(pending, IN_DOUBT), attempted(pending, ANSWERED))
    standing = bench.standing()
    assert (standing.phase, standing.answered_turn) == (Phase.UNCERTAIN, TURN)


@pytest.mark.parametrize("change", [{"number": 2}, {"generation": 2}, {"life": 2}])
async def test_word_of_another_attempt_is_not_word_of_this_one(bench, thread, pending, change):
    await write(bench, attempted(pending, HELD, **change))
    assert bench.story() == ["dispatched start"]


async def test_word_of_an_attempt_that_is_over_changes_nothing(bench, thread, pending):
    await write(bench, attempted(pending, HELD), attempted(pending, IN_DOUBT))
    assert bench.story() == ["dispatched start", "held overloaded"]


async def test_everybody_is_told_which_thread_changed(bench, thread, pending):
    await write(bench, echo(thread), echo(thread))
    assert bench.changed == [thread.id]


async def test_a_fact_is_not_written_over_a_row_that_has_moved_on(bench, thread, pending):
    assert await bench.ledger.record(M1, HELD, revision=0) is None
    assert bench.standing().phase is Phase.PENDING


async def test_notes_wait_in_their_order_until_the_journal_can_be_written(bench, thread, pending):
    database = bench.journal._database
    database.execute("PRAGMA query_only = ON")
    bench.ledger.post(attempted(pending, ANSWERED))
    bench.ledger.post(echo(thread))
    await pass_time(60)
    with pytest.raises(JournalError):
        await bench.ledger.record(M1, HELD)
    assert bench.story() == ["dispatched start"]
    database.execute("PRAGMA query_only = OFF")
    await bench.ledger.flush()
    assert bench.story() == ["dispatched start", "answered answered", "surfaced surfaced"]


async def test_an_older_life_writes_nothing(bench, thread, pending):
    old = bench.ledger
    bench.begin_life()
    with pytest.raises(LifeEnded):
        await old.record(M1, HELD)
    old.post(echo(thread))
    await until(lambda: isinstance(bench.pen_end, LifeEnded))
    assert bench.story() == ["dispatched start"]


async def test_a_flush_writes_what_a_pen_that_was_stopped_has_left(bench, thread, pending):
    bench.pen.cancel()
    await anyio.lowlevel.checkpoint()
    bench.ledger.post(attempted(pending, ANSWERED))
    bench.ledger.post(echo(thread))
    with anyio.fail_after(1):
        await bench.ledger.flush()
    assert bench.story() == ["dispatched start", "answered answered", "surfaced surfaced"]


async def test_a_flush_that_waits_goes_on_by_itself_when_the_pen_stops(bench, thread, pending):
    bench.journal._database.execute("PRAGMA query_only = ON")
    bench.ledger.post(echo(thread))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.ledger.flush)
        await pass_time()
        bench.pen.cancel()
        await pass_time()
        bench.journal._database.execute("PRAGMA query_only = OFF")
    assert bench.standing().phase is Phase.SURFACED
