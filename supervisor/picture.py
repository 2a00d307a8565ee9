"""The status file: draw what the driver knows, and put it in place at once."""

import json
import os
from typing import Any

from codexdrv.clock import now_ms
from codexdrv.driver import Driver
from codexdrv.engine.questions import question_object
from codexdrv.snapshot import FILE_NAME


def draw(driver: Driver, *, life: int, began_ms: int, version: str) -> dict[str, Any]:
    """Say how the supervisor, its server and its threads stand."""
    link = driver.link()
    return {
        "written_at_ms": now_ms(),
        "pid": os.getpid(),
        "version": version,
        "life": life,
        "began_at_ms": began_ms,
        "server": {
            "connected": link.is_connected,
            "generation": link.generation,
            "pid": link.server_pid,
            "version": link.version,
            "user_agent": link.user_agent,
            "codex_home": link.codex_home,
            "problem": link.problem,
            "silent_s": None if link.silent_s is None else round(link.silent_s, 3),
        },
        "threads": {
            thread: {
                "status": str(watch.state.status),
                "subscription": str(watch.state.subscription),
                "turn": watch.state.turn.id if watch.state.turn else None,
                "waiting": watch.state.is_waiting,
            }
            for thread, watch in driver.threads().items()
        },
        "questions": [question_object(question) for question in driver.questions()],
    }


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
