"""One life: reconnect for ever, and on each connection serve every thread that owes something."""

from collections.abc import Collection

import anyio
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from codexdrv.clock import now_ms
from codexdrv.config import Config
from codexdrv.connect import Connect, Connection
from codexdrv.engine.lane import LanePace
from codexdrv.engine.lanes import Lanes, LaneSettings
from codexdrv.engine.ledger import Ledger
from codexdrv.engine.reconciliation import Patience
from codexdrv.engine.session import Link, Pace, Session, check_home
from codexdrv.engine.surroundings import REAL, Surroundings
from codexdrv.engine.watch import ThreadWatch
from codexdrv.engine.worker import InThread
from codexdrv.errors import FrameTooBig, JournalError, LinkError, PeerError
from codexdrv.ids import ThreadId
from codexdrv.journal.journal import Journal
from codexdrv.protocol.methods import PAGE_ITEMS
from codexdrv.protocol.questions import Policy
from codexdrv.protocol.versions import server_version
from codexdrv.rules.backoff import CONNECT_DELAY_S_FIRST, CONNECT_DELAY_S_MAX, delay_s


STEADY_S = 60.0
"""A connection that stood that long was a good one: the next wait begins small again."""

log = structlog.get_logger()


class Driver:
    """The dispatcher of one state directory; it ends by cancellation or a newer life."""

    def __init__(
        self,
        config: Config,
        journal: Journal,
        *,
        connect: Connect,
        policy: Policy,
        life: int,
        began_ms: int,
        version: str,
        in_thread: InThread,
        surroundings: Surroundings = REAL,
        scope: Collection[ThreadId] | None = None,
    ) -> None:
        self._config = config
        self._connect = connect
        self._policy = policy
        self._version = version
        self._ledger = Ledger(
            journal,
            life=life,
            now_ms=now_ms,
            in_thread=in_thread,
            on_change=self._wake_lane,
        )
        self._is_draining = anyio.Event()
        self._lanes = Lanes(
            self._ledger,
            _lane_settings(config, began_ms, surroundings, scope),
            is_draining=self._is_draining,
            on_change=self._notify,
        )
        self._rung = anyio.Event()
        self._generation, self._failures, self._has_served = 0, 0, False
        #: See `Session.page_items`.
        self._page_items = PAGE_ITEMS
        self._session: Session | None = None
        self._server_pid: int | None = None
        self._problem: str | None = "not connected yet"
        self._changed = anyio.Event()

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            LifeEnded: another supervisor has taken over.
        """
        # What an earlier life left on its way is in doubt.
        await self._close_books()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._ledger.run)
                tasks.start_soon(self._connect_for_ever)
                tasks.start_soon(self._watch_journal)
        except BaseExceptionGroup as group:
            raise _first_leaf(group) from None

    def ring(self) -> None:
        """Somebody rang, or the journal has changed: look at everything now."""
        self._rung.set()
        self._lanes.ring()

    def hold(self) -> None:
        """Dispatch nothing from now on; what is in doubt is settled all the same."""
        self._is_draining.set()

    async def drain(self, *, answers_s: float, turns_s: float = 0.0) -> None:
        """Dispatch nothing new, and give what is open some time to end.

        Args:
            answers_s: for the answers of the requests that are open.
            turns_s: before that, for the turns that run, where they would end with us.
        """
        self.hold()
        with anyio.move_on_after(turns_s):
            await self.wait_for_turns()
        with anyio.move_on_after(answers_s):
            if self._session is not None:
                await self._session.wait_until_quiet()
            await self._ledger.flush()

    async def wait_for_turns(self) -> None:
        """Wait until no turn is known to run in the threads that are served, or is about to."""
        while await self._is_at_work():
            # Reads change what is known as well as news do, and tell nobody.
            with anyio.move_on_after(self._config.limits.poll_s):
                await self.wait_for_change()

    async def _is_at_work(self) -> bool:
        if any(watch.state.turn for watch in self.threads().values()):
            return True
        # What was sent a moment ago has no turn yet.
        return self._session is not None and bool(await self._ledger.ask(Journal.pending))

    @property
    def is_without_server(self) -> bool:
        """Say whether a connection was tried, and none has come about in this life."""
        return not self._has_served and self._failures > 0

    def link(self) -> Link:
        """Say how the connection stands."""
        if self._session is None or self._problem is not None:
            return Link(False, self._generation, problem=self._problem)
        return self._session.link(self._server_pid)

    async def wait_for_change(self) -> None:
        """Wait until the connection, or what is known of a thread, has changed."""
        await self._changed.wait()

    def threads(self) -> dict[ThreadId, ThreadWatch]:
        """Say what is known of each thread that is served now."""
        return self._lanes.watches()

    async def _watch_journal(self) -> None:
        """Look for what was written without a ring, which may be lost, and what has expired."""
        seen = 0
        while True:
            try:
                # On the dispatcher's own connection, so that only others' writes count.
                found = await self._ledger.ask(Journal.data_version)
                await self._ledger.expire()
            except JournalError as error:
                log.error("journal.unreadable", error=str(error))
                found = seen
            if found != seen:
                seen = found
                self.ring()
            await anyio.sleep(self._config.limits.poll_s)

    async def _connect_for_ever(self) -> None:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((LinkError, PeerError)),
            wait=self._next_pause_s,
            before_sleep=self._note_end,
            sleep=self._pause,
        )
        await retrying(self._serve_generation)

    async def _serve_generation(self) -> None:
        began = anyio.current_time()
        try:
            async with self._connect() as connection:
                await self._serve_connection(connection)
        except FrameTooBig:
            # The page that was asked for is as large the next time: ask for less of it.
            self._page_items //= 4
            raise
        finally:
            is_steady = anyio.current_time() - began > STEADY_S
            self._failures = 1 if is_steady else self._failures + 1

    async def _serve_connection(self, connection: Connection) -> None:
        limits = self._config.limits
        self._generation += 1
        self._ledger.generation = self._generation
        session = Session(
            connection.channel,
            generation=self._generation,
            peer=connection.peer,
            on_event=self._lanes.hear,
            on_gap=self._lanes.hear_gap,
            policy=self._policy,
            page_items=self._page_items,
        )
        self._session, self._server_pid = session, connection.pid
        try:
            await session.run(
                self._serve_threads,
                version=self._version,
                pace=Pace(limits.ping_interval_s, limits.silence_s),
            )
        finally:
            self._session = None
            self._lanes.clear()
            with anyio.CancelScope(shield=True), anyio.move_on_after(limits.drain_s):
                await self._close_books()

    async def _close_books(self) -> None:
        """Write what the connection told, and what its end means."""
        await self._ledger.flush()
        try:
            await self._ledger.doubt_pending()
        except JournalError as error:
            log.error("journal.unwritable", error=str(error))

    async def _serve_threads(self, session: Session) -> None:
        check_home(session.greeting, self._config.server.codex_home)
        self._has_served = True
        self._tell_change(None)
        log.info(
            "generation.started",
            generation=session.generation,
            server=server_version(session.greeting.user_agent),
            server_pid=self._server_pid,
        )
        await self._lanes.serve(session)

    def _wake_lane(self, thread: ThreadId) -> None:
        self._lanes.wake(thread)
        self._notify()

    def _next_pause_s(self, _state: RetryCallState) -> float:
        return delay_s(self._failures, first=CONNECT_DELAY_S_FIRST, most=CONNECT_DELAY_S_MAX)

    def _note_end(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        problem = str(error)
        if problem != self._problem:
            # One line a reason, not one a try.
            event = "generation.ended" if self._problem is None else "server.unreachable"
            log.warning(event, generation=self._generation, error=problem)
        self._tell_change(problem)

    def _tell_change(self, problem: str | None) -> None:
        self._problem = problem
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _pause(self, seconds: float) -> None:
        """Wait before the next try; a ring cuts the wait short, but not below the first one."""
        await anyio.sleep(min(seconds, CONNECT_DELAY_S_FIRST))
        self._rung = anyio.Event()
        with anyio.move_on_after(max(0.0, seconds - CONNECT_DELAY_S_FIRST)):
            await self._rung.wait()


def _lane_settings(
    config: Config, began_ms: int, surroundings: Surroundings, scope: Collection[ThreadId] | None
) -> LaneSettings:
    limits = config.limits
    patience = Patience(limits.settle_s, limits.park_s)
    return LaneSettings(
        LanePace(limits.echo_s, limits.linger_s),
        patience,
        {
            target.thread: patience._replace(holds_in_doubt=target.hold_in_doubt)
            for target in config.targets.values()
        },
        surroundings,
        began_ms,
        limits.poll_s,
        scope,
    )


def _first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Find what went wrong first; the rest is what that has cancelled."""
    first = group.exceptions[0]
    return _first_leaf(first) if isinstance(first, BaseExceptionGroup) else first
