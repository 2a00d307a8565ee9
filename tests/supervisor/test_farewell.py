"""What is said of turns that a stop has cut; how they are waited for, the real server shows."""

import pytest
import structlog

from codexdrv.config import Listen, Server, Spawn
from supervisor.farewell import tell_cut
from supervisor.spawning import OwnServer


THREAD = "01a22e53-a4f4-7a02-a4ea-913bc8eebd38"


def told(threads, listen, *, was_cut):
    spawn = Spawn(listen, "decline", 30.0)
    own = OwnServer(Server("/s", "/home", spawn=spawn), spawn, lambda *_: None)
    own.was_cut = was_cut
    with structlog.testing.capture_logs() as lines:
        tell_cut(threads, spawn, own)
    return lines


@pytest.mark.parametrize(
    ("listen", "was_cut", "is_told"),
    [
        (Listen.UNIX, True, True),
        # The server had the same time once more, for all its clients.
        (Listen.UNIX, False, False),
        # It ends at once, turn or not.
        (Listen.STDIO, False, True),
    ],
)
def test_a_turn_was_cut_where_the_server_did_not_wait_for_it(listen, was_cut, is_told):
    lines = told([THREAD], listen, was_cut=was_cut)
    assert [(line["event"], line["threads"]) for line in lines] == (
        [("turn.cut", [THREAD])] if is_told else []
    )


def test_where_no_turn_ran_none_was_cut():
    assert told([], Listen.STDIO, was_cut=True) == []
    # Attached, no server ends with us.
    tell_cut([THREAD], None, None)
