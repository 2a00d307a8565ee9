"""Put the input at the head of a lane into its thread: write ahead, send, note what came of it."""

import os

import anyio
import structlog

from codexdrv.engine.ledger import Ledger
from codexdrv.engine.notes import Attempted, Echo
from codexdrv.engine.record import record_size, search_records
from codexdrv.engine.rpc import Answer
from codexdrv.engine.watch import ThreadWatch
from codexdrv.errors import CodexdrvError, LinkError, MalformedMessage, Refused
from codexdrv.ids import DeliveryId, TurnId
from codexdrv.journal.dispatch import Dispatch, Mark, Peer, Step, dispatch_key, encode_dispatch
from codexdrv.protocol.methods import Call, start_turn, steer_turn
from codexdrv.protocol.refusals import Meaning, read_refusal
from codexdrv.protocol.results import read_started_turn
from codexdrv.rules.answers import read_answer
from codexdrv.rules.backoff import HELD_DELAY_S_FIRST, HELD_DELAY_S_MAX, delay_s
from codexdrv.rules.lifecycle import Delivery, News, Standing, WhenBusy, is_expired
from codexdrv.rules.ownership import Fact, Phase
from codexdrv.rules.routing import Action, Attempt, Rule, route, situation
from codexdrv.wire.message import Response


log = structlog.get_logger()


class Dispatching:
    """The attempts of one lane."""

    def __init__(self, watch: ThreadWatch, ledger: Ledger, *, began_ms: int) -> None:
        self._watch = watch
        self._ledger = ledger
        self._began_ms = began_ms
        self._looked_up: set[str] = set()
        self._holds = 0
        self._not_before = 0.0
        #: Which turn was interrupted for which delivery.
        self._interrupted: tuple[DeliveryId, TurnId | None] | None = None
        #: What was decided since the last attempt.
        self._trail: list[Step] = []

    def hurry(self) -> None:
        """Forget the pause that a hold imposed."""
        self._not_before = 0.0

    def is_open(self, standing: Standing) -> bool:
        """Say whether an attempt is open that was made on this connection."""
        if standing.phase is not Phase.PENDING:
            return False
        key = dispatch_key(standing.dispatch)
        return key is not None and key[:2] == (self._ledger.life, self._ledger.generation)

    async def dispatch(self, head: Delivery, *, is_draining: anyio.Event) -> float:
        """Try once; say how long to wait before the next look, in seconds.

        Args:
            head: the input.
            is_draining: once set, nothing new is sent.

        Raises:
            Refused, LinkError, PeerError: of a read; nothing was sent.
            JournalError: nothing was sent.
        """
        if is_expired(head.order, now_ms=self._ledger.now_ms()):
            await self._ledger.expire()
            return 0
        wait_s = self._not_before - anyio.current_time()
        if wait_s > 0:
            return wait_s
        try:
            return await self._attempt(head, is_draining)
        except Refused as refused:
            news = read_answer(refused)
            return await self._hold(head, news.reason or "refused", news.why or str(refused))

    async def _attempt(self, head: Delivery, is_draining: anyio.Event) -> float:
        self._trail.clear()
        if await self._has_surfaced(head):
            return 0
        attempt = await self._begin()
        while True:
            rule = route(situation(self._watch.state, attempt, self._wish(head)))
            self._trail.append(Step(str(rule.action), rule.why, self._ledger.now_ms()))
            log.debug("delivery.routed", delivery_id=head.order.id, action=rule.action)
            match rule.action:
                case Action.RESUME | Action.FENCE:
                    attempt = await self._ask(rule.action, attempt)
                    if await self._has_surfaced(head):
                        return 0
                case Action.START | Action.STEER:
                    sent = await self._send(head, rule, attempt, is_draining=is_draining)
                    if sent is None:
                        return 0
                    head, attempt = sent
                case Action.INTERRUPT:
                    self._interrupted = (head.order.id, self._running())
                    await self._watch.interrupt()
                    return await self._hold(head, rule.reason, rule.why)
                case Action.HOLD:
                    return await self._hold(head, rule.reason, rule.why + self._watch.holder)
                case Action.REFUSE:
                    return await self._refuse(head, rule)

    async def _refuse(self, head: Delivery, rule: Rule) -> float:
        """Give it up for good; but a home that has lost a thread of ours may lack its disk."""
        if rule.reason == Meaning.NO_ROLLOUT and self._is_home_empty():
            thread = head.order.thread
            if await self._ledger.ask(lambda journal: journal.has_served(thread)):
                why = "the Codex home has no threads at all: it may not be mounted yet"
                return await self._hold(head, "no_threads", why)
        news = News(Fact.REFUSED, rule.reason, rule.why)
        await self._ledger.record(head.order.id, news, revision=head.standing.revision)
        return 0

    def _wish(self, head: Delivery) -> WhenBusy:
        """Say what to do with a running turn: only the one that was meant is interrupted.

        Whoever began another since did not ask for that (FIELD-REPORTS, openai/codex#40953).
        """
        wish = head.order.when_busy
        if wish is WhenBusy.INTERRUPT and self._interrupted is not None:
            delivery, turn = self._interrupted
            if delivery == head.order.id and turn != self._running():
                return WhenBusy.WAIT
        return wish

    def _running(self) -> TurnId | None:
        turn = self._watch.state.turn
        return turn.id if turn is not None else None

    def _is_home_empty(self) -> bool:
        """Say whether the server's home is here and holds nobody's thread: its disk may be away."""
        home = self._watch.session.greeting.codex_home
        if home is None or not os.path.isdir(home):
            return False
        sessions = os.path.join(home, "sessions")
        return not os.path.isdir(sessions) or not os.listdir(sessions)

    async def _begin(self) -> Attempt:
        self._watch.forget_subscription()
        if not self._holds or self._watch.state.turn is None:
            return Attempt()
        # What we wait for may have ended unseen: a definite answer heals a stale belief.
        return Attempt(fences=1, is_proved_quiet=await self._watch.fence())

    async def _ask(self, action: Action, attempt: Attempt) -> Attempt:
        if action is Action.RESUME:
            await self._watch.resume()
            return attempt._replace(resumes=attempt.resumes + 1)
        is_quiet = await self._watch.fence()
        return attempt._replace(fences=attempt.fences + 1, is_proved_quiet=is_quiet)

    async def _has_surfaced(self, head: Delivery) -> bool:
        """Say whether a read has shown the input; rows of before this life are looked up once."""
        order = head.order
        path = self._watch.path
        is_old = order.admitted_at_ms < self._began_ms
        if is_old and path is not None and order.id not in self._looked_up:
            self._looked_up.add(order.id)
            records = await self._watch.records()
            record = await self._ledger.ask(lambda _: search_records(records, order.id, order.text))
            for turn in [each.turn for each in record.sightings if each.is_equal]:
                why = f"the thread's record shows it in turn {turn or '(not named)'}"
                self._ledger.post(Echo(order.thread, turn or TurnId(""), order.id, order.text, why))
        return (await self._reload(head)).standing.phase is not Phase.QUEUED

    async def _send(
        self, head: Delivery, rule: Rule, attempt: Attempt, *, is_draining: anyio.Event
    ) -> tuple[Delivery, Attempt] | None:
        """Write ahead, send, and learn; None when this attempt is over."""
        if is_draining.is_set():
            return None
        turn = self._watch.state.turn
        steered = turn.id if turn is not None and rule.action is Action.STEER else None
        dispatch = await self._write_ahead(head, rule, attempt, steered)
        if dispatch is None:
            return None
        now = situation(self._watch.state, attempt, self._wish(head))
        if route(now).action is not rule.action or self._watch.state.turn != turn:
            # The thread has moved while the disk was busy, and not one byte is written yet.
            key = (dispatch.life, dispatch.generation, dispatch.number)
            why = "the thread moved before the request was written"
            self._ledger.post(Attempted(head.order.id, key, News(Fact.HELD, "moved", why)))
            await self._ledger.flush()
            return None
        refused = await self._call(head, dispatch)
        written = await self._reload(head)
        if written.standing.phase is not Phase.QUEUED:
            self._holds = 0
            return None
        understood = read_refusal(refused) if refused is not None else None
        if understood is None or not self._watch.learn(understood, steered):
            self._pause()
            return None
        is_quiet = understood.meaning is Meaning.NO_ACTIVE_TURN and self._watch.state.turn is None
        return written, attempt._replace(sends=attempt.sends + 1, is_proved_quiet=is_quiet)

    async def _write_ahead(
        self, head: Delivery, rule: Rule, attempt: Attempt, steered: TurnId | None
    ) -> Dispatch | None:
        """Make `pending` durable; None if the row has moved, and nothing may be sent."""
        watch, ledger = self._watch, self._ledger
        path, session = watch.path, watch.session
        size = await ledger.ask(lambda _: record_size(path))
        dispatch = Dispatch(
            route=str(rule.action),
            steered=steered,
            life=ledger.life,
            generation=session.generation,
            number=head.standing.revision + 1,
            peer=Peer(*session.peer) if session.peer else None,
            mark=Mark(watch.newest, path, size),
            trail=tuple(self._trail),
        )
        self._trail.clear()
        news = News(
            Fact.DISPATCHED,
            rule.reason,
            rule.why,
            turn=steered,
            attempt=head.standing.attempts + (0 if attempt.sends else 1),
            dispatch=encode_dispatch(dispatch),
        )
        written = await ledger.record(head.order.id, news, revision=head.standing.revision)
        return None if written is None else dispatch

    async def _call(self, head: Delivery, dispatch: Dispatch) -> Refused | None:
        """Send; what becomes of it is noted in the order of the wire. A refusal is returned."""
        key = (dispatch.life, dispatch.generation, dispatch.number)

        def note(answer: Answer) -> None:
            self._ledger.post(Attempted(head.order.id, key, read_answer(_started_turn(answer))))

        try:
            await self._watch.session.call(_input_call(head, dispatch), on_answer=note)
        except Refused as refused:
            return refused
        except LinkError:
            pass  # noted: not written, or in doubt
        return None

    async def _hold(self, head: Delivery, reason: str, why: str) -> float:
        """Leave it queued; a reason that stands already is not written again."""
        if head.standing.reason != reason:
            news = News(Fact.HELD, reason, why)
            await self._ledger.record(head.order.id, news, revision=head.standing.revision)
        return self._pause()

    def _pause(self) -> float:
        self._holds += 1
        pause_s = delay_s(self._holds, first=HELD_DELAY_S_FIRST, most=HELD_DELAY_S_MAX)
        self._not_before = anyio.current_time() + pause_s
        return pause_s

    async def _reload(self, head: Delivery) -> Delivery:
        await self._ledger.flush()
        return await self._ledger.ask(lambda journal: journal.delivery(head.order.id))


def _input_call(head: Delivery, dispatch: Dispatch) -> Call:
    order = head.order
    if dispatch.steered is None:
        return start_turn(order.thread, order.id, order.text)
    return steer_turn(order.thread, dispatch.steered, order.id, order.text)


def _started_turn(answer: Answer) -> TurnId | CodexdrvError:
    if not isinstance(answer, Response):
        return answer
    try:
        return read_started_turn(answer.result)
    except MalformedMessage as error:
        return error
