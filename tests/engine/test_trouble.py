"""A failure that repeats is one line, and so is its end."""

import anyio
import pytest
import structlog

from codexdrv.engine.trouble import Trouble


@pytest.mark.field_report("ccteam#189", "agmsg#906", "agmsg#1236")
async def test_failures_are_counted_and_told_once_a_reason_and_so_is_the_end():
    trouble = Trouble("disk.full", "disk.free")
    with structlog.testing.capture_logs() as lines:
        for reason in ("no room", "no room", "no room", "read only", "no room"):
            trouble.note(reason, notes=2)
            await anyio.sleep(1)
        trouble.end(notes=0)
    assert lines == [
        told("disk.full", "warning", error="no room", count=1, notes=2),
        told("disk.full", "warning", error="read only", count=4, notes=2),
        told("disk.full", "warning", error="no room", count=5, notes=2),
        told("disk.free", "info", after_failures=5, lasted_s=5.0, notes=0),
    ]


async def test_what_works_is_not_told():
    trouble = Trouble("disk.full", "disk.free")
    with structlog.testing.capture_logs() as lines:
        trouble.end()
        trouble.note("no room")
        trouble.end()
        trouble.end()
    assert [line["event"] for line in lines] == ["disk.full", "disk.free"]


async def test_a_trouble_that_comes_back_is_told_anew():
    trouble = Trouble("disk.full", "disk.free")
    with structlog.testing.capture_logs() as lines:
        for _ in range(2):
            trouble.note("no room")
            trouble.end()
    assert [line["event"] for line in lines] == ["disk.full", "disk.free"] * 2


def told(event, level, **fields):
    return {"event": event, "log_level": level, **fields}
