"""Find out what became of inputs: the echo that is late, what is not read back, how turns ended.

Reads only; nothing here ever sends an input.
"""

import math
import os

import anyio

from codexdrv.engine.history import fetch_newest_page, fetch_turn_statuses
from codexdrv.engine.ledger import Ledger
from codexdrv.engine.notes import Ending
from codexdrv.engine.record import RecordWatch, is_there, search_records
from codexdrv.engine.watch import ThreadWatch
from codexdrv.ids import DeliveryId
from codexdrv.journal.dispatch import decode_dispatch
from codexdrv.protocol.events import ThreadStatus, TurnStatus
from codexdrv.rules.backoff import HELD_DELAY_S_FIRST, delay_s
from codexdrv.rules.evidence import Record
from codexdrv.rules.lifecycle import Delivery, News, Outcome, Standing
from codexdrv.rules.ownership import Fact


READ_BACK_DELAY_S_FIRST = 0.02
"""The server writes its record before it tells, or within milliseconds after."""
READ_BACK_DELAY_S_MAX = 60.0
"""A record that does not fill within a minute will not be hurried by us."""
REVERTED_AFTER_MS = 60_000
"""History may lag behind; a turn that a quiet thread does not list for so long is not there."""


class Settling:
    """What one lane still has to find out."""

    def __init__(self, watch: ThreadWatch, ledger: Ledger, *, echo_s: float) -> None:
        self._watch = watch
        self._ledger = ledger
        self._echo_s = echo_s
        #: The attempt that waits for its echo: which one, at which revision, and since when.
        self._waiting: tuple[DeliveryId, int, float] | None = None
        self._reads = 0
        #: Since when the server calls the thread idle although a turn is known to run.
        self._idle_since: float | None = None
        #: What was read of the record for each, so far.
        self._records: dict[DeliveryId, RecordWatch] = {}
        #: Which were unsettled when the reads were counted.
        self._unsettled: set[DeliveryId] = set()

    async def settle(self, unsettled: list[Delivery]) -> float:
        """Read surfaced inputs back and learn how their turns ended; say when to look again."""
        known, self._unsettled = self._unsettled, {found.order.id for found in unsettled}
        self._records = {key: self._records[key] for key in self._records.keys() & self._unsettled}
        if self._unsettled - known:
            # What has just surfaced is read back soon, however long another one has been missing.
            self._reads = 0
        if not unsettled:
            return math.inf
        if not self._watch.is_subscribed:
            self._watch.forget_subscription()
            await self._watch.resume()
        missing = 0
        for found in unsettled:
            if not found.standing.stored:
                missing += not await self._read_back(found)
        idle_s = self._wait_while_idle()
        late = [found for found in unsettled if self._is_end_missing(found.standing, idle_s)]
        if late and await self._watch.fence():
            missing += await self._read_endings(late)
        if not missing and not late:
            self._reads = 0
            return idle_s
        self._reads += 1
        pause_s = delay_s(self._reads, first=READ_BACK_DELAY_S_FIRST, most=READ_BACK_DELAY_S_MAX)
        return min(pause_s, idle_s or pause_s)

    async def await_echo(self, pending: Delivery) -> float:
        """Wait for the user message of an attempt that is open; ask when it is late.

        Lateness proves nothing. Only a quiet thread whose newest page lacks the input does, and
        what it proves is doubt.
        """
        watch, key = self._watch, pending.order.id
        if not watch.is_subscribed:
            # A thread that had never been used has its first turn now: listen to it.
            watch.forget_subscription()
            await watch.resume()
            await self._ledger.flush()
        wait_s = (
            self._waiting_since(key, pending.standing.revision)
            + self._echo_s
            - anyio.current_time()
        )
        if wait_s > 0:
            return wait_s if watch.is_subscribed else HELD_DELAY_S_FIRST
        self._waiting = None
        is_quiet = await watch.fence()
        # The session that took it is no more, and the thread cannot be loaded again.
        is_lost = watch.state.status is ThreadStatus.NOT_LOADED
        if not is_quiet and not is_lost:
            return self._echo_s
        if watch.is_subscribed:
            # Else it has no page: it never had a turn.
            await watch.read_page()
        await self._ledger.flush()
        reason, why = "no_echo", "the thread is quiet again and does not show the message"
        if is_lost:
            reason, why = "unloaded", "the thread was unloaded before it showed the message"
        await self._ledger.record(
            key,
            News(Fact.IN_DOUBT, reason, why),
            revision=pending.standing.revision,
        )
        return 0

    async def _read_back(self, surfaced: Delivery) -> bool:
        order = surfaced.order
        reading = await self._search(surfaced)
        # The line without its id is half of a pair, unless that is all there will ever be.
        is_ghost = surfaced.standing.reason == "ghost" and bool(reading.ghosts)
        is_shown = is_ghost or any(each.is_equal for each in reading.sightings)
        if not is_shown and not reading.is_readable and await self._is_out_of_sight():
            page = await fetch_newest_page(self._watch.session, order.thread)
            is_shown = any(
                (message.client_id, message.text) == (order.id, order.text)
                for message in page.messages
            )
        if is_shown:
            self._records.pop(order.id, None)
            await self._ledger.record(
                order.id, News(Fact.STORED, why="it was read back from the thread's record")
            )
        return is_shown

    async def _is_out_of_sight(self) -> bool:
        """Say whether the record may be there though we cannot read it; then history speaks for it.

        In a home that we see, a file that is not there was not written (a full disk): history is
        read from the server's memory then, and stores nothing.
        """
        path, home = self._watch.path, self._watch.session.greeting.codex_home
        return await self._ledger.ask(
            lambda _: path is None or is_there(path) or home is None or not os.path.isdir(home)
        )

    def _wait_while_idle(self) -> float:
        """Say how long `idle` may yet stand beside a turn that is known to run; 0: long enough.

        `turn/completed` comes right behind it, or was missed. Seconds.
        """
        state, now = self._watch.state, anyio.current_time()
        if state.turn is None or state.status is not ThreadStatus.IDLE:
            self._idle_since = None
            return math.inf
        self._idle_since = now if self._idle_since is None else self._idle_since
        wait_s = self._idle_since + self._echo_s - now
        if wait_s > 0:
            return wait_s
        self._idle_since = None  # the fence is asked now, and again after as long
        return 0

    def _is_end_missing(self, standing: Standing, idle_s: float) -> bool:
        running = self._watch.state.turn
        return standing.outcome is Outcome.RUNNING and (
            running is None or running.id != standing.turn or not idle_s
        )

    async def _read_endings(self, late: list[Delivery]) -> int:
        """Post the ends of turns that are over; say how many are still open."""
        thread, now_ms = self._watch.thread, self._ledger.now_ms()
        since_ms = {
            found.standing.turn: found.standing.changed_at_ms
            for found in late
            if found.standing.turn
        }
        statuses = await fetch_turn_statuses(self._watch.session, thread, since_ms)
        still_open = 0
        for turn, status in statuses.items():
            if status is None and now_ms - since_ms[turn] > REVERTED_AFTER_MS:
                why = "the turn is in the thread's history no more: it was reverted"
                self._ledger.post(Ending(thread, turn, TurnStatus.INTERRUPTED, why))
            elif status in {None, TurnStatus.IN_PROGRESS}:
                still_open += 1
            else:
                self._ledger.post(Ending(thread, turn, status))
        await self._ledger.flush()
        return still_open

    async def _search(self, delivery: Delivery) -> Record:
        """Search the record from the attempt's mark on; without an attempt, all there are."""
        order, standing = delivery
        if standing.dispatch is None and self._watch.path is not None:
            # This journal never sent it: any file may have it.
            records = await self._watch.records()
            return await self._ledger.ask(lambda _: search_records(records, order.id, order.text))
        mark = decode_dispatch(standing.dispatch).mark if standing.dispatch else None
        record = self._records.setdefault(order.id, RecordWatch(order.id, order.text, mark))
        path = self._watch.path
        return await self._ledger.ask(lambda _: record.read(path))

    def _waiting_since(self, key: DeliveryId, revision: int) -> float:
        if self._waiting is None or self._waiting[:2] != (key, revision):
            self._waiting = (key, revision, anyio.current_time())
        return self._waiting[2]
