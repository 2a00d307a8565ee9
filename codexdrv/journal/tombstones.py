"""What is left of a pruned delivery: its id stays taken for its request."""

import hashlib
import sqlite3

from codexdrv.errors import Conflict
from codexdrv.journal.rows import DELIVERY_COLUMNS, read_delivery
from codexdrv.rules.lifecycle import Order
from codexdrv.rules.ownership import Phase


KEEP_SETTLED_MS = 30 * 24 * 3600 * 1000
"""A month: long enough to answer "what became of last week's mail"."""
KEEP_TOMBSTONE_MS = 400 * 24 * 3600 * 1000
"""More than a year: a yearly job that repeats an id is still found out."""

SETTLED = (
    "(phase IN ('failed', 'cancelled')"
    " OR (phase = 'surfaced' AND stored = 1 AND outcome <> 'running'))"
    " AND NOT EXISTS (SELECT 1 FROM replies WHERE delivery = id AND acked_at_ms IS NULL)"
)


def find(db: sqlite3.Connection, order: Order) -> Phase | None:
    """Find the last phase of a pruned delivery with this id, if there was one.

    Raises:
        Conflict: the id stood for another request.
    """
    row = db.execute(
        "SELECT request_hash, phase FROM tombstones WHERE id_hash = ?", (_id_hash(order),)
    ).fetchone()
    if row is None:
        return None
    if row[0] != _request_hash(order):
        raise Conflict(
            f"The id {order.id!r} stood for another message, which has been pruned since.",
            hint="Use a new id for a new message.",
        )
    return Phase(row[1])


def bury(db: sqlite3.Connection, *, now_ms: int) -> int:
    """Prune what has been settled for a month; say how many there were."""
    db.execute("DELETE FROM tombstones WHERE buried_at_ms < ?", (now_ms - KEEP_TOMBSTONE_MS,))
    rows = db.execute(
        f"SELECT {DELIVERY_COLUMNS} FROM deliveries WHERE changed_at_ms < ? AND {SETTLED}",
        (now_ms - KEEP_SETTLED_MS,),
    ).fetchall()
    for order, standing in map(read_delivery, rows):
        db.execute(
            "INSERT INTO tombstones (id_hash, request_hash, thread, seq, phase, buried_at_ms)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                _id_hash(order),
                _request_hash(order),
                order.thread,
                order.seq,
                standing.phase,
                now_ms,
            ),
        )
        db.execute("DELETE FROM deliveries WHERE id = ?", (order.id,))
    return len(rows)


def _id_hash(order: Order) -> bytes:
    return hashlib.sha256(order.id.encode()).digest()


def _request_hash(order: Order) -> bytes:
    named = f"target {order.target}" if order.target else f"thread {order.thread}"
    return hashlib.sha256(f"{named}\n{order.text}".encode()).digest()
