"""The status file: draw what the driver knows, and put it in place at once."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from codexdrv.clock import now_ms
from codexdrv.config import Target
from codexdrv.engine.question import question_object
from codexdrv.engine.session import Link
from codexdrv.engine.watch import ThreadWatch
from codexdrv.health import server_table
from codexdrv.snapshot import FILE_NAME, FORMAT, load_snapshot
from supervisor.life import Life
from supervisor.upgrade import Upgrade


def draw(life: Life, upgrade: Upgrade) -> dict[str, Any]:
    """Say how the supervisor, its server and its threads stand."""
    driver, problems = life.driver, life.driver.problems()
    return {
        "written_at_ms": now_ms(),
        "pid": os.getpid(),
        "version": life.version,
        "format": FORMAT,
        "config": server_table(life.config.server),
        "ended": False,
        "life": life.number,
        "began_at_ms": life.began_ms,
        "server": _server(driver.link(), upgrade),
        "journal_problem": driver.journal_problem,
        "threads": {
            thread: _thread(watch, driver.targets, problems.get(thread))
            for thread, watch in driver.threads().items()
        },
        "questions": [question_object(question) for question in driver.questions()],
    }


def say(picture: dict[str, Any]) -> str:
    """Say in a sentence how we are, for `systemctl status`."""
    server = picture["server"]
    if not server["connected"]:
        return f"No server: {server['problem']}"
    threads, questions = len(picture["threads"]), len(picture["questions"])
    return (
        f"Connected to codex {server['version'] or '(unknown)'}, pid {server['pid']};"
        f" threads: {threads}; open questions: {questions}"
    )


def _server(link: Link, upgrade: Upgrade) -> dict[str, Any]:
    return {
        "connected": link.is_connected,
        "generation": link.generation,
        "since_ms": link.since_ms,
        "restarts": link.restarts,
        "pid": link.server_pid,
        "start_ticks": link.peer.start_ticks if link.peer else None,
        "boot_id": link.peer.boot_id if link.peer else None,
        "version": link.version,
        "user_agent": link.user_agent,
        "codex_home": link.codex_home,
        "problem": link.problem,
        "silent_s": _rounded(link.silent_s),
        "answered_s": _rounded(link.answered_s),
        "version_on_disk": upgrade.version,
        "outdated": upgrade.is_due,
    }


def _thread(
    watch: ThreadWatch, targets: Mapping[str, Target], problem: str | None
) -> dict[str, Any]:
    return {
        "targets": sorted(name for name, each in targets.items() if each.thread == watch.thread),
        "status": str(watch.state.status),
        "subscription": str(watch.state.subscription),
        "turn": watch.state.turn.id if watch.state.turn else None,
        "waiting": watch.state.is_waiting,
        "problem": problem,
        "holders": sorted(watch.holders) if watch.holder else [],
    }


def end_snapshot(directory: str) -> None:
    """Write into the last picture that we end because we were told to; nobody need wonder."""
    if last := load_snapshot(directory):
        with suppress(OSError):
            write_snapshot(directory, last.body | {"ended": True})


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def write_snapshot(directory: str, picture: dict[str, Any]) -> None:
    """Put a picture in place of the last one; readers see one or the other, whole.

    Raises:
        OSError: it cannot be written; the last one stays.
    """
    path = f"{directory}/{FILE_NAME}"
    draft = f"{path}.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(picture, file)
        os.replace(draft, path)
    except OSError:
        # On a full disk, half a picture would take up room that the journal needs.
        os.unlink(draft)
        raise
