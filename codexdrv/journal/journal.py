"""The journal: one public method is one transaction, named for the fact that it makes durable.

Plain and synchronous; whoever must not block calls it through a thread. Times are Unix
milliseconds. It is the only truth that processes share (DESIGN.md, "The journal").
"""

import importlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from codexdrv.errors import Conflict, Full, LifeEnded
from codexdrv.ids import DeliveryId
from codexdrv.journal.opening import translated
from codexdrv.journal.reader import JournalReader
from codexdrv.journal.rows import (
    FACT_COLUMNS,
    LIVE,
    ORDER_COLUMNS,
    STANDING_COLUMNS,
    order_values,
)
from codexdrv.rules.lifecycle import Delivery, News, Order, Standing, fold, is_same_request
from codexdrv.rules.ownership import Fact, Phase, TooLate, advance


LIVE_PER_THREAD_MAX = 512
"""A lane that long is not read by anyone in time; the caller should know."""


class Admission(NamedTuple):
    """What `admit` found or made."""

    delivery: Delivery
    #: The id was here before, for the same request.
    is_duplicate: bool


class Writer(NamedTuple):
    """Who writes: a life of the supervisor, and the generation of its connection, if any."""

    life: int
    generation: int | None = None


class Journal(JournalReader):
    """The journal of one state directory; open it, use it, close it."""

    def admit(self, order: Order, *, live_max: int = LIVE_PER_THREAD_MAX) -> Admission:
        """Store a delivery, `queued`; durable on return.

        An id that stands for the same request returns the row that is there.

        Raises:
            Conflict: the id stands for another request.
            Full: the thread has `live_max` live deliveries.
        """
        with self._transaction() as db:
            found = self._find(order.id)
            if found is not None:
                if not is_same_request(found.order, order):
                    raise _conflict(order.id)
                return Admission(found, is_duplicate=True)
            if _exists(db, "SELECT 1 FROM tombstones"):
                buried = tombstones().find(db, order)
                if buried is not None:
                    return Admission(buried, is_duplicate=True)
            return Admission(self._insert(db, order, live_max), is_duplicate=False)

    def begin_life(
        self, identity: tuple[int, int | None, str | None], version: str, *, now_ms: int
    ) -> int:
        """Number a new run of a supervisor; from now on every older one writes nothing."""
        with self._transaction() as db:
            cursor = db.execute(
                "INSERT INTO lives (pid, start_ticks, boot_id, version, began_at_ms)"
                " VALUES (?, ?, ?, ?, ?)",
                (*identity, version, now_ms),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def record(
        self,
        delivery: DeliveryId,
        news: News,
        *,
        writer: Writer,
        now_ms: int,
        revision: int | None = None,
    ) -> Delivery | None:
        """Make a fact of the dispatcher durable, with its fold.

        Args:
            delivery: which one.
            news: the fact.
            writer: refused when a newer life has begun.
            now_ms: when it became true.
            revision: write only if the row still has this one; else return None.

        Raises:
            LifeEnded: another supervisor has taken over; nothing was written.
            IllegalMove: the ownership table has a blank there; nothing was written.
            NotFound: there is no such delivery.
        """
        with self._transaction() as db:
            (newest,) = db.execute("SELECT max(life) FROM lives").fetchone()
            if newest != writer.life:
                raise LifeEnded(f"Life {newest} has begun; life {writer.life} writes nothing.")
            found = self._load(delivery)
            if revision is not None and found.standing.revision != revision:
                return None
            return self._write(db, found, news, writer=writer, now_ms=now_ms)

    def cancel(self, delivery: DeliveryId, *, now_ms: int) -> tuple[Delivery, TooLate | None]:
        """Take a delivery back, if it was not sent; one already cancelled stays so.

        Raises:
            NotFound: there is no such delivery.
        """
        with self._transaction() as db:
            found = self._load(delivery)
            if found.standing.phase not in tuple(Phase):
                return found, TooLate.ON_ITS_WAY
            move = advance(found.standing.phase, Fact.CANCELLED)
            if isinstance(move, TooLate):
                return found, move
            if move is found.standing.phase:
                return found, None
            news = News(Fact.CANCELLED, "cancelled", "the caller took it back before it was sent")
            return self._write(db, found, news, writer=None, now_ms=now_ms), None

    def resolve(
        self, delivery: DeliveryId, news: News, *, revision: int, now_ms: int
    ) -> Delivery | None:
        """Write an operator's word; None if the row has moved on from `revision`.

        Raises:
            NotFound: there is no such delivery.
            IllegalMove: the ownership table has a blank there.
        """
        with self._transaction() as db:
            found = self._load(delivery)
            if found.standing.revision != revision:
                return None
            return self._write(db, found, news, writer=None, now_ms=now_ms)

    def prune(self, *, now_ms: int) -> int:
        """Bury what has long been settled, and forget old tombstones; say how many were buried."""
        with self._transaction() as db:
            return int(tombstones().bury(db, now_ms=now_ms))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with translated(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                # A full disk has rolled back already; saying it twice would hide the cause.
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def _insert(self, db: sqlite3.Connection, order: Order, live_max: int) -> Delivery:
        (live,) = db.execute(
            f"SELECT count(*) FROM deliveries WHERE {LIVE} AND thread = ?", (order.thread,)
        ).fetchone()
        if live >= live_max:
            raise Full(
                f"Thread {order.thread} is full: {live} of its deliveries are live.",
                hint="Try later; `codexdrv status` says what holds them.",
            )
        (last,) = db.execute(
            "SELECT max(coalesce((SELECT max(seq) FROM deliveries WHERE thread = ?), 0),"
            " coalesce((SELECT max(seq) FROM tombstones WHERE thread = ?), 0))",
            (order.thread, order.thread),
        ).fetchone()
        order = order._replace(seq=last + 1)
        standing = Standing(Phase.QUEUED, changed_at_ms=order.admitted_at_ms)
        values = (*order_values(order), *standing)
        db.execute(
            f"INSERT INTO deliveries ({ORDER_COLUMNS}, {STANDING_COLUMNS})"
            f" VALUES ({_marks(values)})",
            values,
        )
        return Delivery(order, standing)

    def _write(
        self,
        db: sqlite3.Connection,
        found: Delivery,
        news: News,
        *,
        writer: Writer | None,
        now_ms: int,
    ) -> Delivery:
        standing = fold(found.standing, news, now_ms=now_ms)
        values = (*news, found.order.id, standing.revision, now_ms, *(writer or (None, None)))
        db.execute(
            f"INSERT INTO facts ({FACT_COLUMNS}, delivery, revision, at_ms, life, generation)"
            f" VALUES ({_marks(values)})",
            values,
        )
        db.execute(
            f"UPDATE deliveries SET ({STANDING_COLUMNS}) = ({_marks(standing)}) WHERE id = ?",
            (*standing, found.order.id),
        )
        return found._replace(standing=standing)


def tombstones() -> Any:
    """Load the module when it is needed: hashing costs `deliver` 3 ms, and few journals are old."""
    return importlib.import_module("codexdrv.journal.tombstones")


def _conflict(delivery: DeliveryId) -> Conflict:
    return Conflict(
        f"The id {delivery!r} stands for another message or another thread.",
        hint=f"Use a new id for a new message; `codexdrv status {delivery}` shows that one.",
    )


def _exists(db: sqlite3.Connection, query: str) -> bool:
    return bool(db.execute(f"SELECT EXISTS ({query})").fetchone()[0])


def _marks(values: tuple[Any, ...]) -> str:
    return ", ".join("?" * len(values))
