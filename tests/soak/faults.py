"""Each fault, as it is done, and the laws that hold while it is."""

import signal
import subprocess
import time
from collections.abc import Callable
from typing import NamedTuple

from codexdrv.errors import CodexdrvError
from codexdrv.rules.lifecycle import WhenBusy
from codexdrv.snapshot import Snapshot
from tests.acceptance.kit import Message
from tests.soak.plan import Fault, Input, Mode
from tests.soak.sampling import hears, servers_of
from tests.soak.world import (
    ASKING,
    CHANGING,
    HELD,
    TARGETS,
    World,
    halted,
    signal_process,
    wait_until_gone,
)
from tests.torture.world import Unreachable


HALF_OPEN_S = 45.0
NOTICE_S_MAX = 42.0
"""The silence limit is 30 s; it is looked at with each ping, every 10 s."""

SUSPENDED_S = 20.0
DRAINING_S = 30.0
LOCKED_S = 12.0
FULL_S = 20.0
DOWN_S = 1.0
BETWEEN_S = 5.0
CONNECTED_S_MAX = 30.0
DRAINED_S_MAX = 20.0
SURFACED_S_MAX = 20.0
FRESH_S_MAX = 12.0
LOOK_S = 0.2

REFUSING = {Fault.JOURNAL_LOCKED, Fault.DISK_FULL}
"""While one of these lasts, `deliver` may say that it could not store it."""


class Struck(NamedTuple):
    """A fault that was done; Unix times."""

    fault: Fault
    from_s: float
    to_s: float
    #: Why it could not be done.
    missed: str = ""


class Missed(Exception):
    """The fault found nothing to disturb."""


class Armoury:
    """Does the faults of a world, one at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.struck: list[Struck] = []
        #: Laws that were broken while a fault was done.
        self.broken: list[str] = []
        self.now: Fault | None = None
        self._ended_s = 0.0
        #: When what a fault disturbs was as before, if it then still looked at something.
        self._undone_s: float | None = None
        self._acts: dict[Fault, Callable[[], None]] = {
            Fault.SERVER_KILLED: self._kill_server,
            Fault.SUPERVISOR_KILLED: self._kill_supervisor,
            Fault.BOTH_KILLED: self._kill_both,
            Fault.HALF_OPEN: self._halt_server,
            Fault.SUSPENDED: self._suspend,
            Fault.DRAINING: self._drain,
            Fault.DEAF: self._stop_deaf,
            Fault.ASKING: self._stop_asking,
            Fault.RECONFIGURED: self._reconfigure,
            Fault.LINK_CUT: self._cut,
            Fault.JOURNAL_LOCKED: self._lock_journal,
            Fault.DISK_FULL: self._fill_disk,
            Fault.RESTARTED: self._restart,
        }

    def is_disturbed(self, within_s: float = 0.0) -> bool:
        """Say whether a fault is being done, or was over a moment ago."""
        return self.now is not None or time.time() - self._ended_s < within_s

    def may_refuse(self) -> bool:
        """Say whether `deliver` may have failed just now."""
        last = self.struck[-1].fault if self.struck and self.is_disturbed(BETWEEN_S) else None
        return bool({self.now, last} & REFUSING)

    def strike(self, fault: Fault) -> None:
        """Do a fault to its end."""
        if not self._wait(self.world.is_connected, CONNECTED_S_MAX):
            self.broken.append(f"{fault}: not connected, {CONNECTED_S_MAX:.0f} s waited")
        missed = ""
        with self.world.hands:
            self.now, began_s, self._undone_s = fault, time.time(), None
            try:
                self._acts[fault]()
            except (*Unreachable, Missed) as error:
                missed = f"{type(error).__name__}: {error}"
            except (AssertionError, CodexdrvError, subprocess.SubprocessError) as error:
                self._break(f"{type(error).__name__}: {error}")
            finally:
                self._ended_s = time.time()
                to_s = self._undone_s or self._ended_s
                self.struck.append(Struck(fault, began_s, to_s, missed))
                self.now = None
            self._mend()

    def _mend(self) -> None:
        """Bring up what a fault that could not be finished has left down."""
        self.world.start_server()
        if self.world.machine._supervisor is None:
            self.world.machine.start_unconnected()

    def _break(self, words: str) -> None:
        self.broken.append(f"{self.now}: {words}")

    def _require(self, is_so: bool, words: str) -> None:
        if not is_so:
            raise Missed(words)

    def _kill_server(self) -> None:
        self.world.kill_server()
        self._bring_server_back()

    def _bring_server_back(self) -> None:
        if self.world.mode is Mode.ATTACH:
            self.world.pause(DOWN_S)
            self.world.start_server()

    def _kill_supervisor(self) -> None:
        self.world.machine.kill()
        self.world.pause(DOWN_S)
        self.world.machine.start_unconnected()

    def _kill_both(self) -> None:
        # First the server: else, in spawn mode, nobody knows it.
        self.world.kill_server()
        self.world.machine.kill()
        self.world.pause(DOWN_S)
        self.world.start_server()
        self.world.machine.start_unconnected()

    def _halt_server(self) -> None:
        began = time.monotonic()
        with halted(self.world.server_pid()):
            if not self._wait(lambda: not self.world.is_connected(), NOTICE_S_MAX):
                self._break(f"status says connected {NOTICE_S_MAX:.0f} s after the last word")
            self.world.pause(max(0.0, HALF_OPEN_S - (time.monotonic() - began)))

    def _suspend(self) -> None:
        before = self._fresh_server()
        with halted(self.world.supervisor_pid()), halted(self.world.server_pid()):
            self.world.pause(SUSPENDED_S)
        self._undone_s = time.time()
        after = self._fresh_server()
        for key in ("generation", "pid", "connected"):
            if before[key] != after[key]:
                self._break(f"{key} was {before[key]}, and is {after[key]}: {after['problem']}")

    def _drain(self) -> None:
        text = self._say_on(HELD, "held")
        self.world.model.hold(text, DRAINING_S * 2)
        self._deliver(HELD, text)
        self.world.model.wait_for_prompt(text)
        pid = self.world.server_pid()
        assert pid is not None, "it has just shown the model a prompt"
        signal_process(pid, signal.SIGTERM)
        self._wait(lambda: wait_until_gone(pid, 0), DRAINING_S)
        self.world.model.release(text)
        if not wait_until_gone(pid, DRAINED_S_MAX) and self.world.mode is Mode.ATTACH:
            # A turn that began in the same moment may be held for longer.
            self.world.rig.server.stop()
        if self.world.mode is Mode.ATTACH:
            self.world.rig.server.wait(DRAINED_S_MAX)
            self.world.start_server()

    def _stop_deaf(self) -> None:
        with halted(self.world.server_pid()):
            self._stop_supervisor()
        self.world.machine.start_unconnected()

    def _stop_asking(self) -> None:
        text = self._say_on(ASKING, "asks")
        self.world.ask(text)
        with self.world.visit() as truth:
            truth.resume(self.world.threads[ASKING])
            self._deliver(ASKING, text)
            truth.wait_for(_is_question)
        self._stop_supervisor()
        self.world.machine.start_unconnected()

    def _restart(self) -> None:
        self._stop_supervisor()
        self.world.machine.start_unconnected()

    def _stop_supervisor(self) -> None:
        try:
            code = self.world.machine.stop()
        except subprocess.TimeoutExpired:
            self._break("SIGTERM did not end the supervisor in time")
            self.world.machine.kill()
            return
        if code != 0:
            self._break(f"SIGTERM ended the supervisor with {code}")
        left = servers_of(self.world.rig.home) if self.world.mode is Mode.SPAWN else []
        if left:
            self._break(f"stopped, and its server runs: {left}")

    def _reconfigure(self) -> None:
        pid = self.world.supervisor_pid()
        self._require(pid is not None and hears(pid, signal.SIGHUP), "SIGHUP is not heard")
        before = self._fresh_server()
        for count in (TARGETS - CHANGING, TARGETS):
            self.world.write_targets(count)
            signal_process(pid, signal.SIGHUP)
            self._undone_s = time.time()
            self.world.pause(BETWEEN_S)
        after = self._fresh_server()
        if before["generation"] != after["generation"]:
            self._break(f"generation was {before['generation']}, and is {after['generation']}")

    def _cut(self) -> None:
        try:
            self.world.lead_to(self.world.proxy.path)
            self._restart()
            connected = self._wait(self.world.is_connected, CONNECTED_S_MAX)
            self._require(connected, "not connected through the proxy")
        finally:
            self.world.lead_to(self.world.rig.socket_path)
        # In the middle of something, if anything is being sent.
        self._wait(self._is_sending, BETWEEN_S)
        self.world.proxy.cut()

    def _is_sending(self) -> bool:
        return any(found.phase == "pending" for found in self.world.board.stands().values())

    def _lock_journal(self) -> None:
        with self.world.journal_locked():
            self.world.pause(LOCKED_S)

    def _fill_disk(self) -> None:
        with self.world.disk.filled():
            self.world.pause(FULL_S)

    def _say_on(self, thread: int, what: str) -> str:
        return f"t{thread} {what} {len(self.struck)}"

    def _deliver(self, thread: int, text: str) -> None:
        """Deliver what the fault is about, and wait until it is in its thread."""
        name = f"{self.world.mode}-fault-{len(self.struck)}"
        done = self.world.deliver(Input(name, thread, text, WhenBusy.WAIT, 0.0, False, 0.0))
        assert done.code == 0, done

        def is_there() -> bool:
            stand = self.world.board.stand(name)
            return stand is not None and stand.phase == "surfaced"

        self._require(self._wait(is_there, SURFACED_S_MAX), f"{name} is not in its thread")

    def _fresh_server(self) -> Message:
        """Read what the supervisor says of its server, written after now."""
        now_ms, found = time.time() * 1000, list[Snapshot]()

        def is_fresh() -> bool:
            snapshot = self.world.snapshot()
            found[:] = [snapshot] if snapshot and snapshot.written_at_ms > now_ms else []
            return bool(found)

        self._require(self._wait(is_fresh, FRESH_S_MAX), "no status was written")
        server: Message = found[0].body["server"]
        return server

    def _wait(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > deadline:
                return False
            self.world.pause(LOOK_S)
        return True


def _is_question(message: Message) -> bool:
    method: str = message["method"]
    return method == "item/commandExecution/requestApproval"
