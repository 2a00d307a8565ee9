"""One thread's FIFO, for one generation: look at what is stored, do what is owed, wait.

What is owed is a function of the stored phase, so a restart is no special path. A lane awaits the
server only in steps that have a deadline, and decides nothing itself: `rules/` does.
"""

import math
from collections.abc import Callable, Coroutine
from typing import NamedTuple

import anyio
import structlog

from codexdrv.engine.dispatching import Dispatching
from codexdrv.engine.ledger import Ledger
from codexdrv.engine.reconciliation import Patience, Reconciliation
from codexdrv.engine.settling import Settling
from codexdrv.engine.surroundings import Surroundings
from codexdrv.engine.trouble import Trouble
from codexdrv.engine.watch import ThreadWatch
from codexdrv.errors import CodexdrvError, JournalError, LifeEnded
from codexdrv.protocol.events import Event, StatusChanged, ThreadClosed, ThreadMoved, TurnEnded
from codexdrv.rules.backoff import HELD_DELAY_S_FIRST, HELD_DELAY_S_MAX, delay_s
from codexdrv.rules.lifecycle import Delivery
from codexdrv.rules.ownership import Duty, duty
from codexdrv.rules.thread import OBSTACLES, ThreadState


log = structlog.get_logger()

_MOVES = (TurnEnded, StatusChanged, ThreadClosed, ThreadMoved)
"""News after which something that was held may go."""


class LanePace(NamedTuple):
    """How long a lane waits for what may never come; seconds."""

    #: For the echo of an attempt, before the fence is asked.
    echo_s: float
    #: With nothing to do, before the thread is left.
    linger_s: float


class Lane:
    """The dispatcher of one thread, on one connection."""

    def __init__(
        self,
        watch: ThreadWatch,
        ledger: Ledger,
        *,
        pace: LanePace,
        patience: Patience,
        surroundings: Surroundings,
        is_kept: bool,
        began_ms: int,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        #: Stays subscribed, also with nothing to do.
        self.is_kept = is_kept
        self.watch = watch
        self._ledger = ledger
        self._pace = pace
        self._dispatching = Dispatching(watch, ledger, began_ms=began_ms)
        self._settling = Settling(watch, ledger, echo_s=pace.echo_s)
        self._reconciliation = Reconciliation(
            watch, ledger, patience=patience, surroundings=surroundings
        )
        #: What stands in the way of each duty.
        self._troubles: dict[str, Trouble] = {}
        #: Told that `watch` or `problem` says something else.
        self._on_change = on_change
        self._wake = anyio.Event()

    @property
    def _shown(self) -> tuple[ThreadState, str | None]:
        return self.watch.state, self.problem

    @property
    def problem(self) -> str | None:
        """Why something that is owed was not done; None: nothing stands in the way."""
        return next((trouble.reason for trouble in self._troubles.values()), None)

    def observe(self, event: Event) -> None:
        """Take one event of this thread; synchronous, in the order of the wire."""
        self.watch.observe(event)
        if isinstance(event, _MOVES):
            self.hurry()

    def hurry(self) -> None:
        """Look now: the thread has moved, or somebody rang."""
        self._dispatching.hurry()
        self._reconciliation.hurry()
        self.wake()

    def keep(self, *, is_kept: bool, patience: Patience) -> None:
        """Stay subscribed from now on, or only while something is owed."""
        self.is_kept = is_kept
        self._reconciliation.patience = patience
        self.wake()

    def wake(self) -> None:
        """Look at what is stored; a pause that was imposed stands."""
        self._wake.set()

    async def run(self, *, is_draining: anyio.Event) -> None:
        """Serve the thread until the connection ends, or nothing has been owed for long.

        Args:
            is_draining: once set, nothing new is dispatched.

        Raises:
            LifeEnded: another supervisor has taken over.
        """
        while True:
            self._wake = anyio.Event()
            before = self._shown
            pause_s = await self._step(is_draining)
            if self._shown != before:
                self._on_change()
            if pause_s == math.inf and not self.is_kept:
                if not self.watch.is_subscribed and await self._leave():
                    return
                with anyio.move_on_after(self._pace.linger_s) as lingering:
                    await self._wake.wait()
                if lingering.cancelled_caught and await self._leave():
                    return
            else:
                with anyio.move_on_after(pause_s):
                    await self._wake.wait()

    async def _step(self, is_draining: anyio.Event) -> float:
        """Do what is owed now; say how long to wait for more, in seconds."""
        thread = self.watch.thread
        try:
            lane, unsettled = await self._ledger.ask(
                lambda journal: (journal.lane(thread), journal.unsettled(thread))
            )
        except JournalError as error:
            return self._tolerate("look", str(error))
        self._ease("look")
        # Apart: what cannot be settled now must not keep the next message back, nor the reverse.
        pauses = [await self._try("settle", self._settling.settle(unsettled))]
        pauses += [
            await self._try(found.order.id, self._reconciliation.look_for(found))
            for found in lane
            if found.standing.parked
        ]
        head = next((found for found in lane if not found.standing.parked), None)
        if head is not None:
            pauses.append(await self._try("head", self._serve_head(head, is_draining)))
        elif self.is_kept and not self.watch.is_subscribed:
            pauses.append(await self._try("keep", self._keep()))
        if self.watch.is_subscribed or not self.is_kept:
            # Whoever loaded it: a message does that, too.
            self._ease("keep")
            self._ease("subscription")
        return min(pauses)

    async def _try(self, what: str, owed: Coroutine[None, None, float]) -> float:
        """Do one thing that is owed; a failure is shown, and tried again after a pause."""
        try:
            pause_s = await owed
        except LifeEnded:
            raise
        except CodexdrvError as error:
            # The end of the connection ends the lane from outside; all else passes.
            return self._tolerate(what, str(error))
        self._ease(what)
        return pause_s

    def _tolerate(self, what: str, why: str) -> float:
        trouble = self._troubles.setdefault(what, Trouble("lane.held_up", "lane.freed"))
        trouble.note(why, thread_id=self.watch.thread)
        return delay_s(trouble.count, first=HELD_DELAY_S_FIRST, most=HELD_DELAY_S_MAX)

    def _ease(self, what: str) -> None:
        if trouble := self._troubles.pop(what, None):
            trouble.end(thread_id=self.watch.thread)

    async def _serve_head(self, head: Delivery, is_draining: anyio.Event) -> float:
        match duty(head.standing.phase, is_open=self._dispatching.is_open(head.standing)):
            case Duty.DISPATCH if is_draining.is_set():
                return math.inf
            case Duty.DISPATCH:
                return await self._dispatching.dispatch(head, is_draining=is_draining)
            case Duty.WAIT:
                return await self._settling.await_echo(head)
            case Duty.RECONCILE:
                return await self._reconciliation.look_for(head)
            case Duty.NOTHING:
                return math.inf

    async def _keep(self) -> float:
        """Keep a thread loaded that was asked for by name."""
        self.watch.forget_subscription()
        await self.watch.resume()
        if self.watch.is_subscribed:
            self._ease("subscription")
            return math.inf
        subscription = self.watch.state.subscription
        why = f"The thread is not kept loaded: {OBSTACLES[subscription]}{self.watch.holder}."
        return self._tolerate("subscription", why)

    async def _leave(self) -> bool:
        """Stop listening, unless something is owed; say whether the lane is over."""
        thread = self.watch.thread
        try:
            if await self._ledger.ask(
                lambda journal: journal.lane(thread) or journal.unsettled(thread)
            ):
                return False
        except JournalError as error:
            log.debug("lane.not_left", thread_id=thread, error=str(error))
            return False
        try:
            if self.watch.is_subscribed:
                await self.watch.unsubscribe()
        except CodexdrvError as error:
            log.debug("lane.not_left", thread_id=self.watch.thread, error=str(error))
        return True
