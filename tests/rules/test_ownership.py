from itertools import product

import pytest

from codexdrv.errors import IllegalMove
from codexdrv.rules.ownership import (
    FORCED,
    TERMINAL,
    TRANSITIONS,
    Duty,
    Fact,
    Phase,
    TooLate,
    advance,
    duty,
)


# DESIGN.md, "Ownership", written out: a dash is an illegal move. Its column "operator" is three
# facts here; parked, stored and turn_ended are facts that it has in prose.
GRID = """
                   queued     pending     uncertain   surfaced  failed    cancelled
dispatched         pending    -           -           -         -         -
answered           -          pending     uncertain   surfaced  failed    cancelled
surfaced           surfaced   surfaced    surfaced    surfaced  surfaced  surfaced
held               queued     queued      queued      surfaced  failed    cancelled
refused            failed     failed      failed      surfaced  failed    cancelled
in_doubt           queued     uncertain   uncertain   surfaced  failed    cancelled
absent             queued     queued      queued      surfaced  failed    cancelled
cancelled          cancelled  ON_ITS_WAY  ON_ITS_WAY  ENDED     ENDED     cancelled
resolved_surfaced  -          surfaced    surfaced    -         -         -
resolved_absent    -          queued      queued      -         queued    queued
resolved_failed    failed     failed      failed      -         -         -
parked             -          -           uncertain   -         -         -
stored             -          -           -           surfaced  -         -
turn_ended         -          -           -           surfaced  -         -
"""
CELLS = list(product(Phase, Fact))
MOVES = {cell: after for cell, after in TRANSITIONS.items() if isinstance(after, Phase)}


def written_cells():
    head, *rows = GRID.strip().splitlines()
    phases = [Phase(word) for word in head.split()]
    for row in rows:
        fact, *words = row.split()
        for phase, word in zip(phases, words, strict=True):
            yield (phase, Fact(fact)), word


WRITTEN = dict(written_cells())


def read_cell(phase, fact):
    word = WRITTEN[phase, fact]
    return TooLate[word] if word.isupper() else Phase(word)


def test_the_grid_has_every_cell():
    assert WRITTEN.keys() == set(CELLS)


@pytest.mark.parametrize(("phase", "fact"), CELLS)
def test_every_cell_steps_as_designed_or_refuses(phase, fact):
    if WRITTEN[phase, fact] == "-":
        with pytest.raises(IllegalMove, match=f"{phase} .* {fact}"):
            advance(phase, fact)
    else:
        assert advance(phase, fact) is read_cell(phase, fact)


@pytest.mark.parametrize("phase", Phase)
def test_surfaced_is_legal_everywhere_and_beats_everything(phase):
    assert advance(phase, Fact.SURFACED) is Phase.SURFACED


def test_nothing_leaves_surfaced():
    assert {after for (phase, _), after in MOVES.items() if phase is Phase.SURFACED} == {
        Phase.SURFACED
    }


def test_an_end_changes_only_to_surfaced_or_by_force():
    changes = {
        (phase, fact)
        for (phase, fact), after in MOVES.items()
        if phase in TERMINAL and after not in {phase, Phase.SURFACED}
    }
    assert changes == {cell for cell in FORCED if cell[0] in TERMINAL}


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_survives_doubt(phase):
    after = advance(phase, Fact.IN_DOUBT)
    assert after is phase or (phase, after) == (Phase.PENDING, Phase.UNCERTAIN)


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_reaches_an_end(phase):
    reached, fresh = set(), {phase}
    while fresh:
        reached |= fresh
        fresh = {after for (start, _), after in MOVES.items() if start in fresh} - reached
    assert reached & TERMINAL


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.UNCERTAIN])
def test_what_may_have_arrived_is_queued_only_by_proof_a_definite_answer_or_an_operator(phase):
    ways = {fact for (start, fact), after in MOVES.items() if (start, after) == (phase, "queued")}
    assert ways == {Fact.ABSENT, Fact.HELD, Fact.RESOLVED_ABSENT}


def test_only_what_is_queued_is_sent():
    assert {phase for phase, fact in TRANSITIONS if fact is Fact.DISPATCHED} == {Phase.QUEUED}
    assert {phase for (phase, _), after in MOVES.items() if after is Phase.PENDING} == {
        Phase.QUEUED,
        Phase.PENDING,
    }


def test_only_what_was_sent_can_be_in_doubt():
    assert {phase for (phase, _), after in MOVES.items() if after is Phase.UNCERTAIN} == {
        Phase.PENDING,
        Phase.UNCERTAIN,
    }


@pytest.mark.parametrize("phase", Phase)
def test_an_answer_alone_moves_nothing(phase):
    assert MOVES.get((phase, Fact.ANSWERED), phase) is phase


def test_too_late_is_said_to_a_caller_only():
    answers = {cell for cell, after in TRANSITIONS.items() if isinstance(after, TooLate)}
    assert {fact for _, fact in answers} == {Fact.CANCELLED}
    assert {phase for phase, _ in answers} == set(Phase) - {Phase.QUEUED, Phase.CANCELLED}


def test_what_is_taken_back_was_never_sent_or_is_not_there():
    assert {phase for (phase, _), after in MOVES.items() if after is Phase.CANCELLED} == {
        Phase.QUEUED,
        Phase.CANCELLED,
    }


@pytest.mark.parametrize(
    ("phase", "is_open", "owed"),
    [
        (Phase.QUEUED, True, Duty.DISPATCH),
        (Phase.QUEUED, False, Duty.DISPATCH),
        (Phase.PENDING, True, Duty.WAIT),
        (Phase.PENDING, False, Duty.RECONCILE),
        (Phase.UNCERTAIN, True, Duty.RECONCILE),
        (Phase.UNCERTAIN, False, Duty.RECONCILE),
        *product(sorted(TERMINAL), [True, False], [Duty.NOTHING]),
    ],
)
def test_each_phase_has_its_duty(phase, is_open, owed):
    assert duty(phase, is_open=is_open) is owed
    assert duty(str(phase.value), is_open=is_open) is owed


@pytest.mark.parametrize("word", ["", "Queued", "queued ", "paused", "phase.of.tomorrow"])
@pytest.mark.parametrize("is_open", [True, False])
def test_nothing_is_done_with_a_phase_that_nobody_knows(word, is_open):
    assert duty(word, is_open=is_open) is Duty.NOTHING
