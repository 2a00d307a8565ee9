"""The laws: what must hold after each step, and at the end, whatever has happened."""

from codexdrv.ids import DeliveryId
from codexdrv.journal.dispatch import decode_dispatch
from codexdrv.rules.lifecycle import OPERATOR, Delivery, Outcome
from codexdrv.rules.ownership import TERMINAL, Fact, Phase, advance
from codexdrv.wire.message import Request, decode


class LawBroken(Exception):
    """A law does not hold: which, and what was seen."""

    def __init__(self, law: str, words: str) -> None:
        super().__init__(f"{law}: {words}")
        self.law = law


_ON_ITS_WAY = frozenset({Phase.PENDING, Phase.UNCERTAIN})
_NOT_THERE = frozenset({Phase.QUEUED, Phase.FAILED})
_OPERATOR = frozenset({Fact.RESOLVED_ABSENT, Fact.RESOLVED_FAILED, Fact.RESOLVED_SURFACED})


class Laws:
    """Looks at the journal and at the truth beside it."""

    def __init__(self, world):
        self._world = world
        self._serial = 0
        self._phases: dict[str, Phase] = {}
        self._parked: set[str] = set()
        #: By thread: the position of the newest input that the model was shown in its turn.
        self._newest: dict[str, tuple[int, str]] = {}

    def require(self, claim: bool, law: str, words: str) -> None:
        if not claim:
            self._world.fail(LawBroken(law, words))

    def check_shown(self, thread, client_id) -> None:
        """Look when the model was shown an input: at most one copy, in order."""
        truth = self._world.truth
        copies = truth.copies[client_id] - truth.forgotten[client_id]
        self.require(
            copies <= 1, "at most one copy", f"{client_id} reached the model {copies} times"
        )
        if truth.copies[client_id] > 1 or client_id in self._parked:
            return
        seq = self._world.caller.delivery(DeliveryId(client_id)).order.seq
        newest, other = self._newest.get(thread.id, (0, ""))
        words = f"{client_id} reached the model behind {other}, which was admitted later"
        self.require(newest < seq, "order is kept", words)
        self._newest[thread.id] = (seq, client_id)

    def check_write(self, life, data: bytes) -> None:
        """Look at what is about to be written: no input before its row says so."""
        for line in data.split(b"\n"):
            if b'"clientUserMessageId"' not in line:
                continue
            request = decode(line)
            assert isinstance(request, Request)
            name = request.params["clientUserMessageId"]
            standing = self._world.caller.delivery(DeliveryId(name)).standing
            is_ahead = (
                standing.phase is Phase.PENDING
                and standing.dispatch is not None
                and decode_dispatch(standing.dispatch).life == life.number
            )
            words = f"{name} is written to the wire while its row says {standing.phase}"
            self.require(is_ahead, "write ahead", words)

    def check_journal(self) -> None:
        """Look at the facts that were committed since the last time."""
        database = self._world.caller._database
        rows = database.execute(
            "SELECT serial, delivery, fact, reason, life,"
            " (SELECT max(life) FROM lives) FROM facts WHERE serial > ? ORDER BY serial",
            (self._serial,),
        ).fetchall()
        for serial, name, fact, reason, life, newest in rows:
            self._serial = serial
            before = self._phases.get(name, Phase.QUEUED)
            after = advance(before, Fact(fact))
            assert isinstance(after, Phase)
            self._phases[name] = after
            because = f" ({reason})" if reason else ""
            self._world.say(f"{name}: {fact}{because}, {before} -> {after}")
            self.require(
                life in {None, newest},
                "an older life writes nothing",
                f"life {life} wrote {fact} of {name} after life {newest} had begun",
            )
            self._check_fact(name, Fact(fact), before, after)

    def _check_fact(self, name: str, fact: Fact, before: Phase, after: Phase) -> None:
        truth = self._world.truth
        if before in TERMINAL and after is not before:
            words = f"{name} went from {before} to {after} by {fact}"
            is_right = after is Phase.SURFACED or fact in _OPERATOR
            self.require(is_right, "what has ended stays so, or surfaces", words)
        if fact is Fact.PARKED:
            self._parked.add(name)
        if fact in _OPERATOR:
            self._parked.add(name)  # a human hand keeps no order
            return
        if before in _ON_ITS_WAY and after in _NOT_THERE:
            words = f"{fact} of {name} says that it is not there, and it "
            self.require(not truth.is_in_thread(name), "no absence without proof", words + "is")
            self.require(
                not truth.may_come(name), "no absence without proof", words + "may still come"
            )
        if fact is Fact.SURFACED:
            words = f"{name} surfaced, and never reached the model"
            is_there = truth.copies[name] > 0 or self._is_ghost(name)
            self.require(is_there, "surfaced is true", words)
        if fact is Fact.STORED:
            thread = self._world.caller.delivery(DeliveryId(name)).order.thread
            words = f"{name} is stored, and no record shows it"
            is_stored = truth.is_recorded(thread, name) or self._is_ghost(name)
            self.require(is_stored, "stored is true", words)

    def _is_ghost(self, name: str) -> bool:
        """Say whether it was taken for a line without an id, which has its text.

        The line may be another client's, if that said the same in the same turn: a limit of what
        can be known, since nothing but the id would tell the two apart.
        """
        order, standing = self._world.caller.delivery(DeliveryId(name))
        return standing.reason == "ghost" and (order.thread, order.text) in self._world.truth.ghosts

    # The end.

    def check_end(self) -> None:
        """Look at what became of everything, long after the faults have ended."""
        truth = self._world.truth
        for order, standing in self._world.caller.deliveries():
            self.require(
                self.is_over(Delivery(order, standing)),
                "everything settles when faults end",
                f"{order.id} is {standing.phase} ({standing.reason}), stored={standing.stored},"
                f" outcome={standing.outcome}: {standing.why}",
            )
            if standing.phase in {Phase.FAILED, Phase.CANCELLED}:
                words = f"{order.id} is {standing.phase}, and reached the model"
                self.require(not truth.is_in_thread(order.id), "what failed is not there", words)

    def is_over(self, delivery: Delivery) -> bool:
        """Say whether nothing more is due; what was lost for good can never be read back."""
        order, standing = delivery
        if standing.phase is not Phase.SURFACED:
            return standing.phase in TERMINAL
        if standing.reason == OPERATOR:
            return True
        can_be_stored = self._world.truth.is_recorded(order.thread, order.id)
        return standing.outcome is not Outcome.RUNNING and (standing.stored or not can_be_stored)
