"""What the journal says: every question that is asked of it, one statement each."""

import sqlite3
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from codexdrv.errors import NotFound
from codexdrv.ids import DeliveryId, ThreadId
from codexdrv.journal.opening import BUSY_TIMEOUT_S, FILE_NAME, open_database, translated
from codexdrv.journal.rows import (
    DELIVERY_COLUMNS,
    FACT_COLUMNS,
    LIVE,
    UNSETTLED,
    RecordedFact,
    Summary,
    read_delivery,
    read_fact,
)
from codexdrv.rules.lifecycle import Delivery


class JournalReader:
    """An open journal, to ask; `Journal` adds the facts that can be made durable."""

    def __init__(self, directory: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self.path = f"{directory}/{FILE_NAME}"
        self._database = open_database(directory, busy_timeout_s=busy_timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was committed stays."""
        self._database.close()

    def check(self) -> None:
        """Read every page once: 0.6 s a gigabyte.

        Raises:
            JournalUnusable: one is damaged; nothing was written.
        """
        with translated(self.path):
            (found,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(" ".join(found.split()))

    def delivery(self, delivery: DeliveryId) -> Delivery:
        """Load one.

        Raises:
            NotFound: there is no such delivery.
        """
        with translated(self.path):
            return self._load(delivery)

    def deliveries(self, phase: str | None = None) -> Iterator[Delivery]:
        """Walk all rows, oldest first."""
        where, values = ("", ()) if phase is None else ("WHERE phase = ?", (phase,))
        yield from self._walk(f"{where} ORDER BY admitted_at_ms, thread, seq", values)

    def heads(self) -> dict[ThreadId, DeliveryId]:
        """Say which delivery each thread's lane looks at, where one is live."""
        with translated(self.path):
            rows = self._database.execute(
                f"SELECT thread, id FROM deliveries WHERE {LIVE} AND (thread, seq) IN"
                f" (SELECT thread, min(seq) FROM deliveries WHERE {LIVE} AND parked = 0"
                " GROUP BY thread)"
            )
            return {ThreadId(thread): DeliveryId(head) for thread, head in rows}

    def lane(self, thread: ThreadId) -> list[Delivery]:
        """Load what a thread's lane looks at: its parked deliveries and, behind them, its head.

        The head is the oldest live delivery that is not parked; the texts of those behind it are
        not needed yet, and may be large.
        """
        head = f"SELECT min(seq) FROM deliveries WHERE {LIVE} AND thread = ? AND parked = 0"
        return list(
            self._walk(
                f"WHERE {LIVE} AND thread = ? AND (parked = 1 OR seq = ({head}))"
                " ORDER BY parked DESC, seq",
                (thread, thread),
            )
        )

    def pending(self) -> list[Delivery]:
        """Load every delivery that is on its way; one a thread at most."""
        return list(self._walk(f"WHERE {LIVE} AND phase = 'pending' ORDER BY thread, seq"))

    def expired(self, now_ms: int) -> list[Delivery]:
        """Load what is still queued although its caller's time is over."""
        return list(
            self._walk(f"WHERE {LIVE} AND phase = 'queued' AND expires_at_ms <= ?", (now_ms,))
        )

    def unsettled(self, thread: ThreadId) -> list[Delivery]:
        """Load a thread's surfaced deliveries that are not read back, or whose turn runs."""
        return list(self._walk(f"WHERE {UNSETTLED} AND thread = ? ORDER BY seq", (thread,)))

    def threads(self) -> list[ThreadId]:
        """Load the threads in which something is live or unsettled."""
        with translated(self.path):
            rows = self._database.execute(
                f"SELECT thread FROM deliveries WHERE {LIVE}"
                f" UNION SELECT thread FROM deliveries WHERE {UNSETTLED}"
            )
            return [ThreadId(thread) for (thread,) in rows]

    def owed(self) -> int:
        """Count what is live, and what surfaced and was not read back yet."""
        with translated(self.path):
            (count,) = self._database.execute(
                f"SELECT (SELECT count(*) FROM deliveries WHERE {LIVE})"
                f" + (SELECT count(*) FROM deliveries WHERE {UNSETTLED} AND stored = 0)"
            ).fetchone()
            return int(count)

    def has_served(self, thread: ThreadId) -> bool:
        """Say whether anything of a thread has ever surfaced, as far as rows are kept."""
        with translated(self.path):
            found = self._database.execute(
                "SELECT 1 FROM deliveries WHERE phase = 'surfaced' AND thread = ? LIMIT 1",
                (thread,),
            )
            return found.fetchone() is not None

    def story(self, delivery: DeliveryId) -> list[RecordedFact]:
        """Load all facts of one delivery, oldest first."""
        with translated(self.path):
            rows = self._database.execute(
                f"SELECT {FACT_COLUMNS}, revision, at_ms, life, generation FROM facts"
                " WHERE delivery = ? ORDER BY revision",
                (delivery,),
            )
            return [read_fact(row) for row in rows]

    def summary(self) -> Summary:
        """Count what is live and find the oldest of it."""
        with translated(self.path):
            live = self._database.execute(
                f"SELECT phase, count(*) FROM deliveries WHERE {LIVE} GROUP BY phase"
            ).fetchall()
            depths = self._database.execute(
                f"SELECT thread, count(*) FROM deliveries WHERE {LIVE} GROUP BY thread"
            ).fetchall()
        oldest = self._walk(f"WHERE {LIVE} ORDER BY admitted_at_ms LIMIT 1")
        return Summary(dict(live), next(oldest, None), dict(depths))

    def data_version(self) -> int:
        """Say whether another process has written: another number than before."""
        with translated(self.path):
            return int(self._database.execute("PRAGMA data_version").fetchone()[0])

    def _walk(self, clauses: str, values: tuple[Any, ...] = ()) -> Iterator[Delivery]:
        with translated(self.path):
            rows = self._database.execute(
                f"SELECT {DELIVERY_COLUMNS} FROM deliveries {clauses}", values
            )
            yield from map(read_delivery, rows)

    def _find(self, delivery: DeliveryId) -> Delivery | None:
        return next(self._walk("WHERE id = ?", (delivery,)), None)

    def _load(self, delivery: DeliveryId) -> Delivery:
        found = self._find(delivery)
        if found is None:
            raise NotFound(
                f"There is no delivery {delivery!r} in this journal.",
                hint="`codexdrv list` shows all of them.",
            )
        return found
