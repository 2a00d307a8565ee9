"""A bench: one life with its journal, a fake server, and as many generations as a test wants."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

import anyio

from codexdrv.engine.lane import Lane, LanePace
from codexdrv.engine.ledger import Ledger
from codexdrv.engine.reconciliation import Patience
from codexdrv.engine.session import Pace, Session
from codexdrv.engine.surroundings import Surroundings
from codexdrv.engine.watch import ThreadWatch
from codexdrv.errors import CodexdrvError
from codexdrv.ids import DeliveryId, ThreadId
from codexdrv.journal.dispatch import Dispatch, Mark, Peer, encode_dispatch
from codexdrv.journal.journal import Journal
from codexdrv.protocol.events import Event
from codexdrv.rules.evidence import Fate
from codexdrv.rules.lifecycle import Delivery, News, Standing, WhenBusy
from codexdrv.rules.ownership import Fact, Phase
from codexdrv.transport.channel import Channel
from codexdrv.transport.peer import PeerIdentity
from tests.fakes.connection import serve_lines
from tests.fakes.line_framing import LineFraming
from tests.fakes.orders import NOW_MS, make_order
from tests.fakes.server import FakeServer
from tests.fakes.streams import MemoryByteStream, open_pair


PEER = PeerIdentity(4242, 99, "boot")
PACE = Pace(ping_interval_s=10.0, silence_s=30.0)
LANE_PACE = LanePace(echo_s=5.0, linger_s=600.0)
DISPATCH = Dispatch("start", None, 1, 1, 1, Peer(*PEER), Mark(None, None, 0))
WAIT_S = 7200.0
"""Virtual, so it costs nothing; what has not come by then will not."""
LOOK_S_FIRST = 0.01
LOOK_S_MAX = 1.0
STEP_S = 1.0


class Generation:
    """One connection to the fake server."""

    def __init__(self, stream: MemoryByteStream, number: int) -> None:
        self.stream = stream
        self.session = Session(
            Channel(stream, LineFraming()), generation=number, peer=PEER, on_event=self._hear
        )
        self.events: list[Event] = []
        self.listeners: list[Callable[[Event], None]] = []
        #: Why it ended.
        self.end: CodexdrvError | None = None
        self.is_greeted = anyio.Event()
        self.has_ended = anyio.Event()

    async def run(self) -> None:
        try:
            await self.session.run(self._serve, version="0", pace=PACE)
        except CodexdrvError as error:
            self.end = error
            self.has_ended.set()

    async def _serve(self, _: Session) -> None:
        self.is_greeted.set()
        await anyio.sleep_forever()

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        for listen in self.listeners:
            listen(event)


class Bench:
    """One life; a context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server = FakeServer(directory / "home")
        self.journal = Journal(str(directory / "state"))
        self.began_ms = NOW_MS
        self.patience = Patience()
        #: What the host says; a test bends it.
        self.fate = Fate.ALIVE
        self.is_sole_writer = self.has_room = True
        self.surroundings = Surroundings(
            lambda _: self.fate, lambda *_: self.is_sole_writer, lambda _: self.has_room
        )
        self.generations = 0
        self.changed: list[ThreadId] = []
        self.listeners: list[Callable[[ThreadId], None]] = []
        #: Called right before each piece of work in the journal's thread.
        self.on_journal: Callable[[], None] = lambda: None
        #: Why the pen stopped.
        self.pen_end: CodexdrvError | None = None
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._exits.__aenter__()
        self._exits.enter_context(self.journal)
        # No test here cuts the power; with fsync, most of their time would be the disk's.
        self.journal._database.execute("PRAGMA synchronous = OFF")
        self.tasks = await self._exits.enter_async_context(anyio.create_task_group())
        self.begin_life()
        return self

    async def __aexit__(self, *error) -> None:
        self.tasks.cancel_scope.cancel()
        await self._exits.__aexit__(*error)

    def begin_life(self) -> None:
        """Begin a life with a pen of its own; the one before it writes nothing any more."""
        life = self.journal.begin_life((1, None, None), "test", now_ms=NOW_MS)
        self.ledger = Ledger(
            self.journal,
            life=life,
            now_ms=self.now_ms,
            in_thread=self._run_in_place,
            on_change=self._note_change,
        )
        self.pen = anyio.CancelScope()
        self.tasks.start_soon(self._write)

    async def _write(self) -> None:
        with self.pen:
            try:
                await self.ledger.run()
            except CodexdrvError as error:
                self.pen_end = error

    async def _run_in_place(self, work):
        # With the pause that a thread makes.
        await anyio.lowlevel.checkpoint()
        self.on_journal()
        return work()

    def now_ms(self) -> int:
        return NOW_MS + round(anyio.current_time() * 1000)

    def admit(
        self,
        name: str = "m1",
        *,
        thread,
        text: str = "hello",
        when_busy: WhenBusy = WhenBusy.STEER,
        age_ms: int = 0,
    ) -> Delivery:
        """Admit a delivery for a thread of the server, as `deliver` does."""
        order = make_order(name, thread=thread.id, text=text, at_ms=self.now_ms() - age_ms)
        return self.journal.admit(order._replace(when_busy=when_busy)).delivery

    async def send_away(self, name: str = "m1", **changes) -> Delivery:
        """Record that a delivery was dispatched, as its lane would have."""
        dispatch = DISPATCH._replace(life=self.ledger.life, **changes)
        news = News(Fact.DISPATCHED, "start", attempt=1, dispatch=encode_dispatch(dispatch))
        sent = await self.ledger.record(DeliveryId(name), news)
        assert sent is not None
        return sent

    def standing(self, name: str = "m1") -> Standing:
        return self.journal.delivery(DeliveryId(name)).standing

    def story(self, name: str = "m1") -> list[str]:
        """Say which facts were recorded, with the reason of those that have several."""
        return [
            f"{fact.news.fact} {fact.news.reason}" if fact.news.reason else str(fact.news.fact)
            for fact in self.journal.story(DeliveryId(name))
        ]

    @asynccontextmanager
    async def served_stream(self) -> AsyncIterator[MemoryByteStream]:
        """Open a stream that has the server at its other end."""
        stream, theirs = open_pair()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_lines, self.server, theirs)
            yield stream
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Generation]:
        """Open a generation, greeted; it is cancelled at the end, if it has not ended by then."""
        self.generations += 1
        self.ledger.generation = self.generations
        async with self.served_stream() as stream, anyio.create_task_group() as tasks:
            generation = Generation(stream, self.generations)
            tasks.start_soon(generation.run)
            with anyio.fail_after(WAIT_S):
                await generation.is_greeted.wait()
            yield generation
            tasks.cancel_scope.cancel()

    def watch(self, generation: Generation, thread) -> ThreadWatch:
        """Watch a thread: its events reach it, as the driver would have them."""
        watch = ThreadWatch(thread.id, generation.session, self.ledger)
        self._listen(generation, thread, watch.observe)
        return watch

    @asynccontextmanager
    async def serving(
        self,
        generation: Generation,
        thread,
        *,
        is_kept: bool = False,
        on_end: Callable[[Lane], None] = lambda _: None,
    ) -> AsyncIterator[Lane]:
        """Run the lane of a thread until the end of the block, or of the connection."""
        lane = Lane(
            ThreadWatch(thread.id, generation.session, self.ledger),
            self.ledger,
            pace=LANE_PACE,
            patience=self.patience,
            surroundings=self.surroundings,
            is_kept=is_kept,
            began_ms=self.began_ms,
        )
        self._listen(generation, thread, lane.observe)
        self.listeners.append(lambda changed: lane.wake() if changed == thread.id else None)
        self.is_draining = anyio.Event()
        scope = anyio.CancelScope()

        async def end_with_connection() -> None:
            await generation.has_ended.wait()
            scope.cancel()

        async def run() -> None:
            with scope:
                await lane.run(is_draining=self.is_draining)
                on_end(lane)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end_with_connection)
            tasks.start_soon(run)
            yield lane
            tasks.cancel_scope.cancel()
        self.listeners.clear()

    async def until_phase(self, phase: Phase, name: str = "m1") -> Standing:
        await until(lambda: self.standing(name).phase is phase)
        return self.standing(name)

    def _listen(self, generation: Generation, thread, observe: Callable[[Event], None]) -> None:
        def hear(event: Event) -> None:
            if getattr(event, "thread", None) == thread.id:
                observe(event)

        generation.listeners.append(hear)

    def _note_change(self, thread: ThreadId) -> None:
        self.changed.append(thread)
        for listen in self.listeners:
            listen(thread)


async def until(claim: Callable[[], bool]) -> None:
    """Let virtual time pass until something is so; the longer it takes, the rarer the looks."""
    look_s = LOOK_S_FIRST
    with anyio.fail_after(WAIT_S):
        while not claim():
            await anyio.sleep(look_s)
            look_s = min(look_s * 1.1, LOOK_S_MAX)


async def pass_time(seconds: float = STEP_S) -> None:
    """Let virtual time pass, to see what does not happen in it."""
    await anyio.sleep(seconds)
