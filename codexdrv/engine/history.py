"""Read what the server shows of a thread: its newest page, by whatever way the thread supports."""

from collections.abc import Callable
from typing import Any

from codexdrv.engine.session import Session
from codexdrv.errors import Refused
from codexdrv.ids import ThreadId, TurnId
from codexdrv.protocol.events import TurnStatus
from codexdrv.protocol.methods import (
    Call,
    Page,
    list_items,
    list_turn_statuses,
    list_turns,
    read_all_turns,
    read_items,
    read_thread,
    read_turn_statuses,
    read_turns,
)
from codexdrv.protocol.refusals import Meaning, read_refusal


_WAYS: tuple[tuple[Callable[[ThreadId], Call], Callable[[Any], Page]], ...] = (
    (list_items, read_items),
    (list_turns, read_turns),
    (lambda thread: read_thread(thread, with_turns=True), read_all_turns),
)
"""Best first. Found by asking, each time: it is no property of the version, and a thread that has
no such list today has one after its first turn."""


async def fetch_newest_page(session: Session, thread: ThreadId) -> Page:
    """Read the newest page of a thread.

    Raises:
        Refused: the last way was refused too.
        LinkError: no answer.
    """
    for ask, read in _WAYS[:-1]:
        try:
            return read(await session.call(ask(thread)))
        except Refused as refused:
            if read_refusal(refused).meaning is not Meaning.NOT_SUPPORTED:
                raise
    ask, read = _WAYS[-1]
    return read(await session.call(ask(thread)))


async def fetch_turn_statuses(session: Session, thread: ThreadId) -> dict[TurnId, TurnStatus]:
    """Read how the newest turns of a thread stand.

    Raises:
        Refused, LinkError: as `Session.call`.
    """
    return read_turn_statuses(await session.call(list_turn_statuses(thread)))
