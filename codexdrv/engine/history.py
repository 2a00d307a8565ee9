"""Read what the server shows of a thread, by whatever way the thread supports."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from codexdrv.engine.session import Session
from codexdrv.errors import AnswerTooBig, Refused
from codexdrv.ids import ThreadId, TurnId
from codexdrv.protocol.events import TurnStatus, UserMessage
from codexdrv.protocol.methods import (
    PAGE_TURNS,
    Call,
    list_items,
    list_turn_statuses,
    list_turns,
    read_thread,
)
from codexdrv.protocol.refusals import Meaning, read_refusal
from codexdrv.protocol.results import (
    Page,
    read_all_turns,
    read_items,
    read_turn_statuses,
    read_turns,
)


PAGES_MAX = 400
"""20,000 items: the turn before an input may be that long, and who wants more is looking for a turn
that is not there."""

TURN_PAGES_MAX = 2_500
"""5,000 turns, where items cannot be listed: a supervisor may be away for weeks."""


class Way(NamedTuple):
    """One way to read a page, newest first."""

    ask: Callable[[ThreadId, int, str | None], Call]
    read: Callable[[Any], Page]
    pages_max: int


_WAYS = (
    Way(
        lambda thread, items, cursor: list_items(thread, items, cursor=cursor),
        read_items,
        PAGES_MAX,
    ),
    Way(
        lambda thread, items, cursor: list_turns(thread, min(items, PAGE_TURNS), cursor=cursor),
        read_turns,
        TURN_PAGES_MAX,
    ),
    Way(lambda thread, _items, _cursor: read_thread(thread, with_turns=True), read_all_turns, 1),
)
"""Best first. Found by asking, each time: it is no property of the version, and a thread that has
no such list today has one after its first turn."""


class Passage(NamedTuple):
    """History from its newest item back to a turn."""

    #: Newest first.
    messages: tuple[UserMessage, ...]
    #: Whether it was read through that whole turn, or to the beginning of the thread.
    is_complete: bool
    #: Whether the turn is listed; true where none was wanted.
    has_anchor: bool


async def fetch_newest_page(session: Session, thread: ThreadId) -> Page:
    """Read the newest page of a thread; an empty one where not even one item fits into an answer.

    Raises:
        Refused: the last way was refused too.
        LinkError: no answer.
    """
    found = await _fetch_first(session, thread)
    return Page((), None) if found is None else found[1]


async def fetch_through(session: Session, thread: ThreadId, anchor: TurnId | None) -> Passage:
    """Read a thread newest first *through* a whole turn: a steer lands inside the one that ran.

    Args:
        session: the connection.
        thread: whose history.
        anchor: the turn to read through; None: read all of it.

    Raises:
        Refused: the last way was refused too.
        LinkError: no answer.
    """
    found = await _fetch_first(session, thread)
    messages: list[UserMessage] = []
    turns: list[TurnId] = []
    pages = 0
    while found is not None:
        way, page = found
        messages += page.messages
        turns += page.turns
        pages += 1
        is_through = anchor in turns and turns[-1] != anchor
        if is_through or page.cursor is None:
            return Passage(tuple(messages), True, anchor is None or anchor in turns)
        if pages == way.pages_max:
            break
        next_page = await _fetch_page(session, thread, way, page.cursor)
        found = None if next_page is None else (way, next_page)
    return Passage(tuple(messages), False, anchor is None or anchor in turns)


async def fetch_turn_statuses(
    session: Session, thread: ThreadId, wanted: Collection[TurnId]
) -> dict[TurnId, TurnStatus | None]:
    """Read how turns stand, back to the oldest of those that are wanted.

    One that the thread's whole history lacks stands as None: it was reverted.

    Raises:
        Refused, LinkError: as `Session.call`.
    """
    found: dict[TurnId, TurnStatus | None] = {}
    cursor: str | None = None
    while True:
        page = await session.call(list_turn_statuses(thread, cursor))
        statuses, cursor = read_turn_statuses(page)
        found |= {turn: status for turn, status in statuses.items() if turn in wanted}
        if cursor is None or found.keys() >= set(wanted):
            return {turn: found.get(turn) for turn in wanted}


async def _fetch_first(session: Session, thread: ThreadId) -> tuple[Way, Page] | None:
    """Find the way that the thread supports, by its first page; None as `_fetch_page`."""
    for way in _WAYS[:-1]:
        try:
            page = await _fetch_page(session, thread, way, None)
        except Refused as refused:
            if read_refusal(refused).meaning is not Meaning.NOT_SUPPORTED:
                raise
        else:
            return None if page is None else (way, page)
    page = await _fetch_page(session, thread, _WAYS[-1], None)
    return None if page is None else (_WAYS[-1], page)


async def _fetch_page(
    session: Session, thread: ThreadId, way: Way, cursor: str | None
) -> Page | None:
    """Read a page; None if even one item is over the cap: the record is the only witness left."""
    while session.page_items:
        try:
            return way.read(await session.call(way.ask(thread, session.page_items, cursor)))
        except AnswerTooBig:
            # Where the connection goes on behind it: ask for less.
            session.page_items //= 4
    return None
