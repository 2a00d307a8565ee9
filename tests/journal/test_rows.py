"""Rows and values: every column has its field, and nothing is lost on the way there and back."""

from pathlib import Path

import pytest

from codexdrv.journal import rows
from codexdrv.journal.rows import (
    DELIVERY_COLUMNS,
    FACT_COLUMNS,
    LIVE,
    ORDER_COLUMNS,
    STANDING_COLUMNS,
    UNSETTLED,
    RecordedFact,
    UnknownPhase,
    order_values,
    read_delivery,
    read_fact,
)
from codexdrv.rules.lifecycle import Delivery, News, Order, Outcome, Standing, WhenBusy
from codexdrv.rules.ownership import Fact, Phase
from tests.fakes.orders import DISPATCH, NOW_MS, TURN, make_order


SCHEMA = Path(rows.__file__).with_name("schema.sql").read_text("utf-8")
FULL_STANDING = Standing(
    Phase.SURFACED,
    revision=7,
    attempts=2,
    reason="echo",
    why="the server put it into a turn",
    turn=TURN,
    answered_turn=TURN,
    outcome=Outcome.COMPLETED,
    stored=True,
    late=True,
    parked=True,
    out_of_order=True,
    dispatch=DISPATCH,
    changed_at_ms=NOW_MS,
)


@pytest.mark.parametrize(
    ("columns", "value"),
    [(ORDER_COLUMNS, Order), (STANDING_COLUMNS, Standing), (FACT_COLUMNS, News)],
)
def test_the_columns_are_the_fields_in_their_order(columns, value):
    assert tuple(columns.split(", ")) == value._fields


@pytest.mark.parametrize("condition", [LIVE, UNSETTLED])
def test_a_condition_is_that_of_its_index_word_for_word(condition):
    # Else SQLite would walk the whole table, and slowly: nothing would fail.
    assert f"WHERE {condition};" in SCHEMA


@pytest.mark.parametrize("condition", [LIVE, UNSETTLED])
def test_lanes_are_read_through_their_index(journal, condition):
    plan = journal._database.execute(
        f"EXPLAIN QUERY PLAN SELECT {DELIVERY_COLUMNS} FROM deliveries"
        f" WHERE {condition} AND thread = ? ORDER BY seq",
        ("x",),
    ).fetchall()
    name = "live_deliveries" if condition is LIVE else "unsettled_deliveries"
    assert [line[3] for line in plan] == [f"SEARCH deliveries USING INDEX {name} (thread=?)"]


@pytest.mark.parametrize(
    "order",
    [
        make_order(),
        make_order(text="a\0b\r\n\ufeff \U0001f600"),
        make_order(target="ops", source="mail")._replace(when_busy=WhenBusy.WAIT, seq=3),
    ],
)
@pytest.mark.parametrize("standing", [Standing(Phase.QUEUED), FULL_STANDING])
def test_a_row_is_read_back_as_it_was_laid_out(order, standing):
    read = read_delivery((*order_values(order), *standing))
    assert read == Delivery(order, standing)
    assert list(map(type, read.standing)) == list(map(type, standing))
    assert type(read.order.when_busy) is WhenBusy


def test_a_text_is_laid_out_as_its_bytes():
    assert "grün".encode() in order_values(make_order(text="grün"))


def test_zeros_and_ones_become_truth_values():
    numbers = [int(field) if isinstance(field, bool) else field for field in FULL_STANDING]
    standing = read_delivery((*order_values(make_order()), *numbers)).standing
    assert standing.stored is standing.late is standing.parked is standing.out_of_order is True


def test_an_unknown_phase_stays_the_word_that_it_is():
    frozen = Standing(Phase.QUEUED)._replace(phase="frozen")
    phase = read_delivery((*order_values(make_order()), *frozen)).standing.phase
    assert type(phase) is UnknownPhase
    assert phase == f"{phase}" == "frozen"
    assert phase not in list(Phase)


@pytest.mark.parametrize(
    "news",
    [
        News(Fact.HELD),
        News(Fact.DISPATCHED, "start", "it goes out", attempt=2, dispatch=DISPATCH),
        News(Fact.TURN_ENDED, turn=TURN, outcome=Outcome.INTERRUPTED),
    ],
)
def test_a_fact_is_read_back_as_it_was_laid_out(news):
    fact = read_fact((*news, 4, NOW_MS, None, None))
    assert fact == RecordedFact(news, 4, NOW_MS, None, None)
    assert list(map(type, fact.news)) == list(map(type, news))
