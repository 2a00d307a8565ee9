"""Each fault, as it is done; one at a time, but for those that only take something away."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tests.acceptance.kit import ServerError, Truth
from tests.torture.board import LIVE, LOOK_S
from tests.torture.plan import Fault, Input, Moment, Shot, Way
from tests.torture.world import Unreachable, World


AIM_S_MAX = 10.0
"""So long a fault waits for its moment, which may never come."""

RECOVER_S_MAX = 4.0
"""What is shot down again before it stands delivers nothing: so long the next one waits."""

QUIET_S_MAX = 3.0
RUNNING_S_MAX = 1.0


STORE_S_MAX = 1.0
"""What it has shown, the server stores within milliseconds, or it was ended before it could."""

ENDS_SERVER = {Fault.SERVER_KILLED, Fault.BOTH_KILLED, Fault.SERVER_STOPPED}

UNMAKERS = {*ENDS_SERVER, Fault.SUPERVISOR_KILLED, Fault.DISK_FULL}
"""Faults by which the server can lose what it has shown (in spawn mode it ends with us)."""


class Window(NamedTuple):
    """When a fault was; Unix time."""

    fault: Fault
    from_s: float
    to_s: float


def excuse_of(windows: Iterable[Window], shown_at_s: float) -> str | None:
    """Say which fault may have kept the server from storing what it showed then."""
    filled: Window | None = None
    for fault, from_s, to_s in sorted(windows, key=lambda window: window.from_s):
        if fault in UNMAKERS and from_s - STORE_S_MAX <= shown_at_s <= to_s:
            return f"{fault} {from_s - shown_at_s:+.3f} s from when it was shown"
        if to_s < shown_at_s and fault is Fault.DISK_FULL:
            filled = Window(fault, from_s, to_s)
        elif to_s < shown_at_s and fault in ENDS_SERVER:
            filled = None
    if filled is None:
        return None
    # Seen on 0.144.5: what could not be saved once is never saved again by that server.
    return f"this server's {filled.fault} {shown_at_s - filled.to_s:.3f} s before it was shown"


class Armoury:
    """Does the faults of a world, and counts them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.done: Counter[Fault] = Counter()
        #: Faults that found nothing to disturb.
        self.missed: Counter[Fault] = Counter()
        #: By thread, the ids that another client took out.
        self.reverted: dict[str, set[str]] = {}
        self.log: list[str] = []
        self.windows: list[Window] = []
        self._began = time.monotonic()
        self._slow = {Fault.DATABASE_LOCKED: threading.Lock(), Fault.DISK_FULL: threading.Lock()}

    def arm(self, each: Input) -> None:
        """Prepare what has to stand before the input is admitted."""
        if each.shot is not None and each.shot.fault is Fault.REQUEST_CUT:
            self.world.proxy.mark(each.id)

    def shoot(self, each: Input) -> None:
        """Wait for the moment of an input, and do to it what was planned."""
        shot = each.shot
        if shot is None or shot.fault is Fault.REQUEST_CUT:
            return
        self._await_moment(each, shot)
        time.sleep(shot.delay_s)
        with self._slow.get(shot.fault, self.world.hands):
            self._do(each, shot)

    def excuse(self, shown_at_s: float) -> str | None:
        """Say which fault may have kept the server from storing what it showed then."""
        return excuse_of(self.windows, shown_at_s)

    def _await_moment(self, each: Input, shot: Shot) -> None:
        def has_come() -> bool:
            stand = self.world.board.stand(each.id)
            if stand is None:
                return False
            return {
                Moment.ADMITTED: True,
                Moment.ANSWERED: stand.is_answered or stand.phase not in LIVE,
                Moment.SURFACED: stand.phase not in LIVE,
            }[shot.after]

        self.world.board.wait_for(has_come, AIM_S_MAX)

    def _do(self, each: Input, shot: Shot) -> None:
        acts: dict[Fault, Callable[[Input, Shot], None]] = {
            Fault.SERVER_KILLED: self._kill_server,
            Fault.SERVER_STOPPED: self._stop_server,
            Fault.SUPERVISOR_KILLED: self._kill_supervisor,
            Fault.BOTH_KILLED: self._kill_both,
            Fault.LINK_CUT: lambda _, __: self.world.proxy.cut(),
            Fault.INTERRUPTED: self._interrupt,
            Fault.REVERTED: self._revert,
            Fault.DATABASE_LOCKED: lambda _, shot: self.world.lock_database(shot.lasts_s),
            Fault.DISK_FULL: self._fill_disk,
        }
        began, began_at_s = time.monotonic() - self._began, time.time()
        try:
            acts[shot.fault](each, shot)
        except (*Unreachable, ValueError) as error:
            self.missed[shot.fault] += 1
            self._note(f"{began:8.3f} {shot.fault} missed {each.id}: {error}")
        else:
            self.done[shot.fault] += 1
            self.windows.append(Window(shot.fault, began_at_s, time.time()))
            self._note(f"{began:8.3f} {shot.fault} {shot.after} {each.id} {shot.lasts_s:.2f} s")

    def _note(self, words: str) -> None:
        self.log.append(f"{words}; over at {time.monotonic() - self._began:.3f}")

    def _kill_server(self, _: Input, shot: Shot) -> None:
        self.world.kill_server()
        self._bring_server_back(shot)

    def _stop_server(self, _: Input, shot: Shot) -> None:
        self.world.stop_server()
        self._bring_server_back(shot)

    def _bring_server_back(self, shot: Shot) -> None:
        time.sleep(shot.lasts_s)
        self.world.start_server()
        self._recover()

    def _kill_supervisor(self, _: Input, shot: Shot) -> None:
        self.world.kill_supervisor()
        time.sleep(shot.lasts_s)
        self.world.start_supervisor()
        self._recover()

    def _kill_both(self, _: Input, shot: Shot) -> None:
        # First the server: in spawn mode only its supervisor knows it.
        self.world.kill_server()
        self.world.kill_supervisor()
        time.sleep(shot.lasts_s)
        self.world.start_server()
        self.world.start_supervisor()
        self._recover()

    def _recover(self) -> None:
        self.world.ring()
        self.world.wait_until_connected(RECOVER_S_MAX)

    def _fill_disk(self, _: Input, shot: Shot) -> None:
        with self.world.disk.filled():
            time.sleep(shot.lasts_s)

    def _interrupt(self, each: Input, _: Shot) -> None:
        thread = self.world.threads[each.thread]
        with self.world.visit() as truth:
            truth.resume(thread)
            turn = _next_running(truth, thread)
            truth.call("turn/interrupt", threadId=thread, turnId=turn)

    def _revert(self, each: Input, shot: Shot) -> None:
        thread = self.world.threads[each.thread]
        self.world.kill_supervisor()
        try:
            if self.world.way is Way.SPAWN:
                raise TimeoutError("its server goes with the supervisor")
            with self.world.visit() as truth:
                self._take_out_newest(truth, thread)
        finally:
            time.sleep(shot.lasts_s)
            self.world.start_supervisor()
            self._recover()

    def _take_out_newest(self, truth: Truth, thread: str) -> None:
        truth.resume(thread)
        deadline = time.monotonic() + QUIET_S_MAX
        while truth.running_turn(thread) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        before = {said.client_id for said in truth.history(thread)}
        revert_newest(truth, thread)
        after = {said.client_id for said in truth.history(thread)}
        taken = {name for name in before - after if name is not None}
        self.reverted.setdefault(thread, set()).update(taken)


def _next_running(truth: Truth, thread: str) -> str:
    deadline = time.monotonic() + RUNNING_S_MAX
    while time.monotonic() < deadline:
        if (turn := truth.running_turn(thread)) is not None:
            return turn
        time.sleep(LOOK_S)
    raise TimeoutError("no turn runs")


def revert_newest(truth: Truth, thread: str) -> None:
    """Take the newest of several turns out of a thread, in this version's way.

    Raises:
        ServerError: it refuses.
        ValueError: there are no two turns.
    """
    page = truth.call("thread/turns/list", threadId=thread, sortDirection="desc", limit=2)
    newest, _kept = page["data"]
    try:
        truth.call("thread/revert", threadId=thread, beforeTurnId=newest["id"])
    except ServerError as refusal:
        if "unknown variant" not in refusal.message and "Invalid request" not in refusal.message:
            raise
        truth.call("thread/rollback", threadId=thread, numTurns=1)
