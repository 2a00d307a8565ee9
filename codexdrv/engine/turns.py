"""Whether a server would be missed: does a turn run in any of its threads, ours or not?"""

from codexdrv.engine.session import Session
from codexdrv.errors import Refused
from codexdrv.ids import ThreadId
from codexdrv.protocol.events import ThreadStatus
from codexdrv.protocol.methods import list_loaded, read_thread
from codexdrv.protocol.refusals import Meaning, read_refusal
from codexdrv.protocol.results import read_loaded, read_thread_view


PAGE_THREADS = 100
"""Ids only, so a page is small; few servers have more threads loaded."""


async def runs_a_turn(session: Session) -> bool:
    """Ask the server itself: what it told before our connection began, we do not know.

    Raises:
        Refused, LinkError, MalformedMessage: it does not say.
    """
    cursor: str | None = None
    while True:
        threads, cursor = read_loaded(await session.call(list_loaded(cursor, PAGE_THREADS)))
        for thread in threads:
            if await is_active(session, thread):
                return True
        if cursor is None:
            return False


async def is_active(session: Session, thread: ThreadId) -> bool:
    """Ask the server whether a thread does something now.

    What it told of that lags: on 0.144.5 the answer to a resume can say `active` for ever.

    Raises:
        Refused, LinkError, MalformedMessage: it does not say.
    """
    try:
        view = read_thread_view(await session.call(read_thread(thread)))
    except Refused as refused:
        if read_refusal(refused).meaning is Meaning.UNKNOWN_THREAD:
            return False  # it was unloaded meanwhile
        raise
    return view.status is ThreadStatus.ACTIVE
