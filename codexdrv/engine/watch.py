"""What one generation knows of one thread, and the reads that teach it more."""

from contextlib import suppress

import anyio

from codexdrv.engine.history import fetch_newest_page
from codexdrv.engine.ledger import Ledger
from codexdrv.engine.notes import Echo, Ending
from codexdrv.engine.record import find_records
from codexdrv.engine.rpc import Answer
from codexdrv.engine.session import Session
from codexdrv.errors import CodexdrvError, Refused
from codexdrv.ids import ThreadId, TurnId
from codexdrv.protocol.events import Event, ItemCompleted, ItemKind, TurnEnded
from codexdrv.protocol.methods import (
    fence,
    interrupt_turn,
    read_thread,
    resume_thread,
    show_turn,
    unsubscribe,
)
from codexdrv.protocol.refusals import Meaning, Understood, read_refusal
from codexdrv.protocol.results import ThreadView, read_thread_view
from codexdrv.protocol.summaries import read_turn_files
from codexdrv.rules.thread import (
    Subscription,
    ThreadState,
    found_quiet,
    found_turn,
    found_unsteerable,
    lost_thread,
    reduce,
)
from codexdrv.transport.peer import writers_of
from codexdrv.wire.message import Response


_UNRESUMABLE = {
    Meaning.ARCHIVED: Subscription.ARCHIVED,
    Meaning.ACTIVE_WRITER: Subscription.HELD_ELSEWHERE,
}
HOLDER_LOOK_S = 60.0
"""Who has a file open is found among all open files of all processes; that takes milliseconds."""

_NEVER_USED = {Meaning.NO_ROLLOUT, Meaning.NOT_SUPPORTED}
"""How a resume is refused for want of a first turn, by version (WIRE-FACTS, "Handshake")."""


class ThreadWatch:
    """A thread as this generation sees it: events fold into `state`, reads correct it."""

    def __init__(self, thread: ThreadId, session: Session, ledger: Ledger) -> None:
        self.thread = thread
        self.session = session
        self.state = ThreadState()
        #: The rollout file, once a response named it.
        self.path: str | None = None
        #: The newest turn in which a message was seen: history lists no turn that has none, as a
        #: hook that blocks leaves one, and not by the id that a review begins with.
        self.newest: TurnId | None = None
        #: The processes that had its record open when the server said that another one has it.
        self.holders: frozenset[int] = frozenset()
        self._holders_due_s = 0.0
        self._ledger = ledger
        #: Ends of turns that came while we resume; None: we do not.
        self._held: list[Ending] | None = None
        #: Where its records lie, once that was looked up.
        self._records: tuple[str, ...] = ()

    @property
    def is_subscribed(self) -> bool:
        """Say whether turns and items of the thread reach this connection."""
        return self.state.subscription is Subscription.SUBSCRIBED

    @property
    def holder(self) -> str:
        """Name who has the thread open, for a sentence; empty where nobody else was found."""
        if self.state.subscription is not Subscription.HELD_ELSEWHERE or not self.holders:
            return ""
        return f": pid {', '.join(map(str, sorted(self.holders)))}"

    def observe(self, event: Event) -> None:
        """Take one event of this thread; synchronous, in the order of the wire."""
        self.state = reduce(self.state, event)
        match event:
            case TurnEnded(thread=thread, turn=turn, status=status):
                (self._ledger.post if self._held is None else self._held.append)(
                    Ending(thread, turn, status)
                )
            case ItemCompleted(
                kind=ItemKind.USER_MESSAGE, turn=turn, text=text, client_id=client_id
            ):
                self.newest = turn
                if client_id is not None:
                    why = f"the server put it into turn {turn}"
                    self._ledger.post(Echo(self.thread, turn, client_id, text, why))
            case _:
                pass

    async def resume(self) -> None:
        """Subscribe and read the newest page; `state.subscription` says what came of it.

        Only who has read the page is subscribed: what came before our listening is in it.

        Raises:
            Refused: for a reason that says nothing of the thread (overload, draining, unknown).
            LinkError: no answer.
        """
        # What the turn took in before we listened is on the page: its end must not overtake that.
        held: list[Ending] = []
        self._held = held
        try:
            await self._resume()
        finally:
            self._held = None
            for ending in held:
                self._ledger.post(ending)

    async def _resume(self) -> None:
        is_awaited = True

        def take(answer: Answer) -> None:
            # In the order of the wire: what the server tells behind it is newer.
            if is_awaited and isinstance(answer, Response):
                self._adopt(read_thread_view(answer.result), Subscription.SUBSCRIBED)

        try:
            await self.session.call(resume_thread(self.thread), on_answer=take)
        except Refused as refused:
            await self._learn_why_not(refused)
            return
        finally:
            is_awaited = False
        try:
            await self.read_page()
        except CodexdrvError:
            self.state = self.state._replace(subscription=Subscription.NONE)
            raise
        if self.state.is_waiting and self.session.questions.lacks_files(self.thread):
            await self._learn_files()

    async def unsubscribe(self) -> None:
        """Stop listening.

        Raises:
            Refused, LinkError: as the server says.
        """
        await self.session.call(unsubscribe(self.thread))
        self.state = lost_thread(self.state)

    async def read_page(self) -> None:
        """Read the newest page and post every message there that carries a client id.

        Raises:
            Refused, LinkError: nothing was read.
        """
        page = await fetch_newest_page(self.session, self.thread)
        self.newest = page.newest or self.newest
        for message in page.messages:
            if message.client_id is not None:
                why = f"the thread's history shows it in turn {message.turn}"
                self._ledger.post(
                    Echo(self.thread, message.turn, message.client_id, message.text, why)
                )

    async def records(self) -> tuple[str, ...]:
        """Say where every record of the thread lies; looked up once for each file it has now.

        Raises:
            JournalError: they share the journal's thread.
        """
        path = self.path
        if path is not None and path not in self._records:
            self._records = await self._ledger.ask(lambda _: find_records(path, self.thread))
        return self._records if path is not None else ()

    async def fence(self) -> bool:
        """Ask the server's own queue what the thread does; say whether no turn runs.

        Raises:
            Refused: for a reason that says nothing of the thread.
            LinkError: no answer.
        """
        believed = self.state.turn
        try:
            await self.session.call(fence(self.thread))
        except Refused as refused:
            understood = read_refusal(refused)
            if not self.learn(understood, believed.id if believed else None):
                raise
            return understood.meaning is Meaning.NO_ACTIVE_TURN and self.state.turn is None
        return False

    async def interrupt(self) -> None:
        """Interrupt the turn that is known to run, if it still does and takes input; no other.

        Asked first, because a compaction that began before we listened looks like any turn, and
        because 0.144.5 and 0.163 never answer an interrupt of the turn that they interrupted last.

        Raises:
            Refused: for a reason that says nothing of the thread.
            LinkError: no answer.
        """
        believed = self.state.turn
        if believed is None:
            return
        for call in (fence(self.thread, believed.id), interrupt_turn(self.thread, believed.id)):
            try:
                await self.session.call(call)
            except Refused as refused:
                understood = read_refusal(refused)
                if self.learn(understood, believed.id):
                    return
                if understood.meaning is not Meaning.EMPTY_INPUT:
                    raise

    def learn(self, understood: Understood, believed: TurnId | None) -> bool:
        """Correct what is known by a refusal's own words; say whether they said anything.

        Args:
            understood: the refusal.
            believed: the turn that was known when the request was made.
        """
        match understood.meaning:
            case Meaning.NO_ACTIVE_TURN:
                self.state = found_quiet(self.state, believed)
            case Meaning.OTHER_TURN if understood.turn is not None:
                self.state = found_turn(self.state, understood.turn)
            case Meaning.NOT_STEERABLE:
                self.state = found_unsteerable(self.state, understood.turn_kind)
            case Meaning.NOT_LOADED:
                self.state = lost_thread(self.state)
            case _:
                return False
        return True

    def forget_subscription(self) -> None:
        """Ask again: what kept us from subscribing may have passed."""
        if not self.is_subscribed:
            self.state = self.state._replace(subscription=Subscription.NONE)

    def distrust(self) -> None:
        """Believe nothing any more: news may have been lost. Resume, and read what is true."""
        self.state = lost_thread(self.state)

    async def _learn_why_not(self, refused: Refused) -> None:
        meaning = read_refusal(refused).meaning
        if meaning in _NEVER_USED:
            await self._learn_of_unused()
        elif meaning in _UNRESUMABLE:
            self.state = self.state._replace(subscription=_UNRESUMABLE[meaning])
            if meaning is Meaning.ACTIVE_WRITER:
                await self._learn_who_holds()
        else:
            raise refused

    async def _learn_files(self) -> None:
        # A question about files does not name them; its item did, before we listened.
        with suppress(CodexdrvError):
            shown = await self.session.call(show_turn(self.thread))
            self.session.questions.learn_files(self.thread, read_turn_files(shown))

    async def _learn_who_holds(self) -> None:
        now_s = anyio.current_time()
        if now_s < self._holders_due_s:
            return
        self._holders_due_s = now_s + HOLDER_LOOK_S
        try:
            path = read_thread_view(await self.session.call(read_thread(self.thread))).path
        except Refused:
            return
        if path is not None:
            found = await self._ledger.ask(lambda _: writers_of(path))
            peer = self.session.peer
            self.holders = frozenset(found - ({peer.pid} if peer else set()))

    async def _learn_of_unused(self) -> None:
        try:
            view = read_thread_view(await self.session.call(read_thread(self.thread)))
        except Refused as refused:
            if read_refusal(refused).meaning is not Meaning.UNKNOWN_THREAD:
                raise
            self.state = self.state._replace(subscription=Subscription.GONE)
            return
        self._adopt(view, Subscription.NEVER_USED)

    def _adopt(self, view: ThreadView, subscription: Subscription) -> None:
        self.path = view.path
        if view.path is None:
            subscription = Subscription.EPHEMERAL
        # The turn, if any, stays as notifications told it: a response never takes back newer news.
        self.state = self.state._replace(
            subscription=subscription, status=view.status, is_waiting=view.waiting
        )
