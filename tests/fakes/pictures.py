"""The status file of a supervisor that nobody runs."""

from typing import Any

from codexdrv import __version__
from codexdrv.snapshot import FORMAT, Snapshot
from tests.fakes.orders import NOW_MS, THREAD, TURN


FAR_FUTURE_MS = 4_000_000_000_000
"""A picture of then is never stale: no test has to be quick."""

CONNECTED: dict[str, Any] = {
    "connected": True,
    "generation": 2,
    "since_ms": NOW_MS,
    "restarts": 1,
    "pid": 4242,
    "start_ticks": 99,
    "boot_id": "boot",
    "version": "0.163.0",
    "user_agent": "codex/0.163.0 (Linux)",
    "codex_home": "/home/me/.codex",
    "problem": None,
    "silent_s": 1.4,
    "answered_s": 2.4,
    "version_on_disk": "0.163.0",
    "outdated": False,
}
ALONE: dict[str, Any] = dict.fromkeys(CONNECTED) | {
    "connected": False,
    "generation": 2,
    "restarts": 1,
    "problem": "nothing listens on /x.sock",
    "outdated": False,
}
CONFIG: dict[str, Any] = {
    "mode": "attach",
    "socket": "/x.sock",
    "codex_home": "/home/me/.codex",
    "codex": None,
    "listen": None,
    "approvals": None,
    "stop_grace_s": None,
    "deaths_max": None,
}
SUBSCRIBED: dict[str, Any] = {
    "targets": ["ops"],
    "status": "active",
    "subscription": "subscribed",
    "turn": TURN,
    "waiting": False,
    "problem": None,
    "holders": [],
}
QUESTION: dict[str, Any] = {
    "id": "0123456789abcdef",
    "method": "item/commandExecution/requestApproval",
    "kind": "command",
    "thread": THREAD,
    "turn": TURN,
    "since_ms": NOW_MS,
    "summary": "run “make”",
    "decisions": ["accept", "accept-for-session", "decline", "cancel"],
    "questions": [],
    "required": [],
}


def make_picture(server: dict[str, Any] = CONNECTED, **kept: Any) -> dict[str, Any]:
    """Draw one that was written far in the future, if nothing else is said."""
    return {
        "written_at_ms": FAR_FUTURE_MS,
        "pid": 77,
        "version": __version__,
        "format": FORMAT,
        "config": CONFIG,
        "ended": False,
        "life": 3,
        "began_at_ms": NOW_MS,
        "server": server,
        "journal_problem": None,
        "threads": {THREAD: SUBSCRIBED},
        "questions": [],
    } | kept


def make_snapshot(server: dict[str, Any] = CONNECTED, *, age_ms: int = 0, **kept: Any) -> Snapshot:
    """Read one that was written at `NOW_MS`, or before."""
    written_ms = NOW_MS - age_ms
    return Snapshot(written_ms, make_picture(server, written_at_ms=written_ms, **kept))
