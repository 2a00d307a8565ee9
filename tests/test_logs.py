"""Logs: JSON lines for machines, words for a terminal, and no more than was asked for."""

import errno
import io
import json
import os
from datetime import datetime

import pytest
import structlog

from codexdrv.logs import configure_logs


@pytest.fixture(autouse=True)
def as_before():
    yield
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


@pytest.fixture
def stream():
    with io.TextIOWrapper(io.BytesIO()) as stream:
        yield stream


@pytest.fixture
def terminal():
    ours, theirs = os.openpty()
    with open(ours, "rb", buffering=0) as screen, open(theirs, "w") as terminal:
        yield terminal, screen


def lines(stream):
    return [json.loads(line) for line in stream.buffer.getvalue().splitlines()]


def test_a_line_is_an_object_with_its_event_level_and_time(stream):
    configure_logs(stream=stream)
    structlog.get_logger().info("delivery.settled", attempts=2, why="grün")
    (line,) = lines(stream)
    assert datetime.fromisoformat(line.pop("timestamp")).utcoffset().total_seconds() == 0
    assert line == {"event": "delivery.settled", "level": "info", "attempts": 2, "why": "grün"}


def test_bytes_that_are_no_text_do_not_end_anything(stream):
    configure_logs(stream=stream)
    structlog.get_logger().info("life.begun", state=os.fsdecode(b"/home/\xff"))
    (line,) = lines(stream)
    assert os.fsencode(line["state"]) == b"/home/\xff"


def test_details_are_logged_only_when_asked_for(stream):
    configure_logs(stream=stream)
    structlog.get_logger().debug("delivery.routed")
    assert lines(stream) == []
    configure_logs(is_verbose=True, stream=stream)
    structlog.get_logger().debug("delivery.routed")
    assert [line["level"] for line in lines(stream)] == ["debug"]


def test_bound_ids_are_in_every_line(stream):
    configure_logs(stream=stream)
    structlog.contextvars.bind_contextvars(life=3)
    structlog.get_logger().warning("generation.ended", error="no server")
    (line,) = lines(stream)
    assert (line["life"], line["error"]) == (3, "no server")


def test_an_exception_stays_in_one_line(stream):
    configure_logs(stream=stream)
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        structlog.get_logger().exception("life.failed")
    (line,) = lines(stream)
    assert "ZeroDivisionError" in line["exception"]


def test_a_terminal_gets_words(terminal):
    theirs, screen = terminal
    configure_logs(stream=theirs)
    structlog.get_logger().info("life.begun", state="/srv/state")
    theirs.flush()
    said = screen.read(4096).decode()
    assert "life.begun" in said
    assert "/srv/state" in said
    assert not said.startswith("{")


@pytest.mark.parametrize(("no_color", "is_colored"), [("1", False), ("", True), (None, True)])
def test_a_terminal_gets_colours_unless_the_user_wants_none(
    terminal, monkeypatch, no_color, is_colored
):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    theirs, screen = terminal
    configure_logs(stream=theirs)
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        structlog.get_logger().exception("life.failed", state="/srv/state")
    theirs.flush()
    assert ("\x1b[" in screen.read(65_536).decode()) is is_colored


def test_a_line_begins_with_what_a_person_reads_first_and_keeps_the_order_of_its_fields(stream):
    configure_logs(stream=stream)
    structlog.get_logger().info("delivery.recorded", delivery_id="m1", phase="queued", after_ms=3)
    (line,) = lines(stream)
    assert list(line) == ["timestamp", "level", "event", "delivery_id", "phase", "after_ms"]


class Full(io.RawIOBase):
    """A disk that is full."""

    def writable(self):
        return True

    def write(self, _):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_that_cannot_be_written_costs_its_line_and_nothing_else():
    stream = io.TextIOWrapper(io.BufferedWriter(Full()))
    configure_logs(stream=stream)
    structlog.get_logger().error("journal.unwritable")
    structlog.get_logger().info("delivery.recorded")
