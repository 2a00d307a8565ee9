"""Rows of the journal and the values they stand for; every column list stands here, once."""

from typing import Any, NamedTuple

from codexdrv.ids import DeliveryId, ThreadId, TurnId
from codexdrv.rules.lifecycle import Delivery, News, Order, Outcome, Standing, WhenBusy
from codexdrv.rules.ownership import Fact, Phase


ORDER_COLUMNS = "id, thread, target, source, text, when_busy, seq, admitted_at_ms, expires_at_ms"
STANDING_COLUMNS = (
    "phase, revision, attempts, reason, why, turn, answered_turn, outcome, stored, late, parked, "
    "out_of_order, dispatch, changed_at_ms"
)
DELIVERY_COLUMNS = f"{ORDER_COLUMNS}, {STANDING_COLUMNS}"
FACT_COLUMNS = "fact, reason, why, turn, outcome, attempt, dispatch, witness"

LIVE = "phase NOT IN ('surfaced', 'failed', 'cancelled')"
"""Word for word the condition of the index `live_deliveries`."""
UNSETTLED = (
    "phase = 'surfaced' AND reason IS NOT 'operator' AND (stored = 0 OR outcome = 'running')"
)
"""Word for word the condition of the index `unsettled_deliveries`."""

_ORDER_WIDTH = len(Order._fields)
_NEWS_WIDTH = len(News._fields)


class UnknownPhase(str):
    """A phase that this version does not know: live, shown as it is, and never replayed."""

    __slots__ = ()


class RecordedFact(NamedTuple):
    """A fact as the journal has it."""

    news: News
    revision: int
    #: Unix time, milliseconds.
    at_ms: int
    #: The supervisor's life that wrote it; None: a command did.
    life: int | None
    generation: int | None


class Summary(NamedTuple):
    """What the journal holds, for `status`."""

    #: How many live deliveries there are, by phase.
    live: dict[str, int]
    #: The live delivery that was admitted first.
    oldest: Delivery | None
    #: How many live deliveries each thread has, where it has any.
    depths: dict[ThreadId, int]


def order_values(order: Order) -> tuple[Any, ...]:
    """Lay an order out as `ORDER_COLUMNS`; the text as its UTF-8 bytes."""
    return order._replace(text=order.text.encode())[:]  # type: ignore[arg-type]


def read_delivery(row: tuple[Any, ...]) -> Delivery:
    """Read a row of `DELIVERY_COLUMNS`."""
    order, standing = Order(*row[:_ORDER_WIDTH]), Standing(*row[_ORDER_WIDTH:])
    return Delivery(
        order._replace(
            id=DeliveryId(order.id),
            thread=ThreadId(order.thread),
            text=row[4].decode(),
            when_busy=WhenBusy(order.when_busy),
        ),
        standing._replace(
            phase=_read_phase(standing.phase),
            turn=_turn(standing.turn),
            outcome=Outcome(standing.outcome) if standing.outcome else None,
            stored=bool(standing.stored),
            late=bool(standing.late),
            parked=bool(standing.parked),
            out_of_order=bool(standing.out_of_order),
        ),
    )


def read_fact(row: tuple[Any, ...]) -> RecordedFact:
    """Read a row of `FACT_COLUMNS, revision, at_ms, life, generation`."""
    news = News(*row[:_NEWS_WIDTH])
    return RecordedFact(
        news._replace(
            fact=Fact(news.fact),
            turn=_turn(news.turn),
            outcome=Outcome(news.outcome) if news.outcome else None,
        ),
        *row[_NEWS_WIDTH:],
    )


def _read_phase(word: str) -> Phase:
    try:
        return Phase(word)
    except ValueError:
        return UnknownPhase(word)  # type: ignore[return-value]


def _turn(value: str | None) -> TurnId | None:
    return TurnId(value) if value else None
