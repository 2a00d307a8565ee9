"""One way's world: home on a small disk, server, proxy, supervisor; what can be done to them.

Everything may be called from several threads; what starts and ends processes, with `hands` held.
"""

import contextlib
import os
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from websockets.exceptions import WebSocketException

from codexdrv.bell import ring
from codexdrv.errors import NoServer
from codexdrv.ids import DeliveryId, ThreadId
from codexdrv.journal.journal import Journal
from codexdrv.rules.lifecycle import Order
from codexdrv.snapshot import load_snapshot
from codexdrv.transport.peer import PeerIdentity, identify, is_gone
from tests.acceptance.kit import Rig, ServerError, Truth
from tests.acceptance.machine import Machine
from tests.acceptance.mounts import Disk, small_disk
from tests.torture.board import Board, wait
from tests.torture.model import ImpatientModel
from tests.torture.plan import Input, Way, is_asking
from tests.torture.proxy import CuttingProxy


HOME_SIZE = "192m"
"""A thousand turns take a third of it."""

START_TIMEOUT_S = 120.0
"""A server does not come up on a full disk, nor while its database is locked."""

LAST_WORDS = 2000

Unreachable = (OSError, TimeoutError, ServerError, WebSocketException)
"""Why another client could not do what it wanted: the server was away, or refused."""


class World:
    """The processes of one way, and the threads that all is delivered into."""

    def __init__(
        self, root: Path, *, binary: str, way: Way, inputs: list[Input], seed: int
    ) -> None:
        self.root = root
        self.way = way
        self.inputs = inputs
        #: Hold them to start or end a process.
        self.hands = threading.Lock()
        self._disk = small_disk(root / "home", size=HOME_SIZE)
        self.rig = Rig(root, binary=binary)
        self.rig.model.stop()
        self.rig.model = ImpatientModel(inputs, seed)
        self.threads: list[str] = []
        #: The last words of supervisors that nobody had killed.
        self.deaths: list[str] = []
        self._children: set[PeerIdentity] = set()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self.disk: Disk = opened.enter_context(self._disk)
            opened.enter_context(self.rig)
            self.machine = opened.enter_context(Machine(self.rig))
            self.board = opened.enter_context(Board(Path(self.machine.state)))
            self.proxy = CuttingProxy(self.root / "proxy.sock", self.rig.socket_path)
            opened.enter_context(self.proxy)
            self._make_threads()
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def begin(self) -> None:
        """Bring the supervisor up, by this world's way."""
        if self.way is Way.SPAWN:
            self.rig.server.stop()
            self.machine.own_server(stop_grace_s=3)
        elif self.way is Way.PROXY:
            self.machine.go_through(self.proxy.path)
        self.machine.start_unconnected()

    def is_connected(self) -> bool:
        """Say whether the supervisor has a server."""
        found = load_snapshot(str(self.machine.state))
        return bool(found and found.body["server"]["connected"])

    def wait_until_connected(self, timeout_s: float) -> None:
        """Wait for that; not for ever, since a thousand things may be in the way."""
        wait(self.is_connected, timeout_s)

    def note_child(self) -> None:
        """Note the server that is a child of our supervisor now."""
        pid = self._spawned() if self.way is Way.SPAWN else None
        child = identify(pid) if pid is not None else None
        if child is not None:
            self._children.add(child)

    def kill_orphans(self) -> int:
        """Kill the servers of killed supervisors that did not go when told; say how many."""
        left = [each for each in self._children if not is_gone(each)]
        orphans = [each for each in left if not self.machine.is_parent_of(each.pid)]
        for orphan in orphans:
            os.kill(orphan.pid, signal.SIGKILL)
        return len(orphans)

    def problem(self) -> str:
        """Say why the supervisor has no server; empty if it has one."""
        found = load_snapshot(str(self.machine.state))
        return (found and found.problem) or ""

    def start_supervisor(self) -> None:
        """Start it, connected or not."""
        self.machine.start_unconnected()

    def kill_supervisor(self) -> None:
        """End it with SIGKILL; note its last words if it had ended by itself."""
        if self.machine.has_died():
            self.deaths.append(self.machine.log.read_text()[-LAST_WORDS:])
        self.machine.kill()

    def kill_server(self) -> None:
        """End the server with SIGKILL; in spawn mode the one that the supervisor has now."""
        self._signal_server(signal.SIGKILL)

    def stop_server(self) -> None:
        """Tell it to finish its turns and go."""
        self._signal_server(signal.SIGTERM)
        if self.way is not Way.SPAWN:
            with contextlib.suppress(TimeoutError):
                self.rig.server.wait(3.0)
            self.rig.server.kill()

    def start_server(self) -> None:
        """Start it where the supervisor does not, however long the disk and the database take."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.way is not Way.SPAWN and not self.rig.server.is_running:
            try:
                self.rig.server.start()
            except (NoServer, OSError):
                if time.monotonic() > deadline:
                    raise

    def visit(self) -> Truth:
        """Connect as another client. Raises: Unreachable."""
        return Truth(self.rig.socket_path)

    def admit(self, each: Input) -> None:
        """Entrust an input to codexdrv: by the command, or by its row and a ring."""
        thread = self.threads[each.thread]
        if each.by_command:
            self.machine.deliver(each.id, thread, each.text, "--when-busy", str(each.when_busy))
            return
        order = Order(
            DeliveryId(each.id), ThreadId(thread), None, None, each.text, each.when_busy, 0,
            time.time_ns() // 1_000_000,
        )  # fmt: skip
        with contextlib.closing(Journal(str(self.machine.state))) as journal:
            journal.admit(order)
        self.ring()

    def ring(self) -> None:
        """Ask the supervisor to look."""
        ring(str(self.machine.state))

    def lock_database(self, lasts_s: float) -> None:
        """Keep everybody out of the server's database."""
        (database,) = self.rig.home.glob("state_*.sqlite")
        link = sqlite3.connect(database, isolation_level=None, timeout=5, check_same_thread=False)
        with contextlib.closing(link):
            link.execute("BEGIN EXCLUSIVE")
            time.sleep(lasts_s)
            link.execute("ROLLBACK")

    def keep_home(self) -> None:
        """Copy the threads' records from the disk, which goes when we go."""
        shutil.copytree(self.rig.home / "sessions", self.root / "sessions")

    def _make_threads(self) -> None:
        wanted = max(each.thread for each in self.inputs) + 1
        with self.visit() as truth:
            for number in range(wanted):
                policy = "untrusted" if is_asking(number) else "never"
                thread = truth.start_thread(self.rig.cwd, approval_policy=policy)
                truth.wait_for_turn(truth.start_turn(thread, f"t{number} begins"))
                self.threads.append(thread)

    def _signal_server(self, number: int) -> None:
        pid = self._spawned() if self.way is Way.SPAWN else self.rig.server.pid
        if self.way is not Way.SPAWN and number == signal.SIGKILL:
            self.rig.server.kill()
        elif pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _spawned(self) -> int | None:
        """Find the server that is a child of our supervisor."""
        found = load_snapshot(str(self.machine.state))
        pid = found.body["server"]["pid"] if found else None
        if pid is None or not self.machine.is_parent_of(pid):
            return None
        return int(pid)


@contextlib.contextmanager
def approving(world: World) -> Iterator[None]:
    """Have an owner in the threads that ask, who approves after a moment."""
    is_over = threading.Event()

    def approve() -> None:
        while not is_over.wait(0.2):
            with contextlib.suppress(*Unreachable), world.visit() as truth:
                _approve(world, truth, is_over)

    thread = threading.Thread(target=approve, name="owner")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _approve(world: World, truth: Truth, is_over: threading.Event) -> None:
    for number, name in enumerate(world.threads):
        if is_asking(number):
            truth.resume(name)
    seen = 0
    while not is_over.wait(0.1):
        if truth.is_closed:
            return
        for message in truth.seen[seen:]:
            seen += 1
            if message["method"] == "item/commandExecution/requestApproval":
                truth.answer(message, {"decision": "accept"})
