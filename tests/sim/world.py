"""The world of one run: a server, its host, callers, and the driver, life after life."""

from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random

import anyio

from codexdrv.config import Config, Limits, Server, State
from codexdrv.connect import Connection
from codexdrv.engine.surroundings import Surroundings
from codexdrv.errors import NoServer
from codexdrv.ids import DeliveryId, ThreadId
from codexdrv.journal.dispatch import Peer, decode_dispatch
from codexdrv.journal.journal import Journal
from codexdrv.rules.lifecycle import OPERATOR, News, Order, WhenBusy
from codexdrv.rules.ownership import Fact, Phase
from codexdrv.transport.channel import Channel
from tests.fakes.connection import serve_lines
from tests.fakes.line_framing import LineFraming
from tests.fakes.server import Stage
from tests.fakes.slow_server import SlowServer
from tests.fakes.streams import open_pair
from tests.sim.clock import wall_clock_ms
from tests.sim.laws import LawBroken, Laws
from tests.sim.life import Life
from tests.sim.processes import Processes
from tests.sim.truth import Truth


LIMITS = Limits(poll_s=5.0)
SETTLE_S_MAX = 7200.0
"""Far longer than any pause of the engine; virtual."""


class Steps:
    """Counts what the driver does that can be its last; a bomb goes off at its step."""

    def __init__(self, say):
        self.count = 0
        self.bombs = {}
        self._say = say

    def tick(self, life, name):
        self.count += 1
        bomb = self.bombs.pop(self.count, None)
        if bomb is not None:
            self._say(f"step {self.count} of life {life.number}, {name}:")
            bomb(life)


class Link:
    """One connection between a life and a server."""

    def __init__(self, life):
        self.life = life
        self.ours, self.theirs = open_pair()
        #: How the next write that carries an input breaks the link: before, during, after.
        self.breaks = None

    @contextmanager
    def writing(self, data):
        how = self.breaks if b'"clientUserMessageId"' in data else None
        if how is not None:
            self.breaks = None
        if how == "before":
            self.ours.breaks_after = 0
        elif how == "during":
            self.ours.breaks_after = len(data) // 2
        yield
        if how == "after":
            self.ours.cut()

    @property
    def on_its_way(self):
        """What the server will still read."""
        return b"" if self.theirs.is_closed else self.ours.unread


class World:
    """Everything there is; deterministic by its seed."""

    def __init__(self, seed, directory: Path, tasks, *, is_old=False, knows_peer=True):
        self.seed = seed
        self.tasks = tasks
        self.chance = Random(seed)
        self.transcript: list[str] = []
        self.broken: LawBroken | None = None
        self.steps = Steps(self.say)
        self.laws, self.truth = Laws(self), Truth(self)
        self.state = str(directory / "state")
        self.caller = Journal(self.state)
        self.caller._database.execute("PRAGMA synchronous = OFF")
        self.processes = Processes()
        self.server = SlowServer(directory / "home", tasks=tasks, chance=Random(seed + 1))
        self.server.is_old = is_old
        self.server.on_shown = self._note_shown
        self.server.on_forgotten = self._note_forgotten
        self.server.on_cut = self._note_cut
        self.server.on_shortened = lambda thread: self.truth.shortened.add(thread.id)
        self.server.on_end = self._note_end
        self.server.on_request = self._note_request
        self.process = self.processes.start()
        self.knows_peer = knows_peer
        #: Of the file system of the records.
        self.has_room = True
        self.links: list[Link] = []
        self.life: Life | None = None
        #: A killed driver comes back after that long.
        self.restart_s = 0.1
        home = str(self.server.home)
        self.config = Config(Server("/nowhere", home), State(self.state), LIMITS, {}, None)
        self.surroundings = Surroundings(
            self.processes.fate_of, self._is_sole_writer, lambda _path: self.has_room
        )
        self.is_healed = False

    def say(self, words: str) -> None:
        self.transcript.append(f"{anyio.current_time():10.3f}  {words}")

    def fail(self, broken: LawBroken) -> None:
        """Note the first law that does not hold, and end the run."""
        if self.broken is None:
            self.broken = broken
            self.say(f"BROKEN: {broken}")
            self.tasks.cancel_scope.cancel()

    # Callers.

    def admit(self, name, thread, text="hello", when_busy=WhenBusy.STEER) -> None:
        order = Order(
            DeliveryId(name), ThreadId(thread.id), None, None, text, when_busy, 0, wall_clock_ms()
        )
        self.say(f"admit {name} to {thread.id[-4:]}: {text!r}, {when_busy}")
        self.caller.admit(order)
        self.ring()

    def cancel(self, name) -> None:
        _, too_late = self.caller.cancel(DeliveryId(name), now_ms=wall_clock_ms())
        self.say(f"cancel {name}: {too_late or 'done'}")
        self.laws.check_journal()

    def resolve(self, delivery) -> None:
        """Be the operator, who knows the truth and is asked where nothing can be proved."""
        order, standing = delivery
        is_there = self.truth.is_in_thread(order.id)
        fact = Fact.RESOLVED_SURFACED if is_there else Fact.RESOLVED_ABSENT
        self.caller.resolve(
            order.id, News(fact, OPERATOR), revision=standing.revision, now_ms=wall_clock_ms()
        )
        self.laws.check_journal()
        self.ring()

    def ring(self) -> None:
        if self.life is not None and self.life.driver is not None and not self.life.is_frozen:
            self.life.driver.ring()

    # The driver.

    def begin_life(self) -> None:
        self.life = Life(self)
        self.tasks.start_soon(self._live, self.life)

    async def _live(self, life) -> None:
        await life.run()
        await anyio.sleep(self.restart_s)
        if life is self.life:
            self.begin_life()

    @asynccontextmanager
    async def connect(self, life):
        await anyio.lowlevel.checkpoint()
        if not self.server.is_up:
            raise NoServer("No server listens.")
        link = Link(life)
        self.links.append(link)
        self.tasks.start_soon(self._serve, link)
        peer = self.process if self.knows_peer else None
        stream = life.wrap(link)
        try:
            yield Connection(Channel(stream, LineFraming()), peer, self.process.pid)
        finally:
            link.ours.cut()

    async def _serve(self, link) -> None:
        await serve_lines(self.server, link.theirs)
        self.links.remove(link)

    # The server and its host.

    def start_server(self, pid=None) -> None:
        if not self.server.is_up:
            self.process = self.processes.start(pid)
            self.server.start()
            self.say(f"the server starts, pid {self.process.pid}")

    def _note_end(self) -> None:
        self.processes.end(self.process.pid)
        self.say(f"the server has ended, pid {self.process.pid}")

    def _note_shown(self, thread, client_id, text) -> None:
        self.say(f"the model of {thread.id[-4:]} is shown {client_id}: {text!r}")
        self.truth.show(thread, client_id, text)
        if client_id is not None and not client_id.startswith("guest"):
            self.laws.check_shown(thread, client_id)

    def _note_cut(self, stage, thread, text) -> None:
        self.say(f"the server is killed, {text!r} is {stage} in {thread.id[-4:]}")
        if stage is Stage.HALF and thread.writes_record:
            self.truth.ghosts.add((thread.id, text))

    def _note_forgotten(self, thread, client_id) -> None:
        self.say(f"{client_id} is forgotten in {thread.id[-4:]}")
        self.truth.forget(client_id)
        self.truth.shortened.add(thread.id)

    def _note_request(self, request) -> None:
        if request.method.startswith("turn/"):
            name = request.params.get("clientUserMessageId", "fence")
            self.say(f"the server takes {request.method} {name}")

    def _is_sole_writer(self, _path, server) -> bool:
        # One server process at a time has the threads of this home open.
        return server is None or (server.pid == self.process.pid and self.server.is_up)

    # The end.

    def heal(self) -> None:
        """End all faults."""
        self.say("all faults end")
        self.steps.bombs.clear()
        server = self.server
        server.proceed()
        server.dies_at, server.overload = None, 0
        server.locked_until.clear()
        self.has_room = True
        for thread in server.threads.values():
            thread.holds_turns = thread.holds_steers = thread.blocks_input = False
            thread.is_archived = thread.is_held_elsewhere = thread.lags_cold = False
            thread.save()
        for link in self.links:
            link.breaks = None
        if server.is_draining:
            server.die()
        self.start_server()
        if self.life is not None:
            self.life.unfreeze()
        self.is_healed = True

    async def settle(self) -> None:
        """Wait until nothing more is due, then look at all that has become of it.

        The operator is asked where nothing can be proved.
        """
        began = anyio.current_time()
        pause_s = 1.0
        while (open_ones := self._open()) and anyio.current_time() - began < SETTLE_S_MAX:
            for found in open_ones:
                if found.standing.phase is Phase.UNCERTAIN and self._is_beyond_proof(found):
                    self.say(f"the operator is asked for {found.order.id}")
                    self.resolve(found)
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 120.0)
        self.laws.check_end()

    def _open(self):
        return [found for found in self.caller.deliveries() if not self.laws.is_over(found)]

    def _is_beyond_proof(self, found) -> bool:
        """Say whether the reason of a doubt is true, and such that no look will ever end it."""
        order, standing = found
        truth = self.truth
        match standing.reason:
            case "ghost":
                return (order.thread, order.text) in truth.ghosts
            case "moved" | "anchor_gone":
                return order.thread in truth.shortened
            case "cannot_save":
                return order.thread in truth.unsaved
            case "record_unreadable":
                # It had a turn, and its first line could never be written.
                path = self.server.threads[order.thread].path
                return not path.exists()
            case "not_loaded":
                return self._is_lost(found)
            case _:
                return False

    def _is_lost(self, found) -> bool:
        """Say whether its thread was unloaded before it had a turn, by a server that may live."""
        thread = self.server.threads[found.order.thread]
        peer = decode_dispatch(found.standing.dispatch).peer
        may_live = peer is None or peer == Peer(*self.process)
        return may_live and not thread.turns and not thread.is_loaded
