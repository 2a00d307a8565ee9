"""What the journal says: lanes see what is live, operators see everything, oldest first."""

from pathlib import Path

import pytest

from codexdrv.errors import JournalUnusable, NotFound
from codexdrv.journal.journal import Journal, Writer
from codexdrv.journal.reader import JournalReader
from codexdrv.rules.lifecycle import Outcome
from codexdrv.rules.ownership import TERMINAL, Fact, Phase
from tests.fakes.orders import NOW_MS, OTHER_THREAD, THREAD, admit_in, make_news, make_order


LIVE = [phase for phase in Phase if phase not in TERMINAL]


def names(deliveries):
    return [delivery.order.id for delivery in deliveries]


def record(journal, name, *facts):
    writer = Writer(journal.begin_life((1, None, None), "test", now_ms=NOW_MS))
    for fact in facts:
        news = make_news(fact)
        if fact is Fact.TURN_ENDED:
            news = news._replace(outcome=Outcome.COMPLETED)
        journal.record(make_order(name).id, news, writer=writer, now_ms=NOW_MS)


def test_an_unknown_delivery_is_not_found(journal):
    with pytest.raises(NotFound, match="'nobody'"):
        journal.delivery(make_order("nobody").id)
    assert journal.story(make_order("nobody").id) == []


def test_all_deliveries_come_in_the_order_of_their_admission(journal):
    journal.admit(make_order("late", at_ms=NOW_MS + 2))
    journal.admit(make_order("b", at_ms=NOW_MS))
    journal.admit(make_order("a", at_ms=NOW_MS))
    journal.admit(make_order("elsewhere", thread=OTHER_THREAD, at_ms=NOW_MS + 1))
    assert names(journal.deliveries()) == ["b", "a", "elsewhere", "late"]


def test_deliveries_can_be_told_by_phase(journal):
    for phase in Phase:
        admit_in(journal, phase, f"m-{phase}")
    for phase in Phase:
        assert names(journal.deliveries(phase)) == [f"m-{phase}"]
    assert len(list(journal.deliveries())) == len(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_the_head_of_a_lane_is_its_oldest_live_delivery(journal, phase):
    admit_in(journal, phase, "first")
    admit_in(journal, Phase.QUEUED, "second")
    admit_in(journal, Phase.QUEUED, "elsewhere", thread=OTHER_THREAD)
    assert names(journal.lane(THREAD)) == ["first" if phase in LIVE else "second"]


def test_what_is_parked_stays_in_the_lane_before_its_head(journal):
    admit_in(journal, Phase.SURFACED, "over")
    admit_in(journal, Phase.UNCERTAIN, "parked")
    record(journal, "parked", Fact.PARKED)
    admit_in(journal, Phase.UNCERTAIN, "head")
    admit_in(journal, Phase.QUEUED, "next")
    assert names(journal.lane(THREAD)) == ["parked", "head"]


def test_a_phase_that_we_do_not_know_is_live_and_shown_as_it_is(journal):
    admit_in(journal, Phase.QUEUED, "frozen")
    admit_in(journal, Phase.QUEUED, "next")
    journal._database.execute("UPDATE deliveries SET phase = 'frozen' WHERE id = 'frozen'")
    assert names(journal.lane(THREAD)) == ["frozen"]
    assert names(journal.deliveries("frozen")) == ["frozen"]
    assert journal.threads() == [THREAD]
    assert journal.summary().live == {"frozen": 1, "queued": 1}
    assert journal.delivery(make_order("frozen").id).standing.phase == "frozen"


def test_a_surfaced_delivery_is_unsettled_until_it_is_stored_and_its_turn_has_ended(journal):
    admit_in(journal, Phase.SURFACED, "m")
    assert names(journal.unsettled(THREAD)) == ["m"]
    record(journal, "m", Fact.STORED)
    assert names(journal.unsettled(THREAD)) == ["m"]
    record(journal, "m", Fact.TURN_ENDED)
    assert journal.unsettled(THREAD) == []


def test_a_turn_that_ended_before_the_delivery_was_stored_leaves_it_unsettled(journal):
    admit_in(journal, Phase.SURFACED, "m")
    record(journal, "m", Fact.TURN_ENDED)
    assert names(journal.unsettled(THREAD)) == ["m"]
    assert journal.unsettled(OTHER_THREAD) == []


@pytest.mark.parametrize("phase", Phase)
def test_a_thread_counts_while_something_in_it_is_live_or_unsettled(journal, phase):
    admit_in(journal, phase, "m")
    if phase is Phase.SURFACED:
        assert journal.threads() == [THREAD]
        record(journal, "m", Fact.STORED, Fact.TURN_ENDED)
    assert journal.threads() == ([THREAD] if phase in LIVE else [])


def test_a_story_is_told_in_the_order_in_which_it_happened(journal):
    admit_in(journal, Phase.UNCERTAIN, "m")
    record(journal, "m", Fact.ABSENT, Fact.HELD)
    admit_in(journal, Phase.PENDING, "other")
    story = journal.story(make_order("m").id)
    assert [fact.news.fact for fact in story] == [
        Fact.DISPATCHED,
        Fact.IN_DOUBT,
        Fact.ABSENT,
        Fact.HELD,
    ]


def test_the_summary_counts_what_is_live_and_names_the_oldest_of_it(journal):
    assert journal.summary() == ({}, None, {})
    admit_in(journal, Phase.FAILED, "over")
    journal.admit(make_order("old", at_ms=NOW_MS - 1))
    admit_in(journal, Phase.QUEUED, "b")
    admit_in(journal, Phase.PENDING, "c")
    live, oldest, depths = journal.summary()
    assert live == {"queued": 2, "pending": 1}
    assert depths == {THREAD: 3}
    assert oldest.order.id == "old"


def test_the_data_version_tells_of_the_writes_of_others_only(journal, directory):
    before = journal.data_version()
    journal.admit(make_order("mine"))
    assert journal.data_version() == before
    with Journal(directory) as other:
        other.admit(make_order("theirs"))
    assert journal.data_version() != before
    assert names(journal.deliveries()) == ["mine", "theirs"]


def test_a_reader_that_only_asks_sees_what_is_committed(journal, directory):
    journal.admit(make_order())
    with JournalReader(directory) as reader:
        assert names(reader.deliveries()) == ["m1"]


def test_a_closed_journal_answers_nobody(directory):
    with Journal(directory) as journal:
        journal.admit(make_order())
    with pytest.raises(JournalUnusable):
        journal.delivery(make_order().id)


def test_what_is_on_its_way_can_be_asked_for(journal):
    for phase in Phase:
        admit_in(journal, phase, f"m-{phase}")
    assert names(journal.pending()) == ["m-pending"]


def test_only_what_is_queued_expires(journal):
    for phase in Phase:
        admit_in(journal, phase, f"m-{phase}")
    journal._database.execute("UPDATE deliveries SET expires_at_ms = ?", (NOW_MS + 5,))
    journal.admit(make_order("for-ever"))
    assert names(journal.expired(NOW_MS + 4)) == []
    assert names(journal.expired(NOW_MS + 5)) == ["m-queued"]


def test_a_damaged_page_is_found_before_anybody_asks_for_it(directory):
    with Journal(directory) as journal:
        journal.admit(make_order("m1", text="x" * 50_000))
        journal.check()
    file = Path(journal.path)
    good = file.read_bytes()
    # The row's text goes on in pages of its own, at the end.
    file.write_bytes(good[:-8192] + b"garbage!" * 512 + good[-4096:])
    with Journal(directory) as journal, pytest.raises(JournalUnusable) as caught:
        journal.check()
    assert "backup" in caught.value.hint
