"""One soaked world: a real server, a real supervisor with 20 targets, its state on a small disk.

What starts and ends processes is done with `hands` held.
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

from codexdrv.demo.script import RunCommand
from codexdrv.snapshot import Snapshot, load_snapshot
from tests.acceptance.kit import Rig, Truth
from tests.acceptance.machine import Machine, Ran
from tests.acceptance.mounts import Disk, small_disk
from tests.soak.model import PatientModel
from tests.soak.plan import Input, Mode
from tests.soak.sampling import processes_in, servers_of
from tests.torture.board import Board
from tests.torture.proxy import CuttingProxy


TARGETS = 20
CHANGING = 5
"""So many of them come and go."""

HELD, ASKING = TARGETS, TARGETS + 1
"""Two threads more, without a name, for turns that only a fault begins."""

STATE_SIZE = "24m"
"""An hour's journal is 4 MB; its log of writes may be as much again."""

STOP_GRACE_S = 2.0
"""A stop takes this twice, 5 s for answers and 2 s more, within what we wait for it."""

BOARD_LOOK_S = 0.25
LAST_WORDS = 2000


class Interrupted(Exception):
    """Somebody wants the soak to end now."""


class World:
    """The processes of one soak, and the threads that all is delivered into."""

    def __init__(self, root: Path, *, binary: str, mode: Mode) -> None:
        self.root = root
        self.mode = mode
        self.hands = threading.RLock()
        self.is_over = threading.Event()
        self.rig = Rig(root, binary=binary)
        self.rig.model.stop()
        self.model = PatientModel()
        self.rig.model = self.model
        self.threads: list[str] = []
        #: The last words of supervisors that nobody had ended.
        self.deaths: list[str] = []
        self._link = root / "at.sock"
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self.disk: Disk = opened.enter_context(small_disk(self.root / "state", size=STATE_SIZE))
            opened.callback(self.sweep)
            opened.enter_context(self.rig)
            self.machine = opened.enter_context(Machine(self.rig))
            self.board = opened.enter_context(Board(self.machine.state, look_s=BOARD_LOOK_S))
            self.proxy = CuttingProxy(self.root / "proxy.sock", self.rig.socket_path)
            opened.enter_context(self.proxy)
            self._make_threads()
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def begin(self) -> None:
        """Bring the supervisor up, by this world's mode."""
        if self.mode is Mode.SPAWN:
            self.rig.server.stop()
            self.machine.own_server(stop_grace_s=STOP_GRACE_S, approvals="leave")
        else:
            self.lead_to(self.rig.socket_path)
            self.machine.go_through(self._link)
        self.write_targets(TARGETS)
        self.machine.start_unconnected()

    def lead_to(self, socket: Path) -> None:
        """Have the supervisor's next connection go there."""
        draft = self._link.with_suffix(".new")
        draft.symlink_to(socket)
        draft.rename(self._link)

    def write_targets(self, count: int) -> None:
        """Write a configuration with so many targets."""
        named = {f"n{number}": thread for number, thread in enumerate(self.threads[:count])}
        self.machine.write_config(**named)

    def pause(self, seconds: float) -> None:
        """Let time pass. Raises: Interrupted."""
        if self.is_over.wait(seconds):
            raise Interrupted

    def deliver(self, each: Input) -> Ran:
        """Deliver an input by the command."""
        self.model.hold(each.text, each.hold_s)
        name = f"n{each.thread}"
        to = ("--target", name) if each.by_target else ("--thread", self.threads[each.thread])
        return self.machine.run(
            "deliver", "--id", each.id, *to, "--when-busy", str(each.when_busy), "--json", "-",
            stdin=each.text,
        )  # fmt: skip

    def snapshot(self) -> Snapshot | None:
        """Read what the supervisor says of itself, if that one still runs."""
        found = load_snapshot(str(self.machine.state))
        return found if found and found.body["pid"] == self.supervisor_pid() else None

    def is_connected(self) -> bool:
        """Say whether the supervisor says that it has a server."""
        found = self.snapshot()
        return found is not None and bool(found.body["server"]["connected"])

    def supervisor_pid(self) -> int | None:
        """Find the supervisor that runs."""
        supervisor = self.machine._supervisor
        return supervisor.pid if supervisor is not None and supervisor.poll() is None else None

    def server_pid(self) -> int | None:
        """Find the server that is ours: the supervisor's child, or the one to attach to."""
        if self.mode is Mode.ATTACH:
            return self.rig.server.pid if self.rig.server.is_running else None
        mine = [pid for pid in servers_of(self.rig.home) if self.machine.is_parent_of(pid)]
        return mine[0] if mine else None

    def orphans(self) -> list[int]:
        """Find the servers of this home that are nobody's."""
        return [
            pid
            for pid in servers_of(self.rig.home)
            if pid != self.server_pid() and not self.machine.is_parent_of(pid)
        ]

    def kill_server(self) -> None:
        """End it with SIGKILL."""
        if self.mode is Mode.ATTACH:
            self.rig.server.kill()
        else:
            signal_process(self.server_pid(), signal.SIGKILL)

    def start_server(self) -> None:
        """Start it where the supervisor does not."""
        if self.mode is Mode.ATTACH and not self.rig.server.is_running:
            self.rig.server.start()

    def watch_supervisor(self) -> None:
        """Start the supervisor anew, as a service manager would, and note that it had died."""
        with self.hands:
            if self.machine.has_died():
                self.deaths.append(self.machine.log.read_text()[-LAST_WORDS:])
                self.machine.kill()
                self.machine.start_unconnected()

    def visit(self) -> Truth:
        """Connect as another client."""
        return Truth(self.rig.socket_path)

    @contextlib.contextmanager
    def journal_locked(self) -> Iterator[None]:
        """Keep every writer out of the journal, for as long as the block lasts."""
        path = self.machine.state / "journal.sqlite3"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as link:
            link.execute("BEGIN EXCLUSIVE")
            try:
                yield
            finally:
                link.execute("ROLLBACK")

    def keep(self) -> None:
        """Copy the journal from its disk, which goes when we go."""
        shutil.copytree(
            self.machine.state, self.root / "state.kept", ignore=shutil.ignore_patterns("bell")
        )

    def sweep(self) -> list[int]:
        """End every process of this world that is left; say which they were."""
        left = processes_in(self.root)
        for pid in left:
            signal_process(pid, signal.SIGKILL)
        return left

    def _make_threads(self) -> None:
        with self.visit() as truth:
            for number in range(TARGETS + 2):
                policy = "untrusted" if number == ASKING else "never"
                thread = truth.start_thread(self.rig.cwd, approval_policy=policy)
                truth.wait_for_turn(truth.start_turn(thread, f"t{number} begins"))
                self.threads.append(thread)

    def ask(self, text: str) -> None:
        """Have the answer to a text be a command that wants an approval."""
        self.model.script[text] = RunCommand("touch asked", then="it ran")


def signal_process(pid: int | None, number: signal.Signals) -> None:
    """Send a signal to a process, if it is there."""
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def halted(pid: int | None) -> Iterator[None]:
    """Keep a process from running, for as long as the block lasts."""
    signal_process(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_process(pid, signal.SIGCONT)


def wait_until_gone(pid: int, timeout_s: float) -> bool:
    """Wait for the end of a process; say whether it came."""
    deadline = time.monotonic() + timeout_s
    while Path(f"/proc/{pid}").exists():
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
