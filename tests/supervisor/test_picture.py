"""The status file as the supervisor writes it is what a reader reads, whole."""

import json
import os
import stat
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from codexdrv.config import Target, load_config
from codexdrv.connect import attach
from codexdrv.driver import Driver
from codexdrv.engine.watch import ThreadWatch
from codexdrv.health import server_table
from codexdrv.ids import TurnId
from codexdrv.journal.journal import Journal
from codexdrv.protocol.events import ThreadStatus
from codexdrv.protocol.questions import Policy
from codexdrv.rules.lifecycle import WhenBusy
from codexdrv.rules.thread import RunningTurn, Subscription, ThreadState, TurnKind
from codexdrv.snapshot import FILE_NAME, FORMAT, load_snapshot
from supervisor.life import Life
from supervisor.picture import draw, end_snapshot, say, write_snapshot
from supervisor.upgrade import Upgrade
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
def life(tmp_path):
    """A life whose driver has not begun to run."""

    async def in_thread(work):
        return work()

    config = load_config(None, {"HOME": str(tmp_path)})
    targets = {"ops": Target(THREAD, WhenBusy.STEER), "also": Target(THREAD, WhenBusy.STEER)}
    config = config._replace(targets=targets)
    with Journal(config.state.directory) as journal:
        driver = Driver(
            config,
            journal,
            connect=partial(attach, config.server.socket),
            policy=Policy.LEAVE,
            life=3,
            began_ms=1_000,
            version="0.1.0",
            in_thread=in_thread,
        )
        yield Life(config, driver, 3, 1_000, "0.1.0")


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


def test_a_life_without_a_server_says_why(life):
    picture = draw(life, Upgrade(life.config.server))
    assert say(picture) == "No server: not connected yet"
    assert picture.pop("written_at_ms") > 1_000
    assert picture == {
        "pid": os.getpid(),
        "version": "0.1.0",
        "format": FORMAT,
        "config": server_table(life.config.server),
        "ended": False,
        "life": 3,
        "began_at_ms": 1_000,
        "server": {
            "connected": False,
            "generation": 0,
            "since_ms": None,
            "restarts": 0,
            "pid": None,
            "start_ticks": None,
            "boot_id": None,
            "version": None,
            "user_agent": None,
            "codex_home": None,
            "problem": "not connected yet",
            "silent_s": None,
            "answered_s": None,
            "version_on_disk": None,
            "outdated": False,
        },
        "journal_problem": None,
        "threads": {},
        "questions": [],
    }


def test_every_thread_is_drawn_as_it_is_known(life, tmp_path):
    running = ThreadState(
        ThreadStatus.ACTIVE,
        Subscription.SUBSCRIBED,
        RunningTurn(TurnId("t1"), TurnKind.REGULAR),
        is_waiting=True,
    )
    held = ThreadState(ThreadStatus.NOT_LOADED, Subscription.HELD_ELSEWHERE)
    for thread, state in {THREAD: running, OTHER_THREAD: held}.items():
        watch = ThreadWatch(thread, None, None)
        watch.state, watch.holders = state, frozenset({8, 7})
        life.driver._lanes._lanes[thread] = SimpleNamespace(
            watch=watch, problem=str(state.subscription)
        )
    write_snapshot(str(tmp_path), draw(life, Upgrade(life.config.server)))
    assert load_snapshot(str(tmp_path)).body["threads"] == {
        THREAD: {
            "targets": ["also", "ops"],
            "status": "active",
            "subscription": "subscribed",
            "turn": "t1",
            "waiting": True,
            "problem": "subscribed",
            "holders": [],
        },
        OTHER_THREAD: {
            "targets": [],
            "status": "notLoaded",
            "subscription": "held_elsewhere",
            "turn": None,
            "waiting": False,
            "problem": "held_elsewhere",
            "holders": [7, 8],
        },
    }


def test_how_we_are_is_a_sentence(life):
    picture = draw(life, Upgrade(life.config.server))
    picture["server"] |= {"connected": True, "version": "0.171.0", "pid": 42}
    said = "Connected to codex 0.171.0, pid 42; threads: 0; open questions: 0"
    assert say(picture) == said


def test_the_last_picture_says_that_the_end_was_meant(life, tmp_path):
    end_snapshot(str(tmp_path))
    assert load_snapshot(str(tmp_path)) is None
    write_snapshot(str(tmp_path), draw(life, Upgrade(life.config.server)))
    assert not load_snapshot(str(tmp_path)).has_ended
    end_snapshot(str(tmp_path))
    assert load_snapshot(str(tmp_path)).has_ended
