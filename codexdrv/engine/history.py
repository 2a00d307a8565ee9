"""Read what the server shows of a thread: its newest page, by whatever way the thread supports."""

from collections.abc import Callable, Collection
from typing import Any

from codexdrv.engine.session import Session
from codexdrv.errors import AnswerTooBig, Refused
from codexdrv.ids import ThreadId, TurnId
from codexdrv.protocol.events import TurnStatus
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


_WAYS: tuple[tuple[Callable[[ThreadId, int], Call], Callable[[Any], Page]], ...] = (
    (list_items, read_items),
    (lambda thread, items: list_turns(thread, min(items, PAGE_TURNS)), read_turns),
    (lambda thread, _: read_thread(thread, with_turns=True), read_all_turns),
)
"""Best first. Found by asking, each time: it is no property of the version, and a thread that has
no such list today has one after its first turn."""


async def fetch_newest_page(session: Session, thread: ThreadId) -> Page:
    """Read the newest page of a thread.

    Raises:
        Refused: the last way was refused too.
        LinkError: no answer.
    """
    while session.page_items:
        try:
            return await _fetch_page(session, thread)
        except AnswerTooBig:
            # Where the connection goes on behind it: ask for less.
            session.page_items //= 4
    # Even one item was over the cap: the record is the only witness left.
    return Page((), None)


async def _fetch_page(session: Session, thread: ThreadId) -> Page:
    for ask, read in _WAYS[:-1]:
        try:
            return read(await session.call(ask(thread, session.page_items)))
        except Refused as refused:
            if read_refusal(refused).meaning is not Meaning.NOT_SUPPORTED:
                raise
    ask, read = _WAYS[-1]
    return read(await session.call(ask(thread, session.page_items)))


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
