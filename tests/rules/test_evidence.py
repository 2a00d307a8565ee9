"""The whole domain is walked against laws that are taken from DESIGN.md's words, not from the code.

Small values stand for all: one or two sightings in each witness, no, our or another ghost, and a
quiet time of none, too little, and just enough.
"""

import re
from itertools import product

import pytest

from codexdrv.ids import TurnId
from codexdrv.rules.evidence import (
    OBSTACLES,
    OBSTACLES_WHILE_ALIVE,
    SETTLE_S,
    Fate,
    Fence,
    Finding,
    History,
    Record,
    Sighting,
    shows_nothing,
    verdict,
)
from codexdrv.rules.evidence import Testimony as Seen  # pytest takes its own name for a test


OURS = TurnId("019a0000-0000-7000-8000-000000000001")
ANOTHER = TurnId("019a0000-0000-7000-8000-000000000002")
EQUAL = Sighting(OURS, is_equal=True)
UNNAMED = Sighting(None, is_equal=True)
OTHER_TEXT = Sighting(ANOTHER, is_equal=False)

RECORDS = [
    Record(*values)
    for values in product(
        [True, False],
        [(), (EQUAL,), (OTHER_TEXT,), (OTHER_TEXT, UNNAMED), (UNNAMED, EQUAL)],
        [(), (OURS,), (ANOTHER, None)],
        [True, False],
    )
]
HISTORIES = [
    History(*values)
    for values in product([True, False], [(), (EQUAL,), (OTHER_TEXT,)], [True, False])
]
QUIET_S = [None, SETTLE_S - 0.001, SETTLE_S]

NO = Record(is_readable=True)
NOTHING = History(is_complete=True)
GONE = Seen(
    NO,
    NOTHING,
    Fence.NOT_LOADED,
    Fate.GONE,
    quiet_s=None,
    is_sole_writer=True,
    can_save=True,
    answered_turn=None,
)
"""Proved by the end of the server that it was sent to."""
QUIET = GONE._replace(fence=Fence.QUIET, fate=Fate.ALIVE, quiet_s=SETTLE_S)
"""Proved by two quiet fences."""


@pytest.fixture(scope="module")
def walked():
    domain = product(
        RECORDS, HISTORIES, Fence, Fate, QUIET_S, [True, False], [True, False], [None, OURS]
    )
    return [(seen, verdict(seen)) for seen in (Seen(*values) for values in domain)]


# What the words of DESIGN.md mean.


def sightings(seen):
    return seen.record.sightings + seen.history.sightings


def is_seen_equal(seen):
    return EQUAL in sightings(seen) or UNNAMED in sightings(seen)


def says_no(seen):
    """Record and history both say no."""
    record, history = seen.record, seen.history
    return (
        record.is_readable and history.is_complete and not sightings(seen) and record.ghosts == ()
    )


def may_live(seen):
    """The server that it was sent to is not known to be gone."""
    return seen.fate is Fate.ALIVE or seen.fate is Fate.UNKNOWN


def is_gone(seen):
    """It is gone, and the host was not restarted since."""
    return seen.fate is Fate.GONE


def is_quiet(seen):
    """Two fences at least `settle_s` apart were quiet, and nobody else may write."""
    return (
        may_live(seen)
        and seen.fence is Fence.QUIET
        and seen.quiet_s is not None
        and seen.quiet_s >= SETTLE_S
        and seen.is_sole_writer
    )


def is_provable(seen):
    """The file name is the one noted, the anchor is still there, and it could have been saved."""
    return seen.record.is_noted and seen.history.has_anchor and seen.can_save


def found_where(walked, is_so):
    return {found.finding for seen, found in walked if is_so(seen)}


def reasons_where(walked, is_so):
    return {found.reason for seen, found in walked if is_so(seen)}


# Laws.


def test_the_walk_is_a_walk_of_all(walked):
    assert {(seen.fence, seen.fate) for seen, _ in walked} == set(product(Fence, Fate))
    assert {found.finding for _, found in walked} == set(Finding)


def test_it_is_absent_exactly_where_both_say_no_and_a_server_that_is_gone_or_quiet_proves_it(
    walked,
):
    for seen, found in walked:
        may_prove = seen.fence is not Fence.BUSY and (is_gone(seen) or is_quiet(seen))
        proved = says_no(seen) and is_provable(seen) and may_prove
        assert (found.finding is Finding.ABSENT) == proved, seen


def test_it_is_never_absent_after_the_host_was_restarted(walked):
    findings = found_where(walked, lambda seen: seen.fate is Fate.HOST_RESTARTED)
    assert findings == {Finding.SURFACED, Finding.UNKNOWN, Finding.PENDING}


def test_it_is_never_absent_while_a_turn_runs(walked):
    findings = found_where(walked, lambda seen: seen.fence is Fence.BUSY)
    assert Finding.ABSENT not in findings


def test_it_surfaced_wherever_a_witness_shows_it_whatever_else_is_so(walked):
    assert found_where(walked, is_seen_equal) == {Finding.SURFACED}


def test_the_turn_that_took_it_is_told_wherever_a_witness_names_it(walked):
    for seen, found in walked:
        if is_seen_equal(seen):
            assert found.turn == (OURS if EQUAL in sightings(seen) else None)
        elif found.finding is not Finding.SURFACED:
            assert found.turn is None


def test_twice_in_one_witness_is_told_and_once_in_each_is_once(walked):
    def is_twice(seen):
        return EQUAL in seen.record.sightings[1:]

    assert reasons_where(walked, is_twice) == {"duplicate_seen"}
    once = reasons_where(walked, lambda seen: is_seen_equal(seen) and not is_twice(seen))
    assert once == {"surfaced"}


def test_another_text_alone_is_for_an_operator(walked):
    def is_other(seen):
        return bool(sightings(seen)) and not is_seen_equal(seen)

    assert found_where(walked, is_other) == {Finding.UNKNOWN}
    assert reasons_where(walked, is_other) == {"other_text"}


def test_a_ghost_of_the_turn_that_was_answered_surfaced_once_no_turn_can_change_it(walked):
    def is_ours(seen):
        return not sightings(seen) and seen.answered_turn == OURS in seen.record.ghosts

    def may_change(seen):
        return seen.fence is Fence.BUSY

    settled = [(seen, found) for seen, found in walked if is_ours(seen) and not may_change(seen)]
    assert {(found.finding, found.reason, found.turn) for _, found in settled} == {
        (Finding.SURFACED, "ghost", OURS)
    }
    early = found_where(walked, lambda seen: is_ours(seen) and may_change(seen))
    assert early == {Finding.PENDING}


def test_any_other_ghost_is_for_an_operator_and_never_absent(walked):
    def is_anothers(seen):
        ghosts = seen.record.ghosts
        is_ours = seen.answered_turn == OURS in ghosts
        return bool(ghosts) and not sightings(seen) and not is_ours

    assert found_where(walked, is_anothers) == {Finding.UNKNOWN, Finding.PENDING}
    still = found_where(walked, lambda seen: is_anothers(seen) and seen.fence is not Fence.BUSY)
    assert still == {Finding.UNKNOWN}


def test_a_turn_that_runs_leaves_it_pending_whatever_the_others_cannot_say(walked):
    def is_busy(seen):
        return seen.fence is Fence.BUSY and not sightings(seen)

    assert found_where(walked, is_busy) == {Finding.PENDING}


def test_it_is_pending_only_where_a_look_later_can_prove_more(walked):
    for seen, found in walked:
        if found.finding is Finding.PENDING:
            assert may_live(seen) or seen.fence is Fence.BUSY
            assert seen.fence is not Fence.NOT_LOADED


def test_a_process_that_nobody_noted_counts_as_alive(walked):
    known = {seen: found for seen, found in walked if seen.fate is Fate.ALIVE}
    for seen, found in walked:
        if seen.fate is Fate.UNKNOWN:
            assert found == known[seen._replace(fate=Fate.ALIVE)]


def test_every_reason_is_met_and_belongs_to_one_finding_but_the_ghost(walked):
    met = {(found.reason, found.finding) for _, found in walked}
    named = {
        "surfaced": {Finding.SURFACED},
        "duplicate_seen": {Finding.SURFACED},
        "ghost": {Finding.SURFACED, Finding.UNKNOWN},
        "other_text": {Finding.UNKNOWN},
        "busy": {Finding.PENDING},
        "settling": {Finding.PENDING},
        "server_gone": {Finding.ABSENT},
        "quiet": {Finding.ABSENT},
    }
    of_obstacles = {each.reason: {Finding.UNKNOWN} for each in OBSTACLES + OBSTACLES_WHILE_ALIVE}
    expected = named | of_obstacles
    assert met == {(reason, finding) for reason in expected for finding in expected[reason]}


def test_every_why_is_a_sentence_that_goes_on_from_a_colon(walked):
    whys = {found.why for _, found in walked}
    for why in whys:
        assert re.fullmatch(r"[a-z][^\n{}]*[a-z0-9]", why), why
        assert len(why.split()) > 5, why
        assert "None" not in why, why


def test_a_reason_has_one_why_but_for_what_it_names(walked):
    said = {(found.finding, found.reason, found.why) for _, found in walked}
    unsurfaced = [each for each in said if each[0] is not Finding.SURFACED]
    assert len(unsurfaced) == len({each[:2] for each in unsurfaced})
    assert len(said) == len({why for *_, why in said})


def test_to_show_nothing_is_that_both_say_no(walked):
    assert all(shows_nothing(seen) == says_no(seen) for seen, _ in walked)


# Examples.


def test_a_server_that_is_gone_proves_it_at_once():
    found = verdict(GONE)
    assert (found.finding, found.reason) == (Finding.ABSENT, "server_gone")
    # Whoever writes now: it never had it.
    for fence, is_sole in product([Fence.QUIET, Fence.NOT_LOADED], [True, False]):
        assert verdict(GONE._replace(fence=fence, is_sole_writer=is_sole)) == found


def test_a_quiet_thread_proves_it_at_the_second_look():
    first = verdict(QUIET._replace(quiet_s=None))
    assert (first.finding, first.reason) == (Finding.PENDING, "settling")
    second = verdict(QUIET)
    assert (second.finding, second.reason) == (Finding.ABSENT, "quiet")


@pytest.mark.parametrize("settle_s", [0.0, 0.05, 60.0])
def test_how_long_it_has_to_be_quiet_is_an_argument(settle_s):
    def finding(quiet_s):
        return verdict(QUIET._replace(quiet_s=quiet_s), settle_s=settle_s).finding

    assert finding(settle_s) is Finding.ABSENT
    assert finding(settle_s + 1) is Finding.ABSENT
    assert finding(None) is Finding.PENDING
    assert finding(settle_s - 0.01) is Finding.PENDING


STANDING = {
    "host_restarted": {"fate": Fate.HOST_RESTARTED},
    "record_unreadable": {"record": Record(is_readable=False)},
    "moved": {"record": NO._replace(is_noted=False)},
    "history_incomplete": {"history": History(is_complete=False)},
    "anchor_gone": {"history": NOTHING._replace(has_anchor=False)},
    "cannot_save": {"can_save": False},
    "not_sole_writer": {"is_sole_writer": False},
    "not_loaded": {"fence": Fence.NOT_LOADED},
}
"""What makes an obstacle stand, and no other."""
WHILE_ALIVE = {obstacle.reason for obstacle in OBSTACLES_WHILE_ALIVE}


@pytest.mark.parametrize("reason", STANDING)
def test_each_obstacle_alone_is_enough(reason):
    found = verdict(QUIET._replace(**STANDING[reason]))
    assert (found.finding, found.reason) == (Finding.UNKNOWN, reason)
    found = verdict(GONE._replace(**STANDING[reason]))
    expected = "server_gone" if reason in WHILE_ALIVE else reason
    assert found.reason == expected


def test_the_first_obstacle_that_stands_is_the_reason():
    order = [obstacle.reason for obstacle in OBSTACLES + OBSTACLES_WHILE_ALIVE]
    assert order == list(STANDING)
    assert len({obstacle.why for obstacle in OBSTACLES + OBSTACLES_WHILE_ALIVE}) == len(order)
    for number, first in enumerate(order):
        for second in order[number + 1 :]:
            both = QUIET._replace(**STANDING[second])._replace(**STANDING[first])
            assert verdict(both).reason == first


def test_a_cold_history_that_shows_it_is_enough_and_needs_no_record():
    seen = QUIET._replace(
        record=Record(is_readable=False), history=History(False, (EQUAL,)), fence=Fence.NOT_LOADED
    )
    found = verdict(seen)
    assert (found.finding, found.turn) == (Finding.SURFACED, OURS)
    assert found.why == f"the thread's history shows it in turn {OURS}"


def test_a_legacy_record_shows_it_without_a_turn_and_history_names_it():
    found = verdict(QUIET._replace(record=NO._replace(sightings=(UNNAMED,))))
    assert (found.finding, found.turn) == (Finding.SURFACED, None)
    assert found.why == "the thread's record shows it in a turn that is not named"
    both = QUIET._replace(
        record=NO._replace(sightings=(UNNAMED,)), history=NOTHING._replace(sightings=(EQUAL,))
    )
    assert verdict(both).turn == OURS


def test_a_message_that_was_sent_twice_says_how_often_it_is_there():
    record = NO._replace(sightings=(EQUAL, OTHER_TEXT, EQUAL, UNNAMED))
    found = verdict(QUIET._replace(record=record))
    assert found.reason == "duplicate_seen"
    assert found.why == f"the thread's record shows it 3 times, first in turn {OURS}"
    found = verdict(QUIET._replace(history=NOTHING._replace(sightings=(EQUAL, EQUAL))))
    assert found.why == f"the thread's history shows it 2 times, first in turn {OURS}"


def test_a_ghost_without_an_answer_may_be_anothers():
    seen = GONE._replace(record=NO._replace(ghosts=(OURS,)))
    assert verdict(seen).finding is Finding.UNKNOWN
    assert verdict(seen._replace(answered_turn=ANOTHER)).finding is Finding.UNKNOWN
    assert verdict(seen._replace(answered_turn=OURS)).finding is Finding.SURFACED
    # A line without a turn is nobody's, also where nothing was answered.
    unnamed = seen._replace(record=NO._replace(ghosts=(None,)))
    assert verdict(unnamed).finding is Finding.UNKNOWN
