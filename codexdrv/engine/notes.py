"""What the reader's callbacks hand to the dispatcher's pen, and the doubts it knows by itself."""

from typing import NamedTuple

from codexdrv.ids import DeliveryId, ThreadId, TurnId
from codexdrv.protocol.events import TurnStatus
from codexdrv.rules.lifecycle import News, Outcome
from codexdrv.rules.ownership import Fact


class Echo(NamedTuple):
    """The server shows a user message that carries a client id."""

    thread: ThreadId
    turn: TurnId
    client_id: str
    text: str
    why: str


class Ending(NamedTuple):
    """A turn ended."""

    thread: ThreadId
    turn: TurnId
    status: TurnStatus
    why: str | None = None


class Attempted(NamedTuple):
    """What became of one request; late ones count as long as no other attempt has begun."""

    delivery: DeliveryId
    #: (life, generation, revision) of the dispatch.
    key: tuple[int, int, int]
    news: News


class Gap(NamedTuple):
    """Something that the server said was over the cap and is lost: an echo, for all we know."""


Note = Echo | Ending | Attempted | Gap

OUTCOMES = {
    TurnStatus.COMPLETED: Outcome.COMPLETED,
    TurnStatus.FAILED: Outcome.FAILED,
    TurnStatus.INTERRUPTED: Outcome.INTERRUPTED,
}

LINK_LOST = News(
    Fact.IN_DOUBT,
    "link_lost",
    "the connection or the supervisor ended while the request was open",
)
"""What is on its way on a connection that is no more."""

NEWS_LOST = News(
    Fact.IN_DOUBT,
    "gap",
    "the server said something that was too large, and it was dropped",
)
"""What is on its way when a message over the cap goes by on stdio."""
