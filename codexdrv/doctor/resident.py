"""The supervisor: does it run, does it go on, and has it a server."""

import os
import time
from contextlib import suppress
from typing import NamedTuple

from codexdrv.bell import ring
from codexdrv.doctor.finding import Finding, failed, note, ok, wrong
from codexdrv.health import (
    HUNG,
    START,
    judge_connection,
    judge_journal,
    judge_oldest,
    judge_served,
    tell_changed,
)
from codexdrv.lock import FILE_NAME
from codexdrv.paths import Offence
from codexdrv.rules.lifecycle import Delivery
from codexdrv.snapshot import Snapshot, load_snapshot


NAME = "supervisor"
ANEW = "Start it anew, to run the installed one."
RESTART = "Restart it; SIGHUP takes the targets alone."
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


class Around(NamedTuple):
    """What else was seen that a supervisor is judged by."""

    #: How many deliveries wait for it.
    live: int
    #: The one of them that was admitted first.
    oldest: Delivery | None
    #: Other checks say already why it has no server.
    is_told: bool
    #: The keys of `[server]` that it runs with otherwise than the configuration says.
    changed: list[str]
    #: Ours.
    version: str
    #: The wall clock.
    now_ms: int


def judge_supervisor(seen: ResidentSeen | Offence, around: Around) -> list[Finding]:
    """Say whether deliveries are dispatched: all that `status` says, each with its remedy."""
    if isinstance(seen, Offence):
        return [failed(NAME, seen)]
    old = [wrong(NAME, *problem) for problem in judge_oldest(around.oldest, around.now_ms)]
    if seen.is_up and seen.snapshot is not None:
        return [*_judge_picture(seen.snapshot, around), *old]
    return [_judge_silence(seen, around.live), *old]


def _judge_silence(seen: ResidentSeen, live: int) -> Finding:
    if seen.deaf is not None:
        return wrong(
            NAME,
            f"pid {seen.deaf} holds the lock, but does not hear the bell",
            f"Start it anew: `kill {seen.deaf}`, then `codexdrv supervise`.",
        )
    if seen.is_up:
        return wrong(NAME, "up, but it has written no status", "Look into its log; start it anew.")
    if live:
        waiting = "1 delivery waits" if live == 1 else f"{live} deliveries wait"
        return wrong(NAME, f"down, and {waiting} for it", START)
    if seen.snapshot is not None and not seen.snapshot.has_ended:
        return wrong(NAME, "down, and nobody had told it to stop: its log says why", START)
    return note(NAME, "down; nothing waits", START)


def _judge_picture(snapshot: Snapshot, around: Around) -> list[Finding]:
    body, now_ms = snapshot.body, around.now_ms
    who = f"up, pid {body.get('pid')}, life {body.get('life')}"
    if other := snapshot.stranger(around.version):
        return [wrong(NAME, f"{who}, is {other}; installed is {around.version}", ANEW)]
    if snapshot.is_stale(now_ms):
        silent_s = (now_ms - snapshot.written_at_ms) // 1000
        return [wrong(NAME, f"{who}, but has not written its status for {silent_s} s", HUNG)]
    findings = _judge_connection(snapshot, who, is_told=around.is_told)
    problems = [*judge_journal(snapshot), *judge_served(snapshot, now_ms)]
    findings += [wrong(NAME, *problem) for problem in problems]
    if around.changed:
        findings.append(note(NAME, tell_changed(around.changed), RESTART))
    return findings


def _judge_connection(snapshot: Snapshot, who: str, *, is_told: bool) -> list[Finding]:
    findings = []
    for problem, remedy in judge_connection(snapshot):
        said = f"{who}, without a server: {' '.join(problem.split())}"
        mended = "It connects by itself when that is mended (see above)."
        findings.append(note(NAME, said, mended) if is_told else wrong(NAME, said, remedy))
    return findings or [ok(NAME, f"{who}, connected")]


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
