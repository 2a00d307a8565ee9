"""What the server says on stderr is logged as far as a person reads it; bodies never."""

import pytest
import structlog

from supervisor.remarks import LINES_A_MINUTE, MINUTE_S, Remarks


class Clock:
    now_s = 5.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def hear(remarks, *lines):
    with structlog.testing.capture_logs() as logged:
        for line in lines:
            remarks.hear(line)
    return [(each["line"], each.get("left_out")) for each in logged]


def test_a_line_is_logged_as_it_is(clock):
    line = "2026-11-30T20:36:21.012345Z  WARN codex_core::rollout: no room"
    assert hear(Remarks(clock), line, "Error: bad config") == [
        (line, None),
        ("Error: bad config", None),
    ]


@pytest.mark.parametrize("level", ["TRACE", "DEBUG"])
def test_chatter_that_may_quote_messages_is_only_counted(clock, level):
    chatter = f"2026-11-30T20:36:21.012345Z {level} codex_core: the secret text"
    assert hear(Remarks(clock), chatter, chatter, "bye") == [("bye", 2)]
    # A word in a sentence is no level.
    assert hear(Remarks(clock), f"set {level} to see more") != []


def test_a_flood_is_cut_and_counted_and_the_next_minute_is_a_new_one(clock):
    remarks = Remarks(clock)
    flood = [f"line {number}" for number in range(LINES_A_MINUTE + 40)]
    assert hear(remarks, *flood) == [(line, None) for line in flood[:LINES_A_MINUTE]]
    clock.now_s += MINUTE_S
    assert hear(remarks, "one", "two") == [("one", 40), ("two", None)]
