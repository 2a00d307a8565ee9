"""One life: reconnect for ever, and on each connection serve every thread that owes something."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

import anyio

from codexdrv.clock import now_ms
from codexdrv.config import Config, Target
from codexdrv.connect import Connect
from codexdrv.engine.lane import LanePace
from codexdrv.engine.lanes import Lanes, LaneSettings
from codexdrv.engine.ledger import Ledger
from codexdrv.engine.question import OpenQuestion
from codexdrv.engine.questions import KnownQuestions
from codexdrv.engine.reconciliation import Patience
from codexdrv.engine.session import Link
from codexdrv.engine.surroundings import REAL, Surroundings
from codexdrv.engine.trouble import Trouble
from codexdrv.engine.turns import is_active, runs_a_turn
from codexdrv.engine.watch import ThreadWatch
from codexdrv.engine.worker import InThread
from codexdrv.errors import CodexdrvError, JournalError
from codexdrv.generations import Generations
from codexdrv.ids import ThreadId
from codexdrv.journal.journal import Journal
from codexdrv.protocol.events import ThreadStatus
from codexdrv.protocol.questions import Policy


class Driver:
    """The dispatcher of one state directory; it ends by cancellation, or as `run` says."""

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
        asked_since: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._config = config
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
            on_change=self.notify,
        )
        self._generations = Generations(
            connect,
            self._ledger,
            self._lanes,
            limits=config.limits,
            policy=policy,
            known=KnownQuestions(on_change=self.notify, is_logged=True, asked_since=asked_since),
            version=version,
            codex_home=config.server.codex_home,
            heeds_ring=config.server.spawn is None,
            on_change=self.notify,
        )
        self._journal_trouble = Trouble("journal.unreadable", "journal.readable")
        self._changed = anyio.Event()

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            LifeEnded: another supervisor has taken over.
            ServerKeepsDying: a server of our own; starting it once more is no use.
        """
        # What an earlier life left on its way is in doubt.
        await self._ledger.close_books()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._ledger.run)
                tasks.start_soon(self._generations.run)
                tasks.start_soon(self._watch_journal)
        except BaseExceptionGroup as group:
            raise _first_leaf(group) from None

    def ring(self) -> None:
        """Somebody rang, or the journal has changed: look at everything now."""
        self._generations.ring()
        self._lanes.ring()

    def retarget(self, targets: Mapping[str, Target]) -> None:
        """Keep the threads of these targets loaded from now on; the connection stays."""
        self._config = self._config._replace(targets=targets)
        self._lanes.retarget(_kept(self._config))
        self.notify()

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
            if session := self._generations.session:
                await session.wait_until_quiet()
            await self._ledger.flush()

    async def wait_for_turns(self) -> None:
        """Wait until no turn is known to run in the threads that are served, or is about to."""
        while await self._is_at_work():
            # Reads change what is known as well as news do, and tell nobody.
            with anyio.move_on_after(self._config.limits.poll_s):
                await self.wait_for_change()

    async def _is_at_work(self) -> bool:
        watches = self.threads().values()
        if any(watch.state.turn for watch in watches):
            return True
        session = self._generations.session
        if session is None:
            return False
        try:
            # What was sent a moment ago has no turn yet; one of an earlier connection, no id.
            if await self._ledger.ask(Journal.pending):
                return True
            begun = [w.thread for w in watches if w.state.status is ThreadStatus.ACTIVE]
            return any([await is_active(session, thread) for thread in begun])
        except CodexdrvError:
            return False

    @property
    def is_without_server(self) -> bool:
        """Say whether a connection was tried, and none has come about in this life."""
        return self._generations.is_without_server

    def link(self) -> Link:
        """Say how the connection stands."""
        return self._generations.link()

    async def wait_for_change(self) -> None:
        """Wait until the connection, or what is known of a thread, has changed."""
        await self._changed.wait()

    async def runs_turns(self) -> bool:
        """Ask the server whether a turn runs in any thread of its; if it does not say, one does."""
        session = self._generations.session
        if session is None:
            return True
        try:
            return await runs_a_turn(session)
        except CodexdrvError:
            return True

    @property
    def targets(self) -> Mapping[str, Target]:
        """The threads that are kept loaded, by their names."""
        return self._config.targets

    @property
    def journal_problem(self) -> str | None:
        """Why the journal cannot be read or written; None: it can."""
        return self._ledger.problem or self._journal_trouble.reason

    def problems(self) -> dict[ThreadId, str | None]:
        """Say of each thread that is served now what stands in its way."""
        return self._lanes.problems()

    def threads(self) -> dict[ThreadId, ThreadWatch]:
        """Say what is known of each thread that is served now."""
        return self._lanes.watches()

    def questions(self) -> list[OpenQuestion]:
        """List what the server has asked and nobody has answered, oldest first."""
        session = self._generations.session
        return session.questions.all() if session else []

    async def _watch_journal(self) -> None:
        """Look for what was written without a ring, which may be lost, and what has expired."""
        seen = 0
        while True:
            try:
                # On the dispatcher's own connection, so that only others' writes count.
                found = await self._ledger.ask(Journal.data_version)
                await self._ledger.expire()
                self._journal_trouble.end()
            except JournalError as error:
                self._journal_trouble.note(str(error))
                found = seen
            if found != seen:
                seen = found
                self.ring()
            await anyio.sleep(self._config.limits.poll_s)

    def _wake_lane(self, thread: ThreadId) -> None:
        self._lanes.wake(thread)
        self.notify()

    def notify(self) -> None:
        """Something that is shown of this life has changed."""
        self._changed.set()
        self._changed = anyio.Event()


def _lane_settings(
    config: Config, began_ms: int, surroundings: Surroundings, scope: Collection[ThreadId] | None
) -> LaneSettings:
    limits = config.limits
    return LaneSettings(
        LanePace(limits.echo_s, limits.linger_s),
        _patience(config),
        _kept(config),
        surroundings,
        began_ms,
        limits.poll_s,
        scope,
    )


def _patience(config: Config) -> Patience:
    return Patience(config.limits.settle_s, config.limits.park_s)


def _kept(config: Config) -> dict[ThreadId, Patience]:
    """Say which threads stay loaded, and whether doubt shuts the lane of each."""
    return {
        target.thread: _patience(config)._replace(holds_in_doubt=target.hold_in_doubt)
        for target in config.targets.values()
    }


def _first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Find what went wrong first; the rest is what that has cancelled."""
    first = group.exceptions[0]
    return _first_leaf(first) if isinstance(first, BaseExceptionGroup) else first
