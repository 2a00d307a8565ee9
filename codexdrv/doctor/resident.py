"""The supervisor: does it run, does it go on, and has it a server."""

import os
import time
from contextlib import suppress
from typing import NamedTuple

from codexdrv.bell import ring
from codexdrv.doctor.finding import Finding, failed, note, ok, wrong
from codexdrv.health import judge_snapshot
from codexdrv.lock import FILE_NAME
from codexdrv.paths import Offence
from codexdrv.snapshot import Snapshot, load_snapshot


NAME = "supervisor"
START = "Start it: `codexdrv supervise`, best under your service manager."
LOOK = "`codexdrv status` shows more. A target that nothing can load is taken out of [targets]."
CONNECT_PATIENCE_S = 2.0
"""A healthy server is connected to within milliseconds, and then the status is written at once."""
POLL_S = 0.02
"""Reading the status file costs much less."""
PID_BYTES_MAX = 32
"""As much of the lock file as `lock` itself reads."""


class ResidentSeen(NamedTuple):
    """What the supervisor shows of itself."""

    #: It heard the bell.
    is_up: bool
    #: The process that holds the lock without having heard the bell.
    deaf: int | None
    #: What it said last; of one that is down: it ended without being told to.
    snapshot: Snapshot | None


def look_at_supervisor(directory: str, *, patience_s: float = 0.0) -> ResidentSeen:
    """Ring, and look at what the supervisor wrote; the lock is looked at, never taken.

    Args:
        directory: its state directory.
        patience_s: how long one without a server may take to connect: the bell cuts its pause
            between two tries short, and until now that may have been a minute.
    """
    if not ring(directory):
        return ResidentSeen(False, _lock_holder(directory), load_snapshot(directory))
    deadline = time.monotonic() + patience_s
    snapshot = load_snapshot(directory)
    while snapshot and snapshot.problem and time.monotonic() < deadline:
        time.sleep(POLL_S)
        snapshot = load_snapshot(directory)
    return ResidentSeen(True, None, snapshot)


def judge_supervisor(
    seen: ResidentSeen | Offence, *, live: int, is_told: bool, version: str, now_ms: int
) -> Finding:
    """Say whether deliveries are dispatched.

    Args:
        seen: what it shows.
        live: how many deliveries wait for it.
        is_told: other checks say already why it has no server.
        version: ours.
        now_ms: the wall clock.
    """
    if isinstance(seen, Offence):
        return failed(NAME, seen)
    if seen.deaf is not None:
        return wrong(
            NAME,
            f"pid {seen.deaf} holds the lock, but does not hear the bell",
            f"Start it anew: `kill {seen.deaf}`, then `codexdrv supervise`.",
        )
    if not seen.is_up:
        return _judge_absence(live, is_gone=seen.snapshot is not None)
    if seen.snapshot is None:
        return wrong(NAME, "up, but it has written no status", "Look into its log; start it anew.")
    return _judge_picture(seen.snapshot, is_told=is_told, version=version, now_ms=now_ms)


def _judge_absence(live: int, *, is_gone: bool) -> Finding:
    if live:
        waiting = "1 delivery waits" if live == 1 else f"{live} deliveries wait"
        return wrong(NAME, f"down, and {waiting} for it", START)
    if is_gone:
        return wrong(NAME, "down, and nobody had told it to stop: its log says why", START)
    return note(NAME, "down; nothing waits", START)


def _judge_picture(snapshot: Snapshot, *, is_told: bool, version: str, now_ms: int) -> Finding:
    body = snapshot.body
    who = f"up, pid {body.get('pid')}, life {body.get('life')}"
    if snapshot.is_stale(now_ms):
        silent_s = (now_ms - snapshot.written_at_ms) // 1000
        return wrong(
            NAME,
            f"{who}, but has not written its status for {silent_s} s",
            "It hangs, or cannot write: look into its log and at the disk, then start it anew.",
        )
    if snapshot.problem is not None:
        said = f"{who}, without a server: {' '.join(snapshot.problem.split())}"
        if is_told:
            return note(NAME, said, "It connects by itself when that is mended (see above).")
        return wrong(NAME, said, "It tries again by itself; if that does not help, see its log.")
    if snapshot.version != version:
        return note(
            NAME,
            f"{who}, is codexdrv {snapshot.version}; installed is {version}",
            "Start it anew, to run the installed one.",
        )
    if problems := judge_snapshot(snapshot, now_ms):
        return wrong(NAME, f"{who}, connected; {'; '.join(problems)}", LOOK)
    return ok(NAME, f"{who}, connected")


def _lock_holder(directory: str) -> int | None:
    """Name the process that holds the lock, without touching it: a start must not meet us there.

    By pid, not by inode: what /proc/locks shows of that differs on layered file systems.
    """
    with suppress(OSError, ValueError):
        with open(os.path.join(directory, FILE_NAME), "rb") as file:
            pid = int(file.read(PID_BYTES_MAX))
        with open("/proc/locks", encoding="ascii") as locks:
            rows = [line.split() for line in locks]
        # "1: FLOCK  ADVISORY  WRITE 4242 fe:00:1234 0 EOF" (proc(5)).
        if any(row[1:5] == ["FLOCK", "ADVISORY", "WRITE", str(pid)] for row in rows):
            return pid
    return None
