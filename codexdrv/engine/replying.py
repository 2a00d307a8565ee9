"""Answer one question of the server, on a connection of our own, as an operator has decided."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

import anyio

from codexdrv.engine.question import OpenQuestion
from codexdrv.engine.session import Session
from codexdrv.errors import NotFound
from codexdrv.ids import ThreadId
from codexdrv.protocol.asked import RESOLVED, check_said, is_shown_by_item
from codexdrv.protocol.events import ThreadStatus
from codexdrv.protocol.methods import read_thread, resume_thread
from codexdrv.protocol.questions import YES, Decision, Said, decide
from codexdrv.protocol.results import read_thread_view


ASKED_AGAIN_S = 2.0
"""An open question is sent again within 15 ms of the answer to `thread/resume`."""
SETTLED_S = 10.0
"""The server says that a question is settled within 2 ms."""
SHOWN_S = 0.3
"""What was refused or was done shows so within 10 to 50 ms; what runs, only at its end."""

REFUSED = "declined"
"""How an item ends that was not allowed."""


class Outcome(StrEnum):
    """What became of an answer."""

    #: The server has settled the question, and what it did shows that it did as was decided.
    TAKEN = "taken"
    #: The server has settled it, and nothing shows by whose answer.
    SETTLED = "settled"
    #: The server has settled it otherwise: somebody else's answer came first.
    LATE = "late"
    #: It has not said that the question is settled.
    UNCLEAR = "unclear"


class Wanted(NamedTuple):
    """Which question is meant."""

    id: str
    thread: ThreadId


async def answer_question(
    session: Session,
    wanted: Wanted,
    decision: Decision,
    said: Said,
    *,
    on_sent: Callable[[], None] = lambda: None,
) -> Outcome:
    """Have the question sent again, answer it, and see what becomes of it.

    Its id holds the server process, its number on the wire and every word of it: what differs in
    any of these is another question, and is not answered.

    Args:
        session: a connection of our own.
        wanted: which one.
        decision: what is decided.
        said: what is said with it.
        on_sent: told when the answer is on its way; before, nothing has been done.

    Raises:
        NotFound: it is not open any more.
        BadInput: this cannot be said to it; nothing was sent.
        Refused, LinkError: the thread cannot be resumed, or the connection ended.
    """
    question = await _have_asked_again(session, wanted)
    check_said(question.request, decision, said)
    response = decide(question.request, decision, said)
    session.questions.watch(question)
    session.reply(response)
    on_sent()
    with anyio.move_on_after(SETTLED_S):
        while session.questions.find(wanted.id) is not None:
            await session.questions.wait_for_change()
    # Its thread may have been closed under it.
    if session.questions.ends.get(wanted.id) != RESOLVED:
        return Outcome.UNCLEAR
    return await _see(session, question, decision)


async def _have_asked_again(session: Session, wanted: Wanted) -> OpenQuestion:
    # A resume would load a thread that is not; its commands might do other things from then on
    # (WIRE-FACTS, "What a thread may do"), and nothing is open in it.
    thread = read_thread_view(await session.call(read_thread(wanted.thread)))
    if thread.status is not ThreadStatus.NOT_LOADED:
        await session.call(resume_thread(wanted.thread))
        with anyio.move_on_after(ASKED_AGAIN_S):
            while (found := session.questions.find(wanted.id)) is None:
                await session.questions.wait_for_change()
            return found
    raise NotFound(
        f"{wanted.id} is not open any more: the server does not ask it again.",
        hint="It was answered, or its turn has ended, or the server was restarted."
        " `codexdrv attention` lists what is open.",
    )


async def _see(session: Session, question: OpenQuestion, decision: Decision) -> Outcome:
    """See by what is done whether it was another answer that counted: the server does not say."""
    if not is_shown_by_item(question.request):
        return Outcome.SETTLED
    place, ends = question.place, session.questions.ends
    # A decline and a cancel differ only in the turn.
    telling = {place.turn} if decision is Decision.CANCEL else {place.item, place.turn}
    with anyio.move_on_after(SHOWN_S):
        while not ends.keys() & telling:
            await session.questions.wait_for_change()
    return judge(decision, item=ends.get(place.item), turn=ends.get(place.turn))


def judge(decision: Decision, *, item: str | None, turn: str | None) -> Outcome:
    """Weigh how the item and the turn have ended against what was decided; None: not yet."""
    is_done = item not in {None, REFUSED}
    if decision in YES:
        # A turn that has ended without it has not run it.
        is_taken, is_late = is_done, item == REFUSED or (item is None and turn is not None)
    elif decision is Decision.CANCEL:
        is_taken, is_late = turn is not None, is_done or turn == "completed"
    else:
        is_taken, is_late = item is not None or turn is not None, is_done
    if is_late:
        return Outcome.LATE
    # Else it runs; or it does not, and nobody has told us.
    return Outcome.TAKEN if is_taken else Outcome.SETTLED
