"""The status file as the supervisor writes it is what a reader reads, whole."""

import json
import os
import stat
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from codexdrv.config import load_config
from codexdrv.connect import attach
from codexdrv.driver import Driver
from codexdrv.ids import TurnId
from codexdrv.journal.journal import Journal
from codexdrv.protocol.events import ThreadStatus
from codexdrv.protocol.questions import Policy
from codexdrv.rules.thread import RunningTurn, Subscription, ThreadState, TurnKind
from codexdrv.snapshot import FILE_NAME, load_snapshot
from supervisor.picture import draw, write_snapshot
from tests.fakes.children import run_child
from tests.fakes.orders import OTHER_THREAD, THREAD


CRAMPED = """
import resource, sys
from supervisor.picture import write_snapshot
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    write_snapshot(sys.argv[1], {"written_at_ms": 2})
except OSError as error:
    print(error.strerror)
"""
"""It may write ten bytes into a file, as if the disk were full then."""


@pytest.fixture
def driver(tmp_path):
    """A driver that has not begun to run."""

    async def in_thread(work):
        return work()

    config = load_config(None, {"HOME": str(tmp_path)})
    with Journal(config.state.directory) as journal:
        yield Driver(
            config,
            journal,
            connect=partial(attach, config.server.socket),
            policy=Policy.LEAVE,
            life=3,
            began_ms=1_000,
            version="0.1.0",
            in_thread=in_thread,
        )


def test_a_picture_is_read_back_as_it_was_written(tmp_path):
    picture = {"written_at_ms": 5, "threads": {"ü": {"turn": None}}}
    write_snapshot(str(tmp_path), picture)
    assert load_snapshot(str(tmp_path)) == (5, picture)


def test_a_picture_is_private_and_leaves_no_draft(tmp_path):
    before = os.umask(0)
    try:
        write_snapshot(str(tmp_path), {"written_at_ms": 5})
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


def test_whoever_reads_the_last_picture_reads_it_to_its_end(tmp_path):
    write_snapshot(str(tmp_path), {"written_at_ms": 1, "long": "x" * 100_000})
    with Path(tmp_path, FILE_NAME).open() as reader:
        start = reader.read(10)
        write_snapshot(str(tmp_path), {"written_at_ms": 2})
        assert json.loads(start + reader.read())["written_at_ms"] == 1
    assert load_snapshot(str(tmp_path)).written_at_ms == 2


def test_a_draft_that_a_dead_life_left_is_overwritten(tmp_path):
    (tmp_path / f"{FILE_NAME}.{os.getpid()}").write_text("x" * 1000)
    write_snapshot(str(tmp_path), {"written_at_ms": 5})
    assert load_snapshot(str(tmp_path)) == (5, {"written_at_ms": 5})


def test_a_picture_that_finds_no_room_leaves_the_last_one_and_no_draft(tmp_path):
    write_snapshot(str(tmp_path), {"written_at_ms": 1})
    assert run_child(CRAMPED, str(tmp_path)) == "File too large\n"
    assert load_snapshot(str(tmp_path)).written_at_ms == 1
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_life_without_a_server_says_why(driver):
    picture = draw(driver, life=3, began_ms=1_000, version="0.1.0")
    assert picture.pop("written_at_ms") > 1_000
    assert picture == {
        "pid": os.getpid(),
        "version": "0.1.0",
        "life": 3,
        "began_at_ms": 1_000,
        "server": {
            "connected": False,
            "generation": 0,
            "pid": None,
            "version": None,
            "user_agent": None,
            "codex_home": None,
            "problem": "not connected yet",
            "silent_s": None,
        },
        "threads": {},
        "questions": [],
    }


def test_every_thread_is_drawn_as_it_is_known(driver, tmp_path):
    running = ThreadState(
        ThreadStatus.ACTIVE,
        Subscription.SUBSCRIBED,
        RunningTurn(TurnId("t1"), TurnKind.REGULAR),
        is_waiting=True,
    )
    states = {THREAD: running, OTHER_THREAD: ThreadState()}
    for thread, state in states.items():
        driver._lanes._lanes[thread] = SimpleNamespace(watch=SimpleNamespace(state=state))
    write_snapshot(str(tmp_path), draw(driver, life=3, began_ms=1_000, version="0.1.0"))
    assert load_snapshot(str(tmp_path)).body["threads"] == {
        THREAD: {"status": "active", "subscription": "subscribed", "turn": "t1", "waiting": True},
        OTHER_THREAD: {"status": "unknown", "subscription": "none", "turn": None, "waiting": False},
    }
