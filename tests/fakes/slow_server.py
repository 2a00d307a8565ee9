"""The fake server as slow as the real one: what comes waits in a queue, and happens later.

WIRE-FACTS, "What an answer proves, and what it does not": requests wait per thread, first in first
out over all connections; those of a closed connection that have not begun never begin, and what
has begun goes on without it. It can be killed, stopped, drained, overloaded and started again. How
long anything takes is drawn from the chance that it is given, in seconds of the loop's time.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import anyio
from anyio.abc import TaskGroup

from codexdrv.wire.message import Request, decode
from tests.fakes.server import DRAINING, OVERLOADED, FakeServer, ServerDied
from tests.fakes.threads import FakeThread, FakeTurn, Kind, user_message


QUEUED = frozenset(
    {"thread/resume", "thread/unsubscribe", "turn/interrupt", "turn/start", "turn/steer"}
)
"""What waits in the thread's queue; reads do not."""
REFUSED_WHILE_DRAINING = frozenset({"thread/resume", "turn/start", "turn/steer"})
AGAIN_S = 1.0
"""How often a turn that is held looks whether it may end."""


class Entry:
    """A request in a thread's queue."""

    def __init__(self, connection, request):
        self.connection = connection
        self.request = request
        self.is_begun = False

    @property
    def client_id(self):
        return self.request.params.get("clientUserMessageId")

    @property
    def may_come(self):
        # "Those of a closed connection that have not begun never begin."
        return self.is_begun or not self.connection.is_dropped


class SlowServer(FakeServer):
    """One place for threads, and the server processes that serve them one after the other."""

    def __init__(self, home: Path, *, tasks: TaskGroup, chance: Random):
        super().__init__(home)
        self.sessions = home / "sessions" / "2027" / "01" / "15"
        self.sessions.mkdir(parents=True)
        self.is_up = True
        self.is_draining = False
        #: Of so many requests in a hundred it says that it is overloaded.
        self.overload = 0
        #: By thread: until then its database is locked (WIRE-FACTS, "Status lags").
        self.locked_until: dict[str, float] = {}
        #: Inputs that were taken and are in no turn yet: the id, and the turn that is to begin.
        self.coming: list[tuple[str | None, FakeTurn]] = []
        #: Called when the process has ended.
        self.on_end: Callable[[], None] = lambda: None
        self._tasks = tasks
        self._chance = chance
        self._life = 1
        self._queues: dict[str, deque[Entry]] = {}
        self._continued: anyio.Event | None = None
        self._unread: list[tuple] = []

    # What a world does.

    def start(self) -> None:
        self.is_up, self.is_draining = True, False

    def stop(self) -> None:
        """Stop as by SIGSTOP: what is sent to it waits."""
        if self.is_up and self._continued is None:
            self._continued = anyio.Event()

    def proceed(self) -> None:
        """Go on as by SIGCONT."""
        if self._continued is not None:
            self._continued.set()
            self._continued = None
            unread, self._unread = self._unread, []
            for connection, frame in unread:
                self.receive(connection, frame)

    def drain(self) -> None:
        """End as by SIGTERM: the turns that run are finished first."""
        if self.is_up:
            self.is_draining = True
            self.later(0.0, self._end_when_quiet)

    def die(self) -> None:
        """End as by SIGKILL."""
        if not self.is_up:
            return
        for connection in sorted(self.connections, key=lambda met: met.number):
            if self._chance.random() < 0.5:
                connection.forget()
        super().die()
        self._life += 1
        self.is_up = self.is_draining = False
        self._queues.clear()
        self.coming.clear()
        self._unread.clear()
        self.proceed()
        self.on_end()

    def start_compaction(self, thread: FakeThread, seconds: float) -> None:
        """Do as `thread/compact/start`; right behind it 0.144.5 says that the thread is quiet."""
        if thread.is_loaded and thread.running is None:
            self.later(0.03 if self.is_old else 0.0, lambda: self._compact(thread, seconds))

    def revert(self, thread: FakeThread, before: FakeTurn) -> None:
        """Do as `thread/revert`, or on 0.144.5 as `thread/rollback`, which keeps the file."""
        if self.is_old:
            thread.turns = thread.turns[: thread.turns.index(before)]
            return
        thread.revert(before)
        thread.is_loaded = False
        self.tell_status(thread)
        thread.is_loaded = True
        self.tell(thread, "thread/reverted")
        self.tell_status(thread)

    def may_come(self, client_id: str) -> bool:
        """Say whether an input is on its way in here, or in the queue."""
        entries = [entry for queue in self._queues.values() for entry in queue]
        steers = [
            item
            for thread in self.threads.values()
            if thread.running
            for item in thread.running.steers
        ]
        return (
            any(entry.client_id == client_id and entry.may_come for entry in entries)
            or any(item["clientId"] == client_id for item in steers)
            or any(
                f'"{client_id}"'.encode() in frame and not connection.is_dropped
                for connection, frame in self._unread
            )
            # An interrupt ends a turn that nobody else knew, and nothing comes of it.
            or any(name == client_id and turn.status == "inProgress" for name, turn in self.coming)
        )

    # What a connection does.

    def receive(self, connection, frame) -> None:
        if self._continued is not None:
            self._unread.append((connection, frame))
            return
        request = decode(frame)
        thread = request.params.get("threadId") if isinstance(request, Request) else None
        is_queued = isinstance(request, Request) and request.method in QUEUED
        if not is_queued or thread not in self.threads or connection.is_dropped:
            super().receive(connection, frame)
            return
        queue = self._queues.get(thread)
        if queue is None:
            queue = self._queues[thread] = deque()
            self._tasks.start_soon(self._work, self._life, thread, queue)
        queue.append(Entry(connection, request))

    async def _work(self, life: int, thread: str, queue: deque[Entry]) -> None:
        while queue:
            entry = queue[0]
            if not await self._pass_time(self._queue_s(), life):
                return
            entry.is_begun = not entry.connection.is_dropped
            if entry.is_begun:
                if not await self._pass_time(self._work_s(), life):
                    return
                with suppress(ServerDied):
                    self.take(entry.connection, entry.request)
            if life != self._life:
                return
            queue.popleft()
        del self._queues[thread]

    def _carry_out(self, connection, request):
        if self.overload and self._chance.randrange(100) < self.overload:
            raise OVERLOADED
        if self.is_draining and not self.is_old and request.method in REFUSED_WHILE_DRAINING:
            raise DRAINING
        return super()._carry_out(connection, request)

    # What happens later.

    def take_start(self, thread, text, *, client_id, turn) -> None:
        item = user_message(client_id, text)
        delay_s = max(
            self._chance.uniform(0.001, 0.03),
            self.locked_until.get(thread.id, 0.0) - anyio.current_time(),
        )
        self.coming.append((client_id, turn))
        if self.is_old and self._chance.random() < 0.5 and delay_s <= 0.03:
            # Behind a fence that says quiet (WIRE-FACTS, "The fence tells the truth").
            self.later(delay_s, lambda: self._arrive(thread, turn, item))
            return
        # The session runs it already, and nobody else knows.
        turn.is_hidden = True
        thread.turns.append(turn)
        self.later(delay_s, lambda: self._reveal(thread, turn, item))

    def take_burst(self, thread, turn, item) -> None:
        new = FakeTurn()
        self.coming.append((item["clientId"], new))
        self.later(self._work_s(), lambda: self._arrive(thread, new, item))

    def take_steer(self, thread, turn, item) -> None:
        turn.steers.append(item)
        self.later(self._work_s(), lambda: self._take_steers(thread, turn))

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Do something after a while, unless the process has ended by then."""
        self._tasks.start_soon(self._do_later, self._life, delay_s, work)

    async def _do_later(self, life, delay_s, work) -> None:
        if await self._pass_time(delay_s, life):
            with suppress(ServerDied):
                work()

    async def _pass_time(self, seconds: float, life: int) -> bool:
        """Wait, and while it is stopped; say whether the process still lives."""
        await anyio.sleep(seconds)
        while self._continued is not None:
            await self._continued.wait()
        return life == self._life

    def _arrive(self, thread, turn, item) -> None:
        """Put an input into the turn that runs, or begin one with it."""
        running = thread.running
        if running is None:
            if thread.is_loaded:
                thread.turns.append(turn)
                self._reveal(thread, turn, item)
                return
        elif running.kind is Kind.REGULAR and not running.is_hidden:
            self.coming.remove((item["clientId"], turn))
            self.put(thread, running, item)
            return
        elif running.is_hidden:
            self.later(AGAIN_S, lambda: self._arrive(thread, turn, item))
            return
        # A compaction began in between, or the thread was unloaded: swallowed.
        self.coming.remove((item["clientId"], turn))

    def _reveal(self, thread, turn, item) -> None:
        turn.is_hidden = False
        if thread.running is not turn:
            self.coming.remove((item["clientId"], turn))
            return
        self.tell_status(thread)
        self.tell(thread, "turn/started", turn=turn.shape())
        self.later(self._work_s(), lambda: self._put_first(thread, turn, item))

    def _put_first(self, thread, turn, item) -> None:
        self.coming.remove((item["clientId"], turn))
        if thread.running is not turn:
            return
        if not thread.blocks_input:
            self.put(thread, turn, item)
        self.later(self._turn_s(), lambda: self._end_turn(thread, turn))

    def _take_steers(self, thread, turn) -> None:
        if thread.running is not turn or thread.holds_steers:
            return
        if turn.is_hidden:
            self.later(AGAIN_S, lambda: self._take_steers(thread, turn))
        else:
            self.take_steers(thread)

    def _end_turn(self, thread, turn) -> None:
        if thread.running is not turn:
            return
        if thread.holds_turns or (thread.holds_steers and turn.steers):
            self.later(AGAIN_S, lambda: self._end_turn(thread, turn))
            return
        self.take_steers(thread)
        self.finish(thread)

    def _compact(self, thread, seconds) -> None:
        if thread.is_loaded and thread.running is None:
            turn = self.compact(thread)
            self.later(seconds, lambda: thread.running is turn and self.finish(thread))

    def _end_when_quiet(self) -> None:
        if any(thread.running for thread in self.threads.values()) or self._queues:
            self.later(AGAIN_S, self._end_when_quiet)
        else:
            self.die()

    def _queue_s(self) -> float:
        return self._chance.choice((0.0, 0.0, 0.0005, 0.002, 0.02))

    def _work_s(self) -> float:
        # Some of what had begun was seen 25 to 260 ms later ("A dropped connection …").
        return self._chance.choice((0.0, 0.001, 0.001, 0.005, 0.026, 0.26))

    def _turn_s(self) -> float:
        return self._chance.choice((0.0, 0.1, 0.5, 2.0, 8.0))
