"""Deliveries for tests that need some, and the facts that bring one to a phase."""

from codexdrv.ids import DeliveryId, ThreadId, TurnId
from codexdrv.journal.dispatch import Dispatch, Mark, Peer, encode_dispatch
from codexdrv.journal.journal import Journal, Writer
from codexdrv.rules.lifecycle import Delivery, News, Order, WhenBusy
from codexdrv.rules.ownership import Fact, Phase


NOW_MS = 1_800_000_000_000
"""Some day in 2027."""
THREAD = ThreadId("019a0000-0000-7000-8000-00000000000a")
OTHER_THREAD = ThreadId("019a0000-0000-7000-8000-00000000000b")
TURN = TurnId("019a0000-0000-7000-8000-0000000000cc")

DISPATCH = encode_dispatch(
    Dispatch(
        "start", None, 1, 1, 1, Peer(4242, 99, "boot"), Mark(None, "/home/me/rollout.jsonl", 7)
    )
)

WAYS: dict[Phase, tuple[Fact, ...]] = {
    Phase.QUEUED: (),
    Phase.PENDING: (Fact.DISPATCHED,),
    Phase.UNCERTAIN: (Fact.DISPATCHED, Fact.IN_DOUBT),
    Phase.SURFACED: (Fact.DISPATCHED, Fact.SURFACED),
    Phase.FAILED: (Fact.REFUSED,),
    Phase.CANCELLED: (Fact.CANCELLED,),
}
"""A short way from the admission to each phase."""


def make_order(
    name: str = "m1",
    *,
    thread: ThreadId = THREAD,
    target: str | None = None,
    source: str | None = None,
    text: str = "hello",
    at_ms: int = NOW_MS,
) -> Order:
    """Make an order that nobody has admitted."""
    return Order(
        DeliveryId(name), thread, target, source, text, WhenBusy.STEER, seq=0, admitted_at_ms=at_ms
    )


def make_news(fact: Fact, *, attempt: int = 1) -> News:
    """Make a fact with what must be known with it."""
    match fact:
        case Fact.DISPATCHED:
            return News(fact, "start", "it goes out", attempt=attempt, dispatch=DISPATCH)
        case Fact.SURFACED | Fact.ANSWERED:
            return News(fact, str(fact), "the server says so", turn=TURN)
        case _:
            return News(fact, str(fact), "so it was")


def admit_in(
    journal: Journal, phase: Phase, name: str = "m1", *, thread: ThreadId = THREAD
) -> Delivery:
    """Admit a delivery and bring it to a phase, as a life of its own would."""
    delivery = journal.admit(make_order(name, thread=thread)).delivery
    writer = Writer(journal.begin_life((1, None, None), "test", now_ms=NOW_MS), 1)
    for fact in WAYS[phase]:
        moved = journal.record(delivery.order.id, make_news(fact), writer=writer, now_ms=NOW_MS + 1)
        assert moved is not None
        delivery = moved
    return delivery
