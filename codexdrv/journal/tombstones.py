"""What is left of a pruned delivery: its id stays taken for its request."""

import hashlib
import json
import sqlite3

from codexdrv.errors import Conflict
from codexdrv.ids import ThreadId
from codexdrv.journal.rows import DELIVERY_COLUMNS, read_delivery
from codexdrv.rules.lifecycle import Delivery, Order, Standing
from codexdrv.rules.ownership import Phase


KEEP_SETTLED_MS = 30 * 24 * 3600 * 1000
"""A month: long enough to answer "what became of last week's mail"."""
KEEP_TOMBSTONE_MS = 400 * 24 * 3600 * 1000
"""More than a year: a yearly job that repeats an id is still found out."""

SETTLED = (
    "(phase IN ('failed', 'cancelled')"
    " OR (phase = 'surfaced'"
    " AND (reason IS 'operator' OR stored = 1 AND outcome IS NOT 'running')))"
    " AND NOT EXISTS (SELECT 1 FROM replies"
    " WHERE replies.delivery = deliveries.id AND acked_at_ms IS NULL)"
)


def find(db: sqlite3.Connection, order: Order) -> Delivery | None:
    """Find what is known of a pruned delivery with this id, if there was one.

    Raises:
        Conflict: the id stood for another request.
    """
    row = db.execute(
        "SELECT request_hash, thread, seq, phase, buried_at_ms FROM tombstones WHERE id_hash = ?",
        (_id_hash(order),),
    ).fetchone()
    if row is None:
        return None
    request, thread, seq, phase, buried_at_ms = row
    if request != _request_hash(order):
        raise Conflict(
            f"The id {order.id!r} stood for another message, which has been pruned since.",
            hint="Use a new id for a new message.",
        )
    standing = Standing(
        Phase(phase),
        reason="pruned",
        why="it was settled long ago, and its story is pruned",
        outcome=None,
        # A surfaced one is not settled, and not pruned, before it was read back.
        stored=phase == Phase.SURFACED,
        changed_at_ms=buried_at_ms,
    )
    known = order._replace(thread=ThreadId(thread), seq=seq, admitted_at_ms=buried_at_ms)
    return Delivery(known, standing)


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
    # The list keeps its parts apart, whatever letters are in them.
    request = json.dumps([order.target, order.target or order.thread, order.text])
    return hashlib.sha256(request.encode()).digest()
