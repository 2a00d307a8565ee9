"""A server in memory, made of our own wire code: it keeps threads, and a test bends its answers.

Sentences and orders are those of WIRE-FACTS (0.171 where versions differ). Everything happens at
once and in place, so that an answer and all that follows it leave in one write; what is to come
later, a test lets happen with the methods of `FakeServer`.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from codexdrv.errors import Refused
from codexdrv.wire.message import Notification, Refusal, Request, Response, decode
from tests.fakes.connection import Connection
from tests.fakes.methods import METHODS, NeverAnswered, nothing
from tests.fakes.threads import FakeThread, FakeTurn, Kind, mint, text_of, user_message


OVERLOADED = Refused(-32001, "Server overloaded; retry later.")
DRAINING = Refused(
    -32600, "Server is draining; retry after reconnecting", {"reason": "serverShuttingDown"}
)
TOO_LARGE = Refused(
    -32602, "Input exceeds the maximum length.", {"input_error_code": "input_too_large"}
)
NOT_SUPPORTED = Refused(-32601, "list_turns is not supported yet")
UNHEARD_OF = Refused(-32603, "the sky is falling")
UNSAVED = "Failed to save the conversation transcript; Codex will continue retrying"


class Reply(StrEnum):
    NOW = "now"
    #: When the test calls `release`.
    LATE = "late"
    NEVER = "never"


class Drop(StrEnum):
    """When the server closes the connection, seen from the answer."""

    BEFORE = "before"
    AFTER = "after"


class Stage(StrEnum):
    """How far an input is on its way into a turn; the server can be killed at each."""

    #: Behind `item/started`; nothing is written.
    STARTED = "started"
    #: Between the two lines of the record.
    HALF = "half"
    #: Both lines are written, and nobody is told.
    WRITTEN = "written"


class ServerDied(Exception):
    """The server was killed in the middle of what it did."""


class Twist(NamedTuple):
    """How one request is treated otherwise than it would be."""

    refusal: Refused | None = None
    #: In place of what it would be.
    result: object = None
    reply: Reply = Reply.NOW
    #: If not, it is answered and nothing comes of it.
    is_carried_out: bool = True
    drop: Drop | None = None


class FakeServer:
    """All threads, all connections."""

    def __init__(self, home: Path):
        # Somebody's threads are there: a home without any is one whose disk is away.
        (home / "sessions" / "2027").mkdir(parents=True, exist_ok=True)
        self.home = home
        #: Where new threads have their records.
        self.sessions = home
        self.threads: dict[str, FakeThread] = {}
        self.connections: set[Connection] = set()
        #: Every request that came, in order.
        self.requests: list[Request] = []
        #: Called with each request when it comes, before anything is done about it.
        self.on_request: Callable[[Request], None] = lambda _: None
        #: By method: called once, right behind the next answer and all that follows it.
        self.on_follow: dict[str, Callable[[], object]] = {}
        #: Called when the model is shown an input: thread, client id, text.
        self.on_shown: Callable[[FakeThread, str | None, str], None] = lambda *_: None
        #: Called when a kill has taken a turn out of a thread's history.
        self.on_shortened: Callable[[FakeThread], None] = lambda _: None
        #: Called when a kill cuts an input short: stage, thread, text.
        self.on_cut: Callable[[Stage, FakeThread, str], None] = lambda *_: None
        #: Called when a kill has made the server forget an input that was never written.
        self.on_forgotten: Callable[[FakeThread, str | None], None] = lambda *_: None
        #: As 0.144.5, where it differs.
        self.is_old = False
        #: It is killed the next time that an input gets so far.
        self.dies_at: Stage | None = None
        self._met = 0
        self._twists: dict[str, deque[Twist]] = {}
        self._held: list[Callable[[], None]] = []

    # What a test does.

    def add_thread(self, *, is_used=True, **flags) -> FakeThread:
        identity = mint()
        thread = FakeThread(identity, self.sessions / f"rollout-{identity}.jsonl", **flags)
        self.threads[identity] = thread
        if is_used:
            turn = FakeTurn(status="completed", items=[user_message(None, "hello")])
            thread.turns.append(turn)
            thread.record(turn, turn.items[0])
        return thread

    def twist(self, method: str, **changes) -> None:
        """Treat the next request of this method otherwise; several queue up."""
        self._twists.setdefault(method, deque()).append(Twist(**changes))

    def refuse(self, method: str, refusal: Refused) -> None:
        self.twist(method, refusal=refusal)

    def release(self) -> None:
        """Send the answers that were to come late."""
        held, self._held = self._held, []
        for send in held:
            send()

    def sent(self, method: str) -> list[dict]:
        """Say with what params a method was called; a fence is no steer here."""
        return [
            request.params
            for request in self.requests
            if request.method == method and request.params.get("input") != []
        ]

    @property
    def fences(self) -> int:
        return sum(request.params.get("input") == [] for request in self.requests)

    def take_start(self, thread, text, *, client_id, turn) -> None:
        """Follow a `turn/start` that found the thread quiet."""
        self.begin(thread, text, client_id=client_id, turn=turn)

    def take_burst(self, thread, turn, item) -> None:
        """Follow a `turn/start` that found a turn running: its text goes there."""
        self.put(thread, turn, item)

    def take_steer(self, thread, turn, item) -> None:
        """Follow a `turn/steer`."""
        turn.steers.append(item)
        if not thread.holds_steers:
            self.take_steers(thread)

    def begin(self, thread, text="hello", *, client_id=None, turn=None) -> FakeTurn:
        """Start a turn, as any client may."""
        turn = turn or FakeTurn()
        thread.turns.append(turn)
        self.tell_status(thread)
        self.tell(thread, "turn/started", turn=turn.shape())
        if not thread.blocks_input:
            self.put(thread, turn, user_message(client_id, text))
        if not thread.holds_turns:
            self.finish(thread)
        return turn

    def compact(self, thread) -> FakeTurn:
        turn = FakeTurn(kind=Kind.COMPACT)
        thread.turns.append(turn)
        self.tell_status(thread)
        self.tell(thread, "turn/started", turn=turn.shape())
        item = {"type": "contextCompaction", "id": mint()}
        turn.items.append(item)
        self.tell_item(thread, turn, "item/started", item)
        return turn

    def review(self, thread) -> FakeTurn:
        turn = FakeTurn(kind=Kind.REVIEW)
        thread.turns.append(turn)
        item = {"type": "enteredReviewMode", "id": mint(), "review": "hello"}
        self.tell_item(thread, turn, "item/started", item)
        self.tell_item(thread, turn, "item/completed", item)
        self.tell_status(thread)
        # Not the review's own id, by which alone it can be steered and ends.
        self.tell(thread, "turn/started", turn=turn.shape() | {"id": mint()})
        return turn

    def put(self, thread, turn, item) -> None:
        """Put a user message into a turn: told, recorded, in history."""
        self.tell_item(thread, turn, "item/started", item)
        self._pass(Stage.STARTED, thread, item)
        self.on_shown(thread, item["clientId"], text_of(item))
        thread.record_input(turn, item)
        self._pass(Stage.HALF, thread, item)
        thread.record_event(turn, item)
        turn.items.append(item)
        self._pass(Stage.WRITTEN, thread, item)
        self.tell_item(thread, turn, "item/completed", item)
        if not thread.writes_record:
            # WIRE-FACTS, "`item/completed` is not storage either".
            self.tell(thread, "warning", message=UNSAVED)

    def _pass(self, stage: Stage, thread, item) -> None:
        if self.dies_at is stage:
            self.dies_at = None
            self.on_cut(stage, thread, text_of(item))
            self.die()
            raise ServerDied

    def take_steers(self, thread) -> None:
        """Let the steers that wait become items of the running turn."""
        turn = thread.running
        steers, turn.steers = turn.steers, []
        for item in steers:
            self.put(thread, turn, item)

    def finish(self, thread, status="completed") -> None:
        """End the running turn."""
        turn = thread.running
        turn.status = status
        if turn.kind is Kind.COMPACT:
            thread.record_compaction()
        if turn.kind is Kind.REGULAR and status == "completed" and turn.items:
            item = {"type": "agentMessage", "id": mint(), "text": "echo"}
            turn.items.append(item)
            self.tell_item(thread, turn, "item/completed", item)
        self.tell_status(thread)
        self.tell(thread, "turn/completed", turn=turn.shape())

    def unload(self, thread) -> None:
        thread.is_loaded = False
        self.tell_status(thread)
        self.tell(thread, "thread/closed")
        thread.subscribers.clear()

    def tell(self, thread, method, **params) -> None:
        """Notify the subscribers of a thread."""
        told = () if thread.is_mute else thread.subscribers
        for connection in sorted(told, key=_number):
            connection.send(Notification(method, {"threadId": thread.id} | params))

    def drop_all(self) -> None:
        """Close every connection; what is on its way is still sent."""
        for connection in sorted(self.connections, key=_number):
            self.drop(connection)

    def die(self) -> None:
        """End as by SIGKILL and come back: no connection, nothing loaded, turns cut."""
        self.drop_all()
        for thread in self.threads.values():
            thread.is_loaded = False
            for turn, item in thread.unsaved:
                turn.items = [kept for kept in turn.items if kept is not item]
                self.on_forgotten(thread, item["clientId"])
            thread.unsaved.clear()
            if thread.running:
                thread.running.steers.clear()
                thread.running.status = "interrupted"
            # Of a turn that only the queue knew, nothing was written.
            kept = [turn for turn in thread.turns if not turn.is_hidden]
            if len(kept) < len(thread.turns):
                self.on_shortened(thread)
            thread.turns = kept
            if thread.lags_cold and thread.turns:
                thread.unseen = {item["id"] for item in thread.turns[-1].items}

    # What a connection does.

    def connect(self) -> Connection:
        self._met += 1
        connection = Connection(self._met)
        self.connections.add(connection)
        return connection

    def receive(self, connection: Connection, frame: bytes) -> None:
        """Take a frame: a request is carried out and answered, all else is ignored."""
        request = decode(frame)
        if not isinstance(request, Request) or connection.is_dropped:
            return
        with suppress(ServerDied):
            self.take(connection, request)

    def take(self, connection: Connection, request: Request) -> None:
        """Carry a request out and answer it."""
        self.requests.append(request)
        self.on_request(request)
        twists = self._twists.get(request.method)
        twist = twists.popleft() if twists else Twist()
        answer, follow = self._answer(connection, request, twist)
        if twist.drop is Drop.BEFORE:
            self.drop(connection)
        self._reply(connection, answer, twist.reply)
        if twist.drop is Drop.AFTER:
            self.drop(connection)
        if twist.is_carried_out:
            follow()
        self.on_follow.pop(request.method, nothing)()

    def _answer(self, connection, request, twist):
        try:
            if twist.refusal is not None:
                raise twist.refusal
            result, follow = self._carry_out(connection, request)
        except Refused as refused:
            refusal = Refusal(request.id, refused.rpc_code, refused.message, refused.data)
            return refusal, nothing
        except NeverAnswered:
            return None, nothing
        return Response(request.id, twist.result or result), follow

    def _reply(self, connection, answer, reply):
        match reply:
            case _ if answer is None:
                pass
            case Reply.NOW:
                connection.send(answer)
            case Reply.LATE:
                self._held.append(lambda: connection.send(answer))
            case Reply.NEVER:
                pass

    def _carry_out(self, connection, request):
        method, params = request.method, request.params
        if method == "initialize":
            return self._greet(connection)
        if not connection.is_greeted:
            raise Refused(-32600, "Not initialized")
        carry_out = METHODS.get(method)
        if carry_out is None:
            raise Refused(-32600, f"Invalid request: unknown variant `{method}`, expected one of …")
        return carry_out(self, connection, params)

    def _greet(self, connection):
        if connection.is_greeted:
            raise Refused(-32600, "Already initialized")
        connection.is_greeted = True
        version = "0.144.5" if self.is_old else "0.171.0"
        agent = f"codexdrv/{version} (fake)"
        return {"userAgent": agent, "codexHome": str(self.home)}, nothing

    def drop(self, connection) -> None:
        connection.drop()
        self.connections.discard(connection)
        for thread in self.threads.values():
            thread.subscribers.discard(connection)

    def tell_status(self, thread) -> None:
        params = {"threadId": thread.id, "status": thread.status}
        for connection in sorted(self.connections, key=_number):
            connection.send(Notification("thread/status/changed", params))

    def tell_item(self, thread, turn, method, item) -> None:
        self.tell(thread, method, turnId=turn.id, item=item)


def _number(connection: Connection) -> int:
    return connection.number
