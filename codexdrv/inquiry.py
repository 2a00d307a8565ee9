"""Ask about what is in doubt, and write nothing: what `reconcile --dry-run` says."""

from collections.abc import Sequence

import anyio

from codexdrv.clock import now_ms
from codexdrv.connect import Connect
from codexdrv.engine.ledger import Ledger
from codexdrv.engine.reconciliation import Patience, Reconciliation
from codexdrv.engine.session import Pace, Session, check_home
from codexdrv.engine.surroundings import REAL
from codexdrv.engine.watch import ThreadWatch
from codexdrv.engine.worker import in_one_thread
from codexdrv.errors import CodexdrvError
from codexdrv.ids import ThreadId
from codexdrv.journal.journal import Journal
from codexdrv.protocol.events import Event
from codexdrv.rules.evidence import Verdict, is_settling
from codexdrv.rules.lifecycle import Delivery


PACE = Pace(ping_interval_s=10.0, silence_s=30.0)

Opinion = tuple[Delivery, Verdict | CodexdrvError]
"""What would become of a delivery, or why that cannot be told."""


class Inquiry:
    """One connection, for as long as it takes to ask."""

    def __init__(self, journal: Journal, patience: Patience) -> None:
        self._patience = patience
        # Nobody runs it, so that what is noted is never written.
        self._ledger = Ledger(
            journal, life=0, now_ms=now_ms, in_thread=in_one_thread(), on_change=lambda _: None
        )
        self._watches: dict[ThreadId, ThreadWatch] = {}

    async def run(
        self, connect: Connect, doubtful: Sequence[Delivery], *, codex_home: str, version: str
    ) -> list[Opinion]:
        """Say of each what would be written.

        Raises:
            LinkError, PeerError: there is no server, or it left.
        """
        opinions: list[Opinion] = []

        async def ask(session: Session) -> None:
            check_home(session.greeting, codex_home)
            for found in doubtful:
                opinion = await self._judge(session, found)
                opinions.append((found, opinion))

        async with connect() as connection:
            session = Session(
                connection.channel, generation=1, peer=connection.peer, on_event=self._hear
            )
            try:
                await session.run(ask, version=version, pace=PACE)
            except CodexdrvError:
                # How the connection ended does not matter once all are judged.
                if len(opinions) < len(doubtful):
                    raise
        return opinions

    async def _judge(self, session: Session, found: Delivery) -> Verdict | CodexdrvError:
        thread = found.order.thread
        watch = self._watches.setdefault(thread, ThreadWatch(thread, session, self._ledger))
        reconciliation = Reconciliation(
            watch, self._ledger, patience=self._patience, surroundings=REAL
        )
        try:
            _, verdict = await reconciliation.judge(found)
            if is_settling(verdict):
                await anyio.sleep(self._patience.settle_s)
                _, verdict = await reconciliation.judge(found)
        except CodexdrvError as error:
            return error
        return verdict

    def _hear(self, event: Event) -> None:
        thread = getattr(event, "thread", None)
        if thread is not None and (watch := self._watches.get(thread)):
            watch.observe(event)
