"""The journal: what is durable, who may write, and that the rows are the fold of the facts."""

import random
import signal
import sqlite3
from contextlib import suppress
from itertools import product

import pytest

from codexdrv.errors import Conflict, Full, IllegalMove, JournalUnusable, LifeEnded, NotFound
from codexdrv.journal.journal import Journal, Writer
from codexdrv.rules.lifecycle import News, Outcome, Standing, fold
from codexdrv.rules.ownership import TERMINAL, TRANSITIONS, Fact, Phase, TooLate
from tests.fakes.children import start_child
from tests.fakes.orders import (
    DISPATCH,
    NOW_MS,
    OTHER_THREAD,
    THREAD,
    TURN,
    admit_in,
    make_news,
    make_order,
)


HISTORIES = 200
FACTS_MAX = 40
OPERATORS = {Fact.RESOLVED_SURFACED, Fact.RESOLVED_ABSENT, Fact.RESOLVED_FAILED}
BLANKS = [cell for cell in product(Phase, Fact) if cell not in TRANSITIONS]
TOO_LATE = [cell for cell, move in TRANSITIONS.items() if isinstance(move, TooLate)]

ADMITTER = """
import sys
from codexdrv.journal.journal import Journal
from tests.fakes.orders import make_order
name = sys.argv[1]
for line in sys.stdin:
    with Journal(line.strip()) as journal:
        for number in range(10):
            journal.admit(make_order(f"{name}-{number}"))
    print("done", flush=True)
"""
ADMIT_AND_DIE = """
import os, signal, sys
from codexdrv.journal.journal import Journal
from tests.fakes.orders import make_order
Journal(sys.argv[1]).admit(make_order())
os.kill(os.getpid(), signal.SIGKILL)
"""


# What a history says, and what the journal makes of it


def random_news(chance, standing):
    """A fact, most often one that the table takes, with whatever may be known with it."""
    legal = [fact for phase, fact in TRANSITIONS if phase is standing.phase]
    # The third pool leads to doubt, where the table is fullest and chance alone comes seldom.
    pools = (legal, list(Fact), [Fact.DISPATCHED, Fact.IN_DOUBT])
    (pool,) = chance.choices(pools, weights=(5, 2, 3))
    fact = chance.choice(pool)
    news = News(
        fact,
        chance.choice([None, "a_word"]),
        chance.choice([None, "a sentence"]),
        chance.choice([None, TURN]),
    )
    if fact is Fact.DISPATCHED:
        return news._replace(attempt=standing.attempts + 1, dispatch=DISPATCH)
    if fact is Fact.TURN_ENDED:
        return news._replace(outcome=chance.choice(list(Outcome)))
    return news


def random_history(seed):
    """Facts, and for each the standing before and after; the same, where the fact is refused."""
    chance = random.Random(seed)
    standing = Standing(Phase.QUEUED, changed_at_ms=NOW_MS)
    for number in range(chance.randint(1, FACTS_MAX)):
        news, now_ms, before = random_news(chance, standing), NOW_MS + number, standing
        with suppress(IllegalMove):
            standing = fold(standing, news, now_ms=now_ms)
        yield news, now_ms, before, standing


def replay(facts, *, admitted_at_ms):
    """Fold facts, as the journal tells them, from the admission on."""
    standing = Standing(Phase.QUEUED, changed_at_ms=admitted_at_ms)
    for fact in facts:
        standing = fold(standing, fact.news, now_ms=fact.at_ms)
    return standing


def write(journal, name, news, *, writer, now_ms):
    """Make a fact durable by the method of whoever tells it."""
    found = journal.delivery(name).standing
    if news.fact in OPERATORS:
        journal.resolve(name, news, revision=found.revision, now_ms=now_ms)
    elif news.fact is Fact.CANCELLED and found.phase is Phase.QUEUED:
        journal.cancel(name, now_ms=now_ms)
    else:
        journal.record(name, news, writer=writer, now_ms=now_ms)


@pytest.fixture(scope="module")
def long_journal(tmp_path_factory):
    with Journal(str(tmp_path_factory.mktemp("long") / "state")) as journal:
        yield journal


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_row_is_the_fold_of_its_facts_and_what_is_refused_leaves_no_trace(long_journal, seed):
    name = make_order(f"seed-{seed}").id
    long_journal.admit(make_order(name))
    writer = Writer(long_journal.begin_life((1, None, None), "test", now_ms=NOW_MS), seed)
    for news, now_ms, before, after in random_history(seed):
        row, story = long_journal.delivery(name), long_journal.story(name)
        if after is before:
            with pytest.raises(IllegalMove):
                write(long_journal, name, news, writer=writer, now_ms=now_ms)
            assert (long_journal.delivery(name), long_journal.story(name)) == (row, story)
        else:
            write(long_journal, name, news, writer=writer, now_ms=now_ms)
            *earlier, newest = long_journal.story(name)
            assert (earlier, newest.news.fact) == (story, news.fact)
    standing, story = long_journal.delivery(name).standing, long_journal.story(name)
    assert replay(story, admitted_at_ms=NOW_MS) == standing
    assert standing.phase is after.phase
    assert [fact.revision for fact in story] == list(range(1, standing.revision + 1))


def test_the_random_histories_take_every_move_of_the_table():
    taken = {
        (before.phase, news.fact)
        for seed in range(HISTORIES)
        for news, _, before, after in random_history(seed)
        if after is not before
    }
    assert taken == TRANSITIONS.keys() - set(TOO_LATE)


@pytest.mark.parametrize(("phase", "fact"), BLANKS + TOO_LATE, ids=str)
def test_an_illegal_move_is_refused_and_writes_nothing(journal, phase, fact):
    before = admit_in(journal, phase)
    story = journal.story(before.order.id)
    writer = Writer(journal.begin_life((1, None, None), "test", now_ms=NOW_MS))
    with pytest.raises(IllegalMove):
        journal.record(before.order.id, make_news(fact), writer=writer, now_ms=NOW_MS)
    assert journal.delivery(before.order.id) == before
    assert journal.story(before.order.id) == story


def test_a_fact_is_kept_whole_with_who_wrote_it_and_when(journal, writer):
    delivery = journal.admit(make_order()).delivery.order.id
    news = make_news(Fact.DISPATCHED)
    journal.record(delivery, news, writer=writer, now_ms=NOW_MS + 5)
    (fact,) = journal.story(delivery)
    assert fact.news == news
    assert (fact.at_ms, fact.life, fact.generation) == (NOW_MS + 5, writer.life, 1)


def test_facts_are_never_changed(journal):
    admit_in(journal, Phase.UNCERTAIN)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        journal._database.execute("UPDATE facts SET why = 'it never happened'")


# Who may write


def test_a_decision_about_a_row_that_has_moved_on_writes_nothing(journal, writer):
    delivery = journal.admit(make_order()).delivery
    held = journal.record(
        delivery.order.id, make_news(Fact.HELD), writer=writer, now_ms=NOW_MS, revision=0
    )
    assert held.standing.revision == 1
    late = journal.record(
        delivery.order.id, make_news(Fact.REFUSED), writer=writer, now_ms=NOW_MS, revision=0
    )
    assert late is None
    late = journal.resolve(delivery.order.id, make_news(Fact.REFUSED), revision=0, now_ms=NOW_MS)
    assert late is None
    assert journal.delivery(delivery.order.id) == held
    assert len(journal.story(delivery.order.id)) == 1


def test_an_older_life_writes_nothing(journal, writer):
    delivery = journal.admit(make_order()).delivery
    newer = Writer(journal.begin_life((2, 7, "boot"), "test", now_ms=NOW_MS))
    assert newer.life > writer.life
    with pytest.raises(LifeEnded):
        journal.record(delivery.order.id, make_news(Fact.HELD), writer=writer, now_ms=NOW_MS)
    assert journal.delivery(delivery.order.id) == delivery
    assert journal.story(delivery.order.id) == []
    assert journal.record(delivery.order.id, make_news(Fact.HELD), writer=newer, now_ms=NOW_MS)


def test_a_life_that_never_began_writes_nothing(journal):
    delivery = journal.admit(make_order()).delivery
    with pytest.raises(LifeEnded):
        journal.record(delivery.order.id, make_news(Fact.HELD), writer=Writer(1), now_ms=NOW_MS)


def test_commands_write_without_a_life_and_whatever_life_has_begun(journal):
    one = journal.admit(make_order("one")).delivery.order.id
    other = journal.admit(make_order("other")).delivery.order.id
    journal.begin_life((1, None, None), "test", now_ms=NOW_MS)
    journal.cancel(one, now_ms=NOW_MS)
    journal.resolve(other, make_news(Fact.RESOLVED_FAILED), revision=0, now_ms=NOW_MS)
    facts = journal.story(one) + journal.story(other)
    assert [(fact.news.fact, fact.life, fact.generation) for fact in facts] == [
        (Fact.CANCELLED, None, None),
        (Fact.RESOLVED_FAILED, None, None),
    ]


def test_nothing_can_be_written_of_a_delivery_that_is_not_there(journal, writer):
    nobody = make_order("nobody").id
    with pytest.raises(NotFound):
        journal.record(nobody, make_news(Fact.HELD), writer=writer, now_ms=NOW_MS)
    with pytest.raises(NotFound):
        journal.cancel(nobody, now_ms=NOW_MS)
    with pytest.raises(NotFound):
        journal.resolve(nobody, make_news(Fact.RESOLVED_FAILED), revision=0, now_ms=NOW_MS)


def test_a_transaction_that_fails_leaves_nothing_and_stops_nobody(journal):
    with pytest.raises(JournalUnusable):
        journal.admit(make_order("empty", text=""))
    assert not journal._database.in_transaction
    assert journal.admit(make_order()).delivery.order.seq == 1


# Cancelling


def test_what_is_queued_is_cancelled_once(journal):
    queued = journal.admit(make_order()).delivery.order.id
    cancelled, too_late = journal.cancel(queued, now_ms=NOW_MS + 1)
    assert (cancelled.standing.phase, too_late) == (Phase.CANCELLED, None)
    assert cancelled.standing.outcome is None
    assert journal.cancel(queued, now_ms=NOW_MS + 2) == (cancelled, None)
    assert len(journal.story(queued)) == 1


@pytest.mark.parametrize(
    ("phase", "answer"),
    [
        (Phase.PENDING, TooLate.ON_ITS_WAY),
        (Phase.UNCERTAIN, TooLate.ON_ITS_WAY),
        (Phase.SURFACED, TooLate.ENDED),
        (Phase.FAILED, TooLate.ENDED),
    ],
)
def test_a_cancellation_that_comes_too_late_is_answered_and_not_recorded(journal, phase, answer):
    before = admit_in(journal, phase)
    assert journal.cancel(before.order.id, now_ms=NOW_MS) == (before, answer)
    assert journal.delivery(before.order.id) == before


def test_a_phase_that_we_do_not_know_is_never_cancelled_nor_moved(journal):
    before = admit_in(journal, Phase.QUEUED)
    journal._database.execute("UPDATE deliveries SET phase = 'frozen'")
    found, too_late = journal.cancel(before.order.id, now_ms=NOW_MS)
    assert (found.standing.phase, too_late) == ("frozen", TooLate.ON_ITS_WAY)
    writer = Writer(journal.begin_life((1, None, None), "test", now_ms=NOW_MS))
    for fact in Fact:
        with pytest.raises(IllegalMove):
            journal.record(before.order.id, make_news(fact), writer=writer, now_ms=NOW_MS)
    assert journal.story(before.order.id) == []


# Admission


def test_an_admission_is_queued_and_received(journal):
    order = make_order()
    admission = journal.admit(order)
    assert not admission.is_duplicate
    assert admission.delivery.order == order._replace(seq=1)
    assert admission.delivery.standing == Standing(Phase.QUEUED, changed_at_ms=NOW_MS)
    assert journal.delivery(order.id) == admission.delivery


def test_what_was_admitted_survives_the_death_of_its_process(directory):
    child = start_child(ADMIT_AND_DIE, directory)
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    with Journal(directory) as journal:
        assert journal.delivery(make_order().id).standing.phase is Phase.QUEUED


def test_the_same_request_is_a_duplicate_wherever_it_stands(journal):
    for phase in Phase:
        before = admit_in(journal, phase, f"m-{phase}")
        again = journal.admit(before.order._replace(seq=0, admitted_at_ms=NOW_MS + 9))
        assert again == (before, True)


def test_the_options_of_the_first_one_stand(journal):
    first = journal.admit(make_order()).delivery
    again = journal.admit(make_order()._replace(when_busy=first.order.when_busy, source="mail"))
    assert again == (first, True)


def test_a_target_is_compared_by_the_name_that_the_caller_used(journal):
    first = journal.admit(make_order(target="ops")).delivery
    # The configuration names another thread now; the caller said the same thing.
    again = journal.admit(make_order(target="ops", thread=OTHER_THREAD))
    assert again == (first, True)


@pytest.mark.parametrize(
    "other",
    [
        make_order(text="hello "),
        make_order(text="Hello"),
        make_order(thread=OTHER_THREAD),
        make_order(target="ops"),
        make_order(target=str(THREAD)),
    ],
)
def test_the_same_id_for_another_request_is_a_conflict(journal, other):
    first = journal.admit(make_order()).delivery
    with pytest.raises(Conflict):
        journal.admit(other)
    assert list(journal.deliveries()) == [first]


def test_another_target_for_the_same_id_is_a_conflict(journal):
    journal.admit(make_order(target="ops"))
    for other in (make_order(target="dev"), make_order()):
        with pytest.raises(Conflict):
            journal.admit(other)


@pytest.mark.parametrize(
    "text", ["  not trimmed\r\n", "a\0b", "\ufeffBOM", "e\u0301 is not \u00e9", "\U0001f600" * 9]
)
def test_a_text_is_kept_byte_for_byte(journal, text):
    assert journal.admit(make_order(text=text)).delivery.order.text == text
    assert journal.delivery(make_order().id).order.text == text
    with pytest.raises(Conflict):
        journal.admit(make_order(text=text + "\n"))


def test_every_thread_counts_its_own_positions_from_one(journal):
    names = [("a", THREAD), ("b", OTHER_THREAD), ("c", THREAD), ("d", THREAD), ("e", OTHER_THREAD)]
    seqs = [
        journal.admit(make_order(name, thread=thread)).delivery.order.seq for name, thread in names
    ]
    assert seqs == [1, 1, 2, 3, 2]


def test_a_position_is_not_given_again_when_its_delivery_is_pruned(journal):
    admit_in(journal, Phase.QUEUED, "first")
    admit_in(journal, Phase.FAILED, "last")
    assert journal.prune(now_ms=NOW_MS * 2) == 1
    assert journal.admit(make_order("next")).delivery.order.seq == 3


def test_a_thread_is_full_at_its_limit_of_live_deliveries(journal):
    for phase in TERMINAL:
        admit_in(journal, phase, f"over-{phase}")
    admit_in(journal, Phase.QUEUED, "a")
    admit_in(journal, Phase.UNCERTAIN, "b")
    with pytest.raises(Full):
        journal.admit(make_order("c"), live_max=2)
    assert journal.admit(make_order("a"), live_max=2).is_duplicate
    assert journal.admit(make_order("d", thread=OTHER_THREAD), live_max=2)
    journal.cancel(make_order("a").id, now_ms=NOW_MS)
    assert journal.admit(make_order("c"), live_max=2).delivery.order.seq == 6


def test_a_phase_that_we_do_not_know_counts_against_the_limit(journal):
    admit_in(journal, Phase.QUEUED)
    journal._database.execute("UPDATE deliveries SET phase = 'frozen'")
    with pytest.raises(Full):
        journal.admit(make_order("next"), live_max=1)


@pytest.fixture
def two_admitters():
    admitters = [start_child(ADMITTER, name) for name in ("one", "other")]
    yield admitters
    for admitter in admitters:
        admitter.communicate()
        assert admitter.returncode == 0


def test_two_processes_make_and_fill_one_journal_at_once(two_admitters, tmp_path):
    for number in range(20):
        directory = str(tmp_path / f"state-{number}")
        for admitter in two_admitters:
            admitter.stdin.write(f"{directory}\n")
        assert [admitter.stdout.readline() for admitter in two_admitters] == ["done\n"] * 2
        with Journal(directory) as journal:
            found = [delivery.order for delivery in journal.deliveries()]
        assert {order.id for order in found} == {
            f"{name}-{i}" for name in ("one", "other") for i in range(10)
        }
        assert sorted(order.seq for order in found) == list(range(1, 21))
