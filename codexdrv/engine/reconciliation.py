"""Settle what is in doubt: ask the witnesses, weigh what they say, write what it proves.

It reads only, and never gives up. Absent means that the input is queued again: the lane sends the
same text under the same id. A verdict is written only if the row is as it was when it was read.
"""

import json
from typing import NamedTuple

import anyio
import structlog

from codexdrv.engine.history import fetch_through
from codexdrv.engine.ledger import Ledger
from codexdrv.engine.notes import LINK_LOST
from codexdrv.engine.record import RecordWatch
from codexdrv.engine.surroundings import Surroundings
from codexdrv.engine.watch import ThreadWatch
from codexdrv.ids import DeliveryId
from codexdrv.journal.dispatch import Dispatch, Peer, decode_dispatch
from codexdrv.protocol.events import ThreadStatus
from codexdrv.rules.backoff import PARK_S, SETTLE_S, look_delay_s
from codexdrv.rules.evidence import (
    Fence,
    Finding,
    History,
    Sighting,
    Testimony,
    Verdict,
    is_settling,
    shows_nothing,
    verdict,
)
from codexdrv.rules.lifecycle import Delivery, News, Order
from codexdrv.rules.ownership import Fact, Phase
from codexdrv.rules.reconciling import (
    Moment,
    absences,
    doubted_since_ms,
    ending,
    was_swallowed,
)
from codexdrv.rules.thread import Subscription


log = structlog.get_logger()


class Patience(NamedTuple):
    """How long proof is waited for; seconds."""

    #: Between two quiet fences.
    settle_s: float = SETTLE_S
    #: In doubt, before the lane goes on without it.
    park_s: float = PARK_S
    #: Never parked: the lane stays shut.
    holds_in_doubt: bool = False


class _Look:
    """What is remembered of one attempt from one look to the next."""

    def __init__(self, order: Order, dispatch: Dispatch) -> None:
        #: Another attempt is looked for anew.
        self.dispatch = dispatch
        self.record = RecordWatch(order.id, order.text, dispatch.mark)
        self.looks = 0
        self.due_at = 0.0
        #: When the fence was quiet first, with nobody showing the input then and since.
        self.quiet_since: float | None = None


class Reconciliation:
    """What one lane, on one connection, finds out about its inputs that are in doubt."""

    def __init__(
        self,
        watch: ThreadWatch,
        ledger: Ledger,
        *,
        patience: Patience,
        surroundings: Surroundings,
    ) -> None:
        self._watch = watch
        self._ledger = ledger
        self.patience = patience
        self._surroundings = surroundings
        self._looks: dict[DeliveryId, _Look] = {}

    def hurry(self) -> None:
        """Look again now: something moved, or somebody rang."""
        for look in self._looks.values():
            look.looks, look.due_at = 0, 0.0

    async def look_for(self, doubtful: Delivery) -> float:
        """Look for an input that may have arrived; say when to look again, in seconds.

        Raises:
            Refused, LinkError, PeerError: a witness could not be asked; that counts as nothing.
            JournalError: nothing was written.
        """
        order, standing = doubtful
        if standing.phase is Phase.PENDING:
            await self._ledger.record(order.id, LINK_LOST, revision=standing.revision)
            return 0
        look = self._look_at(doubtful)
        self._ledger.doubted_at.setdefault(order.id, anyio.current_time())
        wait_s = look.due_at - anyio.current_time()
        if wait_s > 0:
            return wait_s
        look.looks += 1
        # Ahead of it: a witness that cannot be asked is asked again no sooner than others.
        look.due_at = anyio.current_time() + look_delay_s(look.looks)
        seen, found = await self.judge(doubtful)
        log.debug("delivery.examined", delivery_id=order.id, **found._asdict())
        if await self._apply(doubtful, seen, found):
            self._looks.pop(order.id, None)
            self._ledger.doubted_at.pop(order.id, None)
            return 0
        pause_s = self.patience.settle_s if is_settling(found) else look_delay_s(look.looks)
        look.due_at = anyio.current_time() + pause_s
        return pause_s

    async def judge(self, doubtful: Delivery) -> tuple[Testimony, Verdict]:
        """Ask all witnesses now, and weigh what they say; nothing is written.

        The fence comes first: what it says holds for the others, which are asked after it.

        Raises:
            Refused, LinkError, PeerError: a witness could not be asked; that counts as nothing.
            JournalError: they share the journal's thread.
        """
        watch, look = self._watch, self._look_at(doubtful)
        if not watch.is_subscribed:
            watch.forget_subscription()
            await watch.resume()
        # Before the fence, which forgets it where the thread is not loaded.
        subscription = watch.state.subscription
        asked_at = anyio.current_time()
        fence = await self._ask_fence()
        answered_at = anyio.current_time()
        path, host = watch.path, self._surroundings
        # The host before the record: a server that is gone now has written its last word by now,
        # and one that is seen gone only afterwards may have written it in between.
        fate, is_sole, has_room, record = await self._ledger.ask(
            lambda _: (
                host.fate_of(look.dispatch.peer),
                path is None or host.is_sole_writer(path, watch.session.peer),
                path is None or host.has_room(path),
                look.record.read(path),
            )
        )
        if is_sole and has_room and watch.session.peer is not None:
            # It has the record open again: what it had held back is written.
            self._ledger.unsaved.discard(Peer(*watch.session.peer))
        seen = Testimony(
            record,
            await self._read_history(doubtful, look.dispatch, subscription),
            fence,
            fate,
            # From answer to question: no more than lies between the two in the server's queue.
            None if look.quiet_since is None else asked_at - look.quiet_since,
            is_sole,
            has_room and look.dispatch.peer not in self._ledger.unsaved,
            doubtful.standing.answered_turn,
        )
        if fence is not Fence.QUIET or not shows_nothing(seen):
            look.quiet_since = None
        elif look.quiet_since is None:
            look.quiet_since = answered_at
        return seen, verdict(seen, settle_s=self.patience.settle_s)

    def _look_at(self, doubtful: Delivery) -> _Look:
        order, standing = doubtful
        assert standing.dispatch is not None, "what is in doubt was sent"
        dispatch = decode_dispatch(standing.dispatch)
        look = self._looks.get(order.id)
        if look is None or look.dispatch.number != dispatch.number:
            look = self._looks[order.id] = _Look(order, dispatch)
        return look

    async def _ask_fence(self) -> Fence:
        if await self._watch.fence():
            return Fence.QUIET
        is_loaded = self._watch.state.status is not ThreadStatus.NOT_LOADED
        return Fence.BUSY if is_loaded else Fence.NOT_LOADED

    async def _read_history(
        self, doubtful: Delivery, dispatch: Dispatch, subscription: Subscription
    ) -> History:
        watch, order, anchor = self._watch, doubtful.order, dispatch.mark.anchor
        if subscription in {Subscription.NEVER_USED, Subscription.GONE}:
            # It never had a turn, or nobody knows it: there is nothing to read.
            return History(is_complete=True, has_anchor=anchor is None)
        passage = await fetch_through(watch.session, watch.thread, anchor)
        sightings = tuple(
            Sighting(message.turn, message.text == order.text)
            for message in passage.messages
            if message.client_id == order.id
        )
        return History(passage.is_complete, sightings, passage.has_anchor)

    async def _apply(self, doubtful: Delivery, seen: Testimony, found: Verdict) -> bool:
        """Write what is proved, if anything is; say whether the row has moved."""
        match found.finding:
            case Finding.SURFACED:
                return await self._surface(doubtful, seen, found)
            case Finding.ABSENT:
                await self._write(doubtful, await self._absence(doubtful, seen, found))
                return True
            case Finding.UNKNOWN:
                return await self._stand(doubtful, seen, found)
            case Finding.PENDING if not is_settling(found):
                # So that an operator knows it, too.
                await self._note_reason(doubtful, seen, found)
                return False
            case Finding.PENDING:
                return False

    async def _surface(self, doubtful: Delivery, seen: Testimony, found: Verdict) -> bool:
        written = await self._write(doubtful, _news(Fact.SURFACED, seen, found))
        if written is not None and (seen.record.sightings or seen.record.ghosts):
            why = "it was read back from the thread's record"
            await self._ledger.record(doubtful.order.id, News(Fact.STORED, why=why))
        return True

    async def _absence(self, doubtful: Delivery, seen: Testimony, found: Verdict) -> News:
        moments = await self._moments(doubtful)
        is_swallowed = was_swallowed(moments)
        end = ending(absences(moments), is_swallowed=is_swallowed)
        if end is None:
            return _news(Fact.ABSENT, seen, found)
        reason, why = end
        return _news(Fact.REFUSED, seen, found._replace(reason=reason, why=why))

    async def _stand(self, doubtful: Delivery, seen: Testimony, found: Verdict) -> bool:
        """Leave it as it stands, with the reason; after long, let the lane go on without it."""
        standing = doubtful.standing
        if await self._note_reason(doubtful, seen, found):
            return False
        if standing.parked or self.patience.holds_in_doubt or seen.fence is not Fence.QUIET:
            return False
        since_ms = doubted_since_ms(await self._moments(doubtful))
        doubted_ms = self._ledger.now_ms() - (since_ms or self._ledger.now_ms())
        # By both clocks: that of the wall may be set.
        looked_s = anyio.current_time() - self._ledger.doubted_at[doubtful.order.id]
        if min(doubted_ms / 1000, looked_s) < self.patience.park_s:
            return False
        await self._write(doubtful, News(Fact.PARKED))
        return True

    async def _note_reason(self, doubtful: Delivery, seen: Testimony, found: Verdict) -> bool:
        """Write the reason why nothing is proved, if it is another than before; say so."""
        if doubtful.standing.reason == found.reason:
            return False
        await self._write(doubtful, _news(Fact.IN_DOUBT, seen, found))
        return True

    async def _moments(self, doubtful: Delivery) -> list[Moment]:
        facts = await self._ledger.ask(lambda journal: journal.story(doubtful.order.id))
        return [Moment(fact.news.fact, fact.at_ms, fact.news.reason) for fact in facts]

    async def _write(self, doubtful: Delivery, news: News) -> Delivery | None:
        """Write a fact, if the row is as it was read; an echo may have come in between."""
        await self._ledger.flush()
        order, standing = doubtful
        return await self._ledger.record(order.id, news, revision=standing.revision)


def _news(fact: Fact, seen: Testimony, found: Verdict) -> News:
    return News(fact, found.reason, found.why, turn=found.turn, witness=_encode(seen))


def _encode(seen: Testimony) -> str:
    """Write down what the witnesses said, for `status --explain`."""
    return json.dumps(
        seen._asdict() | {"record": seen.record._asdict(), "history": seen.history._asdict()}
    )
