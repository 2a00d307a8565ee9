"""What is pruned, when, and what is left of it."""

import pytest

from codexdrv.errors import Conflict, NotFound
from codexdrv.journal.journal import Writer
from codexdrv.journal.tombstones import KEEP_SETTLED_MS, KEEP_TOMBSTONE_MS
from codexdrv.rules.lifecycle import Outcome, is_settled
from codexdrv.rules.ownership import Fact, Phase
from tests.fakes.orders import NOW_MS, OTHER_THREAD, THREAD, admit_in, make_news, make_order


DAY_MS = 24 * 3600 * 1000
SETTLED_MS = NOW_MS + 1
"""When `admit_in` has told its last fact."""
DUE_MS = SETTLED_MS + 30 * DAY_MS + 1
UNSETTLED = [Phase.QUEUED, Phase.PENDING, Phase.UNCERTAIN, Phase.SURFACED]


def settle(journal, name, *, outcome=Outcome.COMPLETED, fact=Fact.STORED):
    """Read a surfaced delivery back, and end its turn."""
    writer = Writer(journal.begin_life((1, None, None), "test", now_ms=NOW_MS))
    for news in (make_news(fact), make_news(Fact.TURN_ENDED)._replace(outcome=outcome)):
        moved = journal.record(make_order(name).id, news, writer=writer, now_ms=SETTLED_MS)
    return moved


def post_reply(journal, name, *, acked_at_ms=None):
    journal._database.execute(
        "INSERT INTO replies (id, delivery, text, posted_at_ms, acked_at_ms)"
        " VALUES ('reply', ?, 'done', ?, ?)",
        (name, NOW_MS, acked_at_ms),
    )


def count(journal, table):
    return journal._database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_a_month_and_more_than_a_year_are_what_is_promised():
    assert (KEEP_SETTLED_MS, KEEP_TOMBSTONE_MS) == (30 * DAY_MS, 400 * DAY_MS)


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.CANCELLED])
def test_what_has_ended_is_kept_for_a_month_and_not_longer(journal, phase):
    kept = admit_in(journal, phase)
    assert journal.prune(now_ms=DUE_MS - 1) == 0
    assert journal.delivery(kept.order.id) == kept
    assert journal.prune(now_ms=DUE_MS) == 1
    with pytest.raises(NotFound):
        journal.delivery(kept.order.id)
    assert count(journal, "facts") == 0


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED, Outcome.INTERRUPTED])
def test_a_surfaced_delivery_is_pruned_when_it_is_stored_and_its_turn_has_ended(journal, outcome):
    admit_in(journal, Phase.SURFACED)
    assert is_settled(settle(journal, "m1", outcome=outcome).standing)
    assert journal.prune(now_ms=DUE_MS - 1) == 0
    assert journal.prune(now_ms=DUE_MS) == 1


@pytest.mark.parametrize("phase", UNSETTLED)
def test_what_is_not_settled_is_never_pruned(journal, phase):
    kept = admit_in(journal, phase)
    assert not is_settled(kept.standing)
    assert journal.prune(now_ms=NOW_MS * 2) == 0
    assert journal.delivery(kept.order.id) == kept


def test_what_was_never_read_back_is_never_pruned(journal):
    admit_in(journal, Phase.SURFACED)
    settle(journal, "m1", fact=Fact.ANSWERED)
    assert journal.prune(now_ms=NOW_MS * 2) == 0


def test_what_is_in_a_phase_that_we_do_not_know_is_never_pruned(journal):
    admit_in(journal, Phase.FAILED)
    journal._database.execute("UPDATE deliveries SET phase = 'frozen'")
    assert journal.prune(now_ms=NOW_MS * 2) == 0


def test_a_reply_that_nobody_has_acknowledged_keeps_its_delivery(journal):
    admit_in(journal, Phase.SURFACED)
    settle(journal, "m1")
    post_reply(journal, "m1")
    assert journal.prune(now_ms=NOW_MS * 2) == 0
    journal._database.execute("UPDATE replies SET acked_at_ms = ?", (NOW_MS,))
    assert journal.prune(now_ms=NOW_MS * 2) == 1
    assert count(journal, "replies") == 0


def test_only_the_old_are_pruned(journal):
    admit_in(journal, Phase.FAILED, "old")
    writer = Writer(journal.begin_life((1, None, None), "test", now_ms=NOW_MS))
    journal.admit(make_order("young"))
    journal.record(
        make_order("young").id, make_news(Fact.REFUSED), writer=writer, now_ms=SETTLED_MS + DAY_MS
    )
    assert journal.prune(now_ms=DUE_MS) == 1
    assert [delivery.order.id for delivery in journal.deliveries()] == ["young"]


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.CANCELLED, Phase.SURFACED])
def test_a_repeated_request_is_a_duplicate_of_what_was_pruned(journal, phase):
    admit_in(journal, Phase.QUEUED, "first")
    admit_in(journal, phase)
    if phase is Phase.SURFACED:
        settle(journal, "m1")
    journal.prune(now_ms=DUE_MS)
    buried, is_duplicate = journal.admit(make_order(at_ms=DUE_MS + 5))
    assert is_duplicate
    assert (buried.order.id, buried.order.thread, buried.order.seq) == ("m1", THREAD, 2)
    assert (buried.standing.phase, buried.standing.reason) == (phase, "pruned")
    assert buried.standing.outcome is None
    assert is_settled(buried.standing)
    assert [delivery.order.id for delivery in journal.deliveries()] == ["first"]


@pytest.mark.parametrize(
    "other",
    [make_order(text="other"), make_order(thread=OTHER_THREAD), make_order(target=str(THREAD))],
)
def test_another_request_conflicts_with_what_was_pruned(journal, other):
    admit_in(journal, Phase.FAILED)
    journal.prune(now_ms=DUE_MS)
    with pytest.raises(Conflict, match="pruned"):
        journal.admit(other)
    assert list(journal.deliveries()) == []


def test_a_target_is_remembered_by_its_name_and_the_thread_that_it_had(journal):
    journal.admit(make_order(target="ops"))
    journal.cancel(make_order().id, now_ms=NOW_MS)
    journal.prune(now_ms=DUE_MS)
    buried = journal.admit(make_order(target="ops", thread=OTHER_THREAD)).delivery
    assert (buried.order.target, buried.order.thread) == ("ops", THREAD)


def test_no_letters_of_a_name_can_make_one_request_look_like_another(journal):
    journal.admit(make_order(target="a", text="b\nc"))
    journal.cancel(make_order().id, now_ms=NOW_MS)
    journal.prune(now_ms=DUE_MS)
    with pytest.raises(Conflict):
        journal.admit(make_order(target="a\nb", text="c"))


def test_an_id_is_free_again_after_four_hundred_days(journal):
    admit_in(journal, Phase.FAILED)
    journal.prune(now_ms=DUE_MS)
    journal.prune(now_ms=DUE_MS + 400 * DAY_MS)
    with pytest.raises(Conflict):
        journal.admit(make_order(text="another"))
    journal.prune(now_ms=DUE_MS + 400 * DAY_MS + 1)
    assert count(journal, "tombstones") == 0
    assert not journal.admit(make_order(text="another")).is_duplicate


def test_what_is_left_does_not_hold_the_message(journal, directory):
    admit_in(journal, Phase.FAILED, "an-id-that-stands-out")
    journal.prune(now_ms=DUE_MS)
    rows = journal._database.execute("SELECT * FROM tombstones").fetchall()
    assert "hello" not in repr(rows)
    assert "an-id-that-stands-out" not in repr(rows)
