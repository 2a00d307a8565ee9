"""One connection after the other, for ever, with growing pauses; and how it stands now."""

from collections.abc import Callable
from typing import NamedTuple

import anyio
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from codexdrv.clock import now_ms
from codexdrv.config import Limits
from codexdrv.connect import Connect, Connection
from codexdrv.engine.lanes import Lanes
from codexdrv.engine.ledger import Ledger
from codexdrv.engine.questions import KnownQuestions
from codexdrv.engine.session import Link, Pace, Session, check_home
from codexdrv.engine.trouble import Trouble
from codexdrv.errors import CodexdrvError, FrameTooBig, LinkError, PeerError
from codexdrv.protocol.methods import PAGE_ITEMS
from codexdrv.protocol.questions import Policy
from codexdrv.rules.backoff import CONNECT_DELAY_S_FIRST, CONNECT_DELAY_S_MAX, delay_s
from codexdrv.transport.peer import PeerIdentity


STEADY_S = 60.0
"""A connection that stood that long was a good one: the next wait begins small again."""

log = structlog.get_logger()


class _Standing(NamedTuple):
    """A connection that stands, or is being made."""

    session: Session
    server_pid: int
    #: By the wall clock, milliseconds, and by anyio's, seconds.
    since_ms: int
    since_s: float
    #: How many inputs this life had seen in their threads before.
    surfaced: int


class Generations:
    """All connections of one life, one at a time."""

    def __init__(
        self,
        connect: Connect,
        ledger: Ledger,
        lanes: Lanes,
        *,
        limits: Limits,
        policy: Policy,
        known: KnownQuestions,
        version: str,
        codex_home: str,
        heeds_ring: bool,
        on_change: Callable[[], None],
    ) -> None:
        """Take all that a connection needs; none is made yet.

        Args:
            connect: opens one.
            ledger: told whose notes it writes, and to close its books when a connection ends.
            lanes: what is served on it.
            limits: when a connection is dead.
            policy: who answers the server's questions.
            known: what was seen of these.
            version: ours.
            codex_home: the home that the server must have.
            heeds_ring: a ring cuts a pause short. Not where we start the server ourselves: nobody
                else mends what ails it, and rings would only hurry it to its last death.
            on_change: told that `link` says something else now.
        """
        self._connect = connect
        self._ledger = ledger
        self._lanes = lanes
        self._limits = limits
        self._policy = policy
        self._version = version
        self._codex_home = codex_home
        self._heeds_ring = heeds_ring
        self._on_change = on_change
        self._known = known
        self._rung = anyio.Event()
        self._number, self._failures, self._has_served = 0, 0, False
        #: How long the last connection stood; 0: it did not come about.
        self._lasted_s = 0.0
        #: See `Session.page_items`.
        self._page_items = PAGE_ITEMS
        self._standing: _Standing | None = None
        #: The last one that served, for the log.
        self._served: _Standing | None = None
        self._problem: str | None = "not connected yet"
        #: The server of the last connection, and how often that was another one than before.
        self._server: PeerIdentity | int | None = None
        self._restarts = 0
        self._trouble = Trouble("server.unreachable", "server.reached")

    async def run(self) -> None:
        """Connect, serve, and connect again, until cancelled.

        Raises:
            LifeEnded: another supervisor has taken over.
            ServerKeepsDying: there is no point in starting the server once more.
        """
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((LinkError, PeerError)),
            wait=self._next_pause_s,
            before_sleep=self._note_failure,
            sleep=self._pause,
        )
        why = "we stopped"
        try:
            await retrying(self._serve_generation)
        except CodexdrvError as error:
            # A line of the log has room for one of its own.
            why = error.message.partition("\n")[0]
            raise
        finally:
            if self._problem is None:
                self._tell_end(why)

    def ring(self) -> None:
        """Try again now."""
        if self._heeds_ring:
            self._rung.set()

    @property
    def is_without_server(self) -> bool:
        """Say whether a connection was tried, and none has come about in this life."""
        return not self._has_served and self._failures > 0

    @property
    def session(self) -> Session | None:
        """The connection that stands, or is being made."""
        return self._standing.session if self._standing else None

    def link(self) -> Link:
        """Say how the connection stands."""
        standing = self._standing
        if standing is None or self._problem is not None:
            problem = self._problem or "the connection has just ended"
            return Link(False, self._number, problem=problem, restarts=self._restarts)
        link = standing.session.link(standing.server_pid)
        return link._replace(since_ms=standing.since_ms, restarts=self._restarts)

    async def _serve_generation(self) -> None:
        self._lasted_s = 0.0
        try:
            async with self._connect() as connection:
                await self._serve_connection(connection)
        except FrameTooBig:
            # The page that was asked for is as large the next time: ask for less of it.
            self._page_items //= 4
            raise
        finally:
            self._failures = 1 if self._lasted_s > STEADY_S else self._failures + 1

    async def _serve_connection(self, connection: Connection) -> None:
        self._number += 1
        self._ledger.generation = self._number
        session = Session(
            connection.channel,
            generation=self._number,
            peer=connection.peer,
            on_event=self._lanes.hear,
            on_gap=self._lanes.hear_gap,
            policy=self._policy,
            known=self._known,
            page_items=self._page_items,
        )
        self._standing = _Standing(
            session, connection.pid, now_ms(), anyio.current_time(), self._ledger.surfaced
        )
        self._count_server(connection)
        pace = Pace(self._limits.ping_interval_s, self._limits.silence_s)
        try:
            await session.run(self._serve_threads, version=self._version, pace=pace)
        finally:
            self._lasted_s = anyio.current_time() - self._standing.since_s
            self._standing = None
            self._lanes.clear()
            with anyio.CancelScope(shield=True), anyio.move_on_after(self._limits.drain_s):
                await self._ledger.close_books()

    def _count_server(self, connection: Connection) -> None:
        server = connection.peer or connection.pid
        if self._server not in {None, server}:
            self._restarts += 1
        self._server = server

    async def _serve_threads(self, session: Session) -> None:
        check_home(session.greeting, self._codex_home)
        self._has_served = True
        self._served = self._standing
        self._problem = None
        self._on_change()
        self._trouble.end()
        link = self.link()
        log.info(
            "generation.started",
            generation=self._number,
            server=link.version,
            server_pid=link.server_pid,
        )
        await self._lanes.serve(session)

    def _next_pause_s(self, _state: RetryCallState) -> float:
        return delay_s(self._failures, first=CONNECT_DELAY_S_FIRST, most=CONNECT_DELAY_S_MAX)

    def _note_failure(self, state: RetryCallState) -> None:
        problem = str(state.outcome.exception()) if state.outcome else "unknown"
        if self._problem is None:
            self._tell_end(problem)
        else:
            self._trouble.note(problem, generation=self._number)
        self._problem = problem
        self._on_change()

    def _tell_end(self, why: str) -> None:
        """Log the one line of a connection that has served."""
        served = self._served
        assert served is not None, "there is no problem only once it serves"
        log.info(
            "generation.ended",
            generation=served.session.generation,
            server_pid=served.server_pid,
            lasted_s=round(anyio.current_time() - served.since_s, 1),
            surfaced=self._ledger.surfaced - served.surfaced,
            reason=why,
        )

    async def _pause(self, seconds: float) -> None:
        """Wait before the next try; a ring cuts the wait short, but not below the first one."""
        self._rung = anyio.Event()
        await anyio.sleep(min(seconds, CONNECT_DELAY_S_FIRST))
        with anyio.move_on_after(max(0.0, seconds - CONNECT_DELAY_S_FIRST)):
            await self._rung.wait()
