"""All lanes of one connection: each thread that owes something has one."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import anyio
from anyio.abc import TaskGroup

from codexdrv.engine.lane import Lane, LanePace
from codexdrv.engine.ledger import Ledger
from codexdrv.engine.notes import Gap
from codexdrv.engine.reconciliation import Patience
from codexdrv.engine.session import Session
from codexdrv.engine.surroundings import Surroundings
from codexdrv.engine.trouble import Trouble
from codexdrv.engine.watch import ThreadWatch
from codexdrv.errors import CodexdrvError
from codexdrv.ids import ThreadId
from codexdrv.journal.dispatch import Peer
from codexdrv.journal.journal import Journal
from codexdrv.protocol.events import Event
from codexdrv.protocol.warnings import is_unsaved


class LaneSettings(NamedTuple):
    """What all lanes of a life have in common."""

    pace: LanePace
    patience: Patience
    #: Threads that stay loaded with nothing to do, and how long doubt may hold each.
    targets: Mapping[ThreadId, Patience]
    surroundings: Surroundings
    #: When the life began; Unix milliseconds.
    began_ms: int
    #: How often a journal that cannot be read is tried again; seconds.
    poll_s: float
    #: The only threads that are served; None: all.
    scope: Collection[ThreadId] | None = None


class Lanes:
    """Open lanes as the journal asks for them, and hand each what concerns its thread."""

    def __init__(
        self,
        ledger: Ledger,
        settings: LaneSettings,
        *,
        is_draining: anyio.Event,
        on_change: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._is_draining = is_draining
        self._on_change = on_change
        self._lanes: dict[ThreadId, Lane] = {}
        self._server: Peer | None = None
        self._trouble = Trouble("lanes.held_up", "lanes.freed")
        self._rung = anyio.Event()

    async def serve(self, session: Session) -> None:
        """Give each thread that owes something a lane, until the connection ends.

        Raises:
            LifeEnded: another supervisor has taken over.
        """
        self._server = Peer(*session.peer) if session.peer else None
        async with anyio.create_task_group() as lanes:
            while True:
                self._rung = anyio.Event()
                is_done = await self._open(session, lanes)
                # A journal that cannot be read rings nobody when it can be again.
                with anyio.move_on_after(math.inf if is_done else self._settings.poll_s):
                    await self._rung.wait()

    def clear(self) -> None:
        """Forget all: the connection has ended."""
        self._lanes.clear()

    def retarget(self, targets: Mapping[ThreadId, Patience]) -> None:
        """Keep these threads loaded from now on, and no others; the connection stays."""
        self._settings = self._settings._replace(targets=targets)
        for thread, lane in self._lanes.items():
            lane.keep(is_kept=thread in targets, patience=self._patience(thread))
        self._rung.set()

    def ring(self) -> None:
        """Look at everything now."""
        self._rung.set()
        for lane in self._lanes.values():
            lane.hurry()

    def wake(self, thread: ThreadId) -> None:
        """Something was written of a thread."""
        if lane := self._lanes.get(thread):
            lane.wake()

    def hear(self, event: Event) -> None:
        """Take an event, in the order of the wire."""
        if is_unsaved(event) and self._server is not None:
            self._ledger.unsaved.add(self._server)
        thread = getattr(event, "thread", None)
        lane = self._lanes.get(thread) if thread is not None else None
        if lane is not None:
            before = lane.watch.state
            lane.observe(event)
            if lane.watch.state != before:
                self._on_change()

    def hear_gap(self) -> None:
        """Something was dropped: an echo, for all we know, or the end of a turn."""
        self._ledger.post(Gap())
        for lane in self._lanes.values():
            lane.watch.distrust()
            lane.hurry()

    def watches(self) -> dict[ThreadId, ThreadWatch]:
        """Say what is known of each thread that is served now."""
        return {thread: lane.watch for thread, lane in self._lanes.items()}

    def problems(self) -> dict[ThreadId, str | None]:
        """Say of each thread that is served now what stands in its way."""
        return {thread: lane.problem for thread, lane in self._lanes.items()}

    async def _open(self, session: Session, lanes: TaskGroup) -> bool:
        """Open the lanes that are missing; say whether the journal could be read."""
        kept = self._settings.targets
        try:
            wanted = set(kept) | set(await self._ledger.ask(Journal.threads))
        except CodexdrvError as error:
            self._trouble.note(str(error))
            return False
        self._trouble.end()
        if self._settings.scope is not None:
            wanted &= set(self._settings.scope)
        for thread in sorted(wanted - set(self._lanes)):
            lane = self._lanes[thread] = Lane(
                ThreadWatch(thread, session, self._ledger),
                self._ledger,
                pace=self._settings.pace,
                patience=self._patience(thread),
                surroundings=self._settings.surroundings,
                is_kept=thread in kept,
                began_ms=self._settings.began_ms,
                on_change=self._on_change,
            )
            lanes.start_soon(self._run, lane)
        return True

    def _patience(self, thread: ThreadId) -> Patience:
        return self._settings.targets.get(thread, self._settings.patience)

    async def _run(self, lane: Lane) -> None:
        await lane.run(is_draining=self._is_draining)
        self._lanes.pop(lane.watch.thread, None)
        self._rung.set()
        self._on_change()
