"""What a caller asks for, checked and turned into an order; nothing is stored yet."""

import os
from typing import NamedTuple

from codexdrv.cli.message import check_text
from codexdrv.clock import now_ms
from codexdrv.config import Config
from codexdrv.errors import NotFound
from codexdrv.ids import mint_delivery_id, parse_delivery_id, parse_thread_id
from codexdrv.rules.lifecycle import Order, WhenBusy


class Wish(NamedTuple):
    """One message, as the caller names things; either a target or a thread."""

    target: str | None
    thread: str | None
    text: str
    id: str | None = None
    source: str | None = None
    when_busy: str | None = None
    expires_s: float | None = None


def make_order(wish: Wish, config: Config) -> Order:
    """Check everything that can be checked without the journal.

    Raises:
        NotFound: no such target.
        BadInput: the thread, the id, the source or the text cannot be taken.
    """
    target = config.targets.get(wish.target) if wish.target is not None else None
    if wish.target is not None and target is None:
        known = ", ".join(sorted(config.targets)) or "none"
        raise NotFound(
            f"There is no target {wish.target!r} in {config.path or 'the configuration'}.",
            hint=f"Known targets: {known}.",
        )
    now = now_ms()
    named = mint_delivery_id(now, os.urandom(10)) if wish.id is None else wish.id
    when_busy = wish.when_busy or (target.when_busy if target else WhenBusy.STEER)
    return Order(
        id=parse_delivery_id(named, source=wish.source),
        thread=target.thread if target else parse_thread_id(wish.thread or ""),
        target=wish.target,
        source=wish.source,
        text=check_text(wish.text),
        when_busy=WhenBusy(when_busy),
        seq=0,
        admitted_at_ms=now,
        expires_at_ms=None if wish.expires_s is None else now + round(wish.expires_s * 1000),
    )
