"""codexdrv on a rig, as its users run it: a configuration, real supervisors, real commands.

Waiting looks into the journal from this process; what was said in a thread is for `Truth` and the
model to tell.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Self

import codexdrv
from codexdrv.ids import DeliveryId, ThreadId
from codexdrv.journal.journal import Journal
from codexdrv.journal.rows import RecordedFact
from codexdrv.rules.lifecycle import Order, Standing, WhenBusy
from codexdrv.snapshot import load_snapshot
from tests.acceptance.kit import WAIT_S, Message, Rig


POLL_S = 0.01
"""A look at the journal or the status file costs much less."""

CHECKOUT = Path(codexdrv.__file__).parents[1]


class Ran(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def body(self) -> Message:
        """The one JSON object on stdout."""
        body: Message = json.loads(self.out)
        return body

    @property
    def bodies(self) -> list[Message]:
        """The JSON objects on stdout, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Running:
    """A command that may still run."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    def wait(self) -> Ran:
        """Wait for its end."""
        return _finish(self._child, "")

    def kill(self) -> None:
        """End it, if it has not ended."""
        self._child.kill()
        self._child.wait()


class Machine:
    """One state directory; its supervisor may be started, stopped and killed."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._proxy: Path | None = None
        self._own: dict[str, str | float] | None = None
        self.state = rig.root / "state"
        self.config = rig.root / "codexdrv.toml"
        self.log = rig.root / "supervisor.log"
        self.write_config()
        self._journal = Journal(str(self.state))
        self._supervisor: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._supervisor is not None:
            self.kill()
        self._journal.close()

    def write_config(self, **targets: str) -> None:
        """Write the configuration; targets are NAME=THREAD."""
        socket = {"socket": str(self._proxy or self.rig.socket_path)}
        sections = {
            "server": {"codex_home": self.rig.home, **(socket if self._own is None else self._own)},
            "state": {"dir": self.state},
            **{f"targets.{name}": {"thread": thread} for name, thread in targets.items()},
        }
        lines = []
        for section, values in sections.items():
            lines.append(f"[{section}]")
            lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
        self.config.write_text("\n".join(lines) + "\n")

    def own_server(self, *, listen: str = "unix", **options: str | float) -> None:
        """From the next start on, run a server of our own; over a socket, at the rig's path."""
        socket = {"socket": str(self.rig.socket_path)} if listen == "unix" else {}
        codex = str(self.rig.server.binary)
        self._own = {"mode": "spawn", "codex": codex, "listen": listen, **socket, **options}
        self.write_config()

    def wait_for_server(self, *, other_than: int | None = None) -> int:
        """Block until the supervisor is connected to a server (another one); return its pid."""
        known = {None, other_than}
        _wait(lambda: self._server_pid() not in known, lambda: "a connection to a server")
        pid = self._server_pid()
        assert pid is not None, "it has just been there"
        return pid

    def go_through(self, proxy: Path) -> None:
        """From the next start on, attach through the proxy of this process that listens here."""
        self._proxy = proxy
        self.write_config()

    def start(self) -> None:
        """Start a supervisor; on return it is connected to the server."""
        assert self._supervisor is None, "a machine has one supervisor at a time"
        with self.log.open("ab") as log:
            self._supervisor = self._spawn(("supervise", "--verbose"), subprocess.DEVNULL, log)
        self.wait_until_connected()

    def start_unconnected(self) -> None:
        """Start a supervisor that may not find its server yet."""
        assert self._supervisor is None, "a machine has one supervisor at a time"
        with self.log.open("ab") as log:
            self._supervisor = self._spawn(("supervise", "--verbose"), subprocess.DEVNULL, log)

    def attach_at(self, socket: Path) -> None:
        """From the next start on, attach to the server by this path of its socket."""
        known, new = json.dumps(str(self.rig.socket_path)), json.dumps(str(socket))
        self.config.write_text(self.config.read_text().replace(known, new))

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """Let go of the journal, for as long as the block lasts: no process has it open."""
        self._journal.close()
        try:
            yield
        finally:
            self._journal = Journal(str(self.state))

    def wait_until_connected(self) -> None:
        """Block until the supervisor is connected to the server that runs now."""
        pid = os.getpid() if self._proxy else self.rig.server.pid
        _wait(lambda: self._server_pid() == pid, lambda: "a connection to the server")

    def wait_until_disconnected(self) -> None:
        """Block until the supervisor has seen the end of its connection."""
        _wait(lambda: self._server_pid() is None, lambda: "the end of the connection")

    def wait_for_problem(self, sentence: str) -> None:
        """Block until the supervisor says that this is why it has no server."""

        def found() -> str | None:
            self._assert_alive()
            snapshot = load_snapshot(str(self.state))
            return snapshot.problem if snapshot else None

        _wait(lambda: found() == sentence, lambda: f"{sentence!r}; it says {found()!r}")

    def wait_for_log(self, words: str) -> None:
        """Block until a supervisor has logged these words."""
        _wait(lambda: words in self.log.read_text(), lambda: f"{words!r} in the log")

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Block until something is so."""
        _wait(is_so, lambda: what)

    def stop(self) -> int:
        """End the supervisor with SIGTERM; return its exit code."""
        self.terminate()
        return self.wait_for_exit()

    def terminate(self) -> None:
        """Ask the supervisor to stop."""
        self._running().terminate()

    def wait_for_exit(self) -> int:
        """Wait for the end of the supervisor, and return its exit code."""
        code = self._running().wait(WAIT_S)
        self._supervisor = None
        return code

    def signal(self, number: int) -> None:
        """Send a signal to the supervisor."""
        self._running().send_signal(number)

    def kill(self) -> None:
        """End the supervisor with SIGKILL."""
        supervisor = self._running()
        supervisor.kill()
        supervisor.wait()
        self._supervisor = None

    def has_died(self) -> bool:
        """Say whether the supervisor has ended by itself."""
        return self._supervisor is not None and self._supervisor.poll() is not None

    def is_parent_of(self, pid: int) -> bool:
        """Say whether a process is a child of the supervisor that runs."""
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        parent = int(status.rpartition(")")[2].split()[1])
        return self._supervisor is not None and parent == self._supervisor.pid

    def run(self, *arguments: str, stdin: str = "") -> Ran:
        """Run a command to its end."""
        return self.run_together([arguments], stdin=stdin)[0]

    def run_together(self, commands: Sequence[Sequence[str]], *, stdin: str = "") -> list[Ran]:
        """Run commands at the same time, each to its end."""
        pipe = subprocess.PIPE
        children = [self._spawn(arguments, pipe, pipe) for arguments in commands]
        return [_finish(child, stdin) for child in children]

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator["Running"]:
        """Run a command beside the block; it is ended with it."""
        pipe = subprocess.PIPE
        running = Running(self._spawn(arguments, pipe, pipe))
        try:
            yield running
        finally:
            running.kill()

    def deliver(self, delivery: str, thread: str, text: str, *flags: str) -> Message:
        """Deliver, from standard input; return what the command printed, which exits 0."""
        named = ("--id", delivery, "--thread", thread, "--json", *flags)
        done = self.run("deliver", *named, "-", stdin=text)
        assert done.code == 0, done
        return done.body

    def status(self, delivery: str) -> Message:
        """Say how a delivery stands, by the command."""
        return self.run("status", delivery, "--json").body

    def standing(self, delivery: str) -> Standing:
        """Say how a delivery stands, by the journal."""
        return self._journal.delivery(DeliveryId(delivery)).standing

    def story(self, delivery: str) -> list[RecordedFact]:
        """Read a delivery's facts."""
        return self._journal.story(DeliveryId(delivery))

    def order(self, delivery: str) -> Order:
        """Say what was ordered."""
        return self._journal.delivery(DeliveryId(delivery)).order

    def admit(self, delivery: str, thread: str, text: str) -> None:
        """Put a delivery into the journal past the checks of the command."""
        target = source = None
        now_ms = time.time_ns() // 1_000_000
        identity = (DeliveryId(delivery), ThreadId(thread))
        self._journal.admit(Order(*identity, target, source, text, WhenBusy.STEER, 0, now_ms))

    def reasons(self, delivery: str) -> list[str | None]:
        """Say for which reasons a delivery stood as it did, one after the other."""
        return [fact.news.reason for fact in self.story(delivery)]

    def routes(self, delivery: str) -> list[str]:
        """Say how each attempt of a delivery was made: start or steer."""
        attempts = [fact.news.dispatch for fact in self.story(delivery) if fact.news.dispatch]
        return [json.loads(attempt)["route"] for attempt in attempts]

    def wait_for(self, delivery: str, is_so: Callable[[Standing], bool]) -> Standing:
        """Block until a delivery stands so, and return how."""

        def is_so_now() -> bool:
            if self._supervisor is not None:
                self._assert_alive()
            return is_so(self.standing(delivery))

        _wait(is_so_now, lambda: f"{delivery}: {self.standing(delivery)}")
        return self.standing(delivery)

    def wait_for_phase(self, delivery: str, phase: str, *, reason: str = "") -> Standing:
        """Block until a delivery is in a phase, for this reason if one is named."""
        return self.wait_for(
            delivery, lambda found: found.phase == phase and reason in {"", found.reason}
        )

    def wait_for_outcome(self, *deliveries: str, outcome: str = "completed") -> None:
        """Block until deliveries are in the thread, read back, and their turns have ended so."""
        for delivery in deliveries:
            self.wait_for(delivery, lambda found: found.stored and found.outcome == outcome)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._supervisor is not None, "no supervisor runs"
        return self._supervisor

    def _server_pid(self) -> int | None:
        """Ask the status file which server the supervisor is connected to."""
        supervisor = self._assert_alive()
        found = load_snapshot(str(self.state))
        if found is None or found.body["pid"] != supervisor.pid:
            return None
        server = found.body["server"]
        pid: int | None = server["pid"] if server["connected"] else None
        return pid

    def _assert_alive(self) -> subprocess.Popen[bytes]:
        supervisor = self._running()
        assert supervisor.poll() is None, f"the supervisor ended: {self.log.read_text()[-2000:]}"
        return supervisor

    def _spawn(
        self, arguments: Sequence[str], stdout: int, stderr: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "codexdrv", "--config", str(self.config), *arguments],
            stdin=subprocess.PIPE if stdout == subprocess.PIPE else subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=self.rig.root,
            # Nothing of the caller's: no configuration, no home.
            env={"HOME": str(self.rig.root), "PYTHONPATH": str(CHECKOUT)},
        )


def _finish(child: subprocess.Popen[bytes], stdin: str) -> Ran:
    with child:
        try:
            out, err = child.communicate(stdin.encode(), WAIT_S)
        except BaseException:
            child.kill()
            raise
    return Ran(child.returncode, out.decode(), err.decode())


def _wait(is_so: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {WAIT_S} s: {what()}")
        time.sleep(POLL_S)


def _toml(value: object) -> str:
    return json.dumps(value if isinstance(value, int | float) else str(value))
