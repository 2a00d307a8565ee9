"""The dispatcher's pen: what the wire tells becomes facts, one after the other, in its order.

The reader's callbacks only post notes; one task writes them through one thread. So the end of a
turn can never reach the journal before the echo that came in front of it.
"""

from collections import deque
from collections.abc import Callable
from typing import NoReturn

import anyio

from codexdrv.engine.chronicle import tell
from codexdrv.engine.notes import (
    LINK_LOST,
    NEWS_LOST,
    OUTCOMES,
    Attempted,
    Echo,
    Ending,
    Gap,
    Note,
)
from codexdrv.engine.trouble import Trouble
from codexdrv.engine.worker import InThread, Result
from codexdrv.errors import JournalError, NotFound
from codexdrv.ids import DeliveryId, ThreadId, TurnId
from codexdrv.journal.dispatch import Peer, decode_dispatch, dispatch_key
from codexdrv.journal.journal import Journal, Writer
from codexdrv.rules.lifecycle import EXPIRED, Delivery, News, Outcome, Standing
from codexdrv.rules.ownership import Fact, Phase


JOURNAL_RETRY_S = 1.0
"""A full disk or a held lock passes or does not; nothing is sent meanwhile."""


_CAN_SURFACE = frozenset(Phase) - {Phase.SURFACED}
"""A row whose phase is not known at all is left alone."""


class Ledger:
    """All writes of one life."""

    def __init__(
        self,
        journal: Journal,
        *,
        life: int,
        now_ms: Callable[[], int],
        in_thread: InThread,
        on_change: Callable[[ThreadId], None],
    ) -> None:
        self.life = life
        self.generation: int | None = None
        #: How many inputs this life has seen in their threads.
        self.surfaced = 0
        #: Since when this life has been looking for what is in doubt, by the monotonic clock.
        self.doubted_at: dict[DeliveryId, float] = {}
        #: Servers that have said that they cannot save what they show; their records say no "no".
        self.unsaved: set[Peer] = set()
        self._journal = journal
        self.now_ms = now_ms
        self._in_thread = in_thread
        self._on_change = on_change
        #: Each with the generation that it came from.
        self._notes: deque[tuple[int | None, Note]] = deque()
        self._posted = anyio.Event()
        self._written = anyio.Event()
        self._is_running = False
        self._pen = anyio.Lock()
        self._trouble = Trouble("journal.unwritable", "journal.writable")

    @property
    def problem(self) -> str | None:
        """Why the server's news cannot be written; None: they can, as far as was tried."""
        return self._trouble.reason

    def post(self, note: Note) -> None:
        """Queue a note; synchronous, for the reader's callbacks."""
        self._notes.append((self.generation, note))
        self._posted.set()

    async def flush(self) -> None:
        """Wait until every note is written; without a running pen, write them here.

        Raises:
            LifeEnded: another supervisor has taken over.
        """
        while self._notes:
            if self._is_running:
                await self._written.wait()
            else:
                await self._write_first()

    async def run(self) -> NoReturn:
        """Write notes as they come.

        Raises:
            LifeEnded: another supervisor has taken over.
        """
        self._is_running = True
        try:
            while True:
                while self._notes:
                    await self._write_first()
                self._posted = anyio.Event()
                await self._posted.wait()
        finally:
            # Who waits for the rest writes it: the last words of a connection come after us.
            self._is_running = False
            self._tell_written()

    async def record(
        self, delivery: DeliveryId, news: News, *, revision: int | None = None
    ) -> Delivery | None:
        """Write one fact now; None if the row has moved on from `revision`.

        Raises:
            JournalError: nothing was written.
            LifeEnded: another supervisor has taken over.
        """
        written = await self.ask(
            lambda journal: journal.record(
                delivery,
                news,
                writer=Writer(self.life, self.generation),
                now_ms=self.now_ms(),
                revision=revision,
            )
        )
        if written is not None:
            self._count(news)
            tell(written)
        return written

    async def close_books(self) -> None:
        """Write what a connection told, and what its end means; a journal that fails is told.

        Raises:
            LifeEnded: another supervisor has taken over.
        """
        await self.flush()
        try:
            await self.doubt_pending()
        except JournalError as error:
            self._trouble.note(error.message, notes=len(self._notes))

    async def doubt_pending(self) -> None:
        """Say of all that is on its way that its connection has ended: nobody can tell any more.

        Raises:
            JournalError: it stays `pending`; the next lane of its thread finds it and says so.
            LifeEnded: another supervisor has taken over.
        """
        for found in await self.ask(Journal.pending):
            await self.record(found.order.id, LINK_LOST, revision=found.standing.revision)

    async def expire(self) -> None:
        """Fail what is still queued although its caller's time is over.

        Raises:
            JournalError: it is tried again.
            LifeEnded: another supervisor has taken over.
        """
        now_ms = self.now_ms()
        for found in await self.ask(lambda journal: journal.expired(now_ms)):
            written = await self.record(found.order.id, EXPIRED, revision=found.standing.revision)
            if written is not None:
                self._on_change(found.order.thread)

    async def ask(self, question: Callable[[Journal], Result]) -> Result:
        """Read from the journal, in its thread."""
        return await self._in_thread(lambda: question(self._journal))

    async def _write_first(self) -> None:
        async with self._pen:
            if not self._notes:
                return
            generation, note = self._notes[0]
            writer = Writer(self.life, generation)
            try:
                changed = await self._in_thread(lambda: self._apply(note, writer))
            except JournalError as error:
                # The note stays first: what the server has done must not be forgotten.
                self._trouble.note(error.message, notes=len(self._notes))
                await anyio.sleep(JOURNAL_RETRY_S)
                return
            self._notes.popleft()
        self._trouble.end()
        self._tell_written()
        for delivery in changed:
            tell(delivery)
            self._on_change(delivery.order.thread)

    def _tell_written(self) -> None:
        self._written.set()
        self._written = anyio.Event()

    def _apply(self, note: Note, writer: Writer) -> list[Delivery]:
        match note:
            case Echo():
                return self._apply_echo(note, writer)
            case Ending():
                return self._apply_ending(note, writer)
            case Attempted():
                return self._apply_attempted(note, writer)
            case Gap():
                return self._apply_gap(writer)

    def _apply_echo(self, echo: Echo, writer: Writer) -> list[Delivery]:
        try:
            found = self._journal.delivery(DeliveryId(echo.client_id))
        except NotFound:
            return []  # another client's id
        phase = found.standing.phase
        if found.order.thread != echo.thread or phase not in _CAN_SURFACE:
            return []
        if found.order.text == echo.text:
            news = News(Fact.SURFACED, "surfaced", echo.why, turn=echo.turn)
            # Whatever a command wrote beside us: surfaced beats everything.
            return self._write(found, news, writer, revision=None)
        if phase is not Phase.PENDING:
            return []
        why = f"turn {echo.turn} shows this id with another text: an operator has to look"
        news = News(Fact.IN_DOUBT, "other_text", why)
        return self._write(found, news, writer, revision=found.standing.revision)

    def _apply_ending(self, ending: Ending, writer: Writer) -> list[Delivery]:
        changed: list[Delivery] = []
        outcome = OUTCOMES.get(ending.status)
        for found in self._journal.unsettled(ending.thread):
            is_open = found.standing.outcome is Outcome.RUNNING
            if is_open and found.standing.turn == ending.turn and outcome is not None:
                news = News(Fact.TURN_ENDED, why=ending.why, outcome=outcome)
                changed += self._write(found, news, writer, revision=found.standing.revision)
        for found in self._journal.lane(ending.thread):
            if found.standing.phase is Phase.PENDING and _went_into(found.standing, ending.turn):
                why = f"turn {ending.turn} ended ({ending.status}) and did not show the message"
                news = News(Fact.IN_DOUBT, "turn_ended", why)
                changed += self._write(found, news, writer, revision=found.standing.revision)
        return changed

    def _apply_attempted(self, note: Attempted, writer: Writer) -> list[Delivery]:
        found = self._journal.delivery(note.delivery)
        is_open = found.standing.phase in {Phase.PENDING, Phase.UNCERTAIN}
        if not is_open or dispatch_key(found.standing.dispatch) != note.key:
            return []
        return self._write(found, note.news, writer, revision=found.standing.revision)

    def _apply_gap(self, writer: Writer) -> list[Delivery]:
        changed: list[Delivery] = []
        for found in self._journal.pending():
            revision = found.standing.revision
            changed += self._write(found, NEWS_LOST, writer, revision=revision)
        return changed

    def _write(
        self, found: Delivery, news: News, writer: Writer, *, revision: int | None
    ) -> list[Delivery]:
        written = self._journal.record(
            found.order.id,
            news,
            writer=writer,
            now_ms=self.now_ms(),
            revision=revision,
        )
        if written is None:
            # Only an operator's word can have come between; it stands.
            return []
        self._count(news)
        return [written]

    def _count(self, news: News) -> None:
        self.surfaced += news.fact is Fact.SURFACED


def _went_into(standing: Standing, turn: TurnId) -> bool:
    steered = decode_dispatch(standing.dispatch).steered if standing.dispatch else None
    return turn in {standing.answered_turn, steered} and standing.answered_turn is not None
