import os
from contextlib import contextmanager

import pytest

from codexdrv.engine.surroundings import REAL, ROOM_BYTES_MIN
from codexdrv.journal.dispatch import Peer
from codexdrv.rules.evidence import Fate
from codexdrv.transport.peer import identify
from tests.fakes.children import start_child
from tests.fakes.orders import THREAD


@pytest.fixture
def me():
    identity = identify(os.getpid())
    assert identity is not None
    return identity


@pytest.fixture
def record(tmp_path):
    day = tmp_path / "sessions" / "2027" / "01" / "15"
    path = day / f"rollout-2027-01-15T08-00-00-{THREAD}.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


@contextmanager
def written_by_another(path):
    """Let a second process have a file open to write; it ends when its stdin does."""
    script = "import sys; file = open(sys.argv[1], 'a'); print(flush=True); sys.stdin.read()"
    with start_child(script, str(path)) as process:
        process.stdout.readline()
        yield identify(process.pid)
        process.stdin.close()


# What became of a server.


def test_a_process_that_runs_is_alive(me):
    assert REAL.fate_of(Peer(*me)) is Fate.ALIVE


def test_a_process_that_has_ended_is_gone(record):
    with written_by_another(record) as server:
        assert REAL.fate_of(Peer(*server)) is Fate.ALIVE
    assert REAL.fate_of(Peer(*server)) is Fate.GONE


def test_another_process_under_its_pid_is_not_it(me):
    assert REAL.fate_of(Peer(*me._replace(start_ticks=me.start_ticks + 1))) is Fate.GONE


def test_of_a_process_of_another_boot_the_record_may_have_lost_its_end(me):
    assert REAL.fate_of(Peer(*me._replace(boot_id="another"))) is Fate.HOST_RESTARTED


def test_what_nobody_noted_is_unknown():
    assert REAL.fate_of(None) is Fate.UNKNOWN


# Who else writes.


def test_of_a_process_in_another_pid_namespace_nothing_is_known(me):
    elsewhere = me._replace(namespace="pid:[1]")
    assert REAL.fate_of(Peer(*elsewhere)) is Fate.UNKNOWN
    assert REAL.fate_of(Peer(*elsewhere._replace(pid=4_000_000))) is Fate.UNKNOWN


def test_a_record_that_the_server_has_not_open_is_written_elsewhere(record, me):
    assert not REAL.is_sole_writer(str(record), me)
    assert not REAL.is_sole_writer(str(record), None)


def test_a_record_that_there_is_not_yet_is_written_by_nobody(record, me):
    record.unlink()
    assert REAL.is_sole_writer(str(record), me)
    assert REAL.is_sole_writer(str(record), None)


def test_a_record_that_was_replaced_while_it_was_open_is_written_elsewhere(record, me, tmp_path):
    with record.open("a"):
        (tmp_path / "new").write_text("")
        os.replace(tmp_path / "new", record)
        assert not REAL.is_sole_writer(str(record), me)


def test_a_server_that_has_it_open_is_its_sole_writer(record, me):
    with record.open("a"):
        assert REAL.is_sole_writer(str(record), me)


def test_a_second_process_that_has_it_open_is_another_writer(record, me):
    with record.open("a"), written_by_another(record) as other:
        assert not REAL.is_sole_writer(str(record), me)
        assert not REAL.is_sole_writer(str(record), other)


def test_who_only_reads_it_is_no_writer(record, me):
    with record.open(), written_by_another(record) as server:
        assert REAL.is_sole_writer(str(record), server)


def test_where_the_server_is_unknown_the_only_one_that_has_it_open_is_the_server(record):
    with written_by_another(record):
        assert REAL.is_sole_writer(str(record), None)
        with record.open("a"):
            assert not REAL.is_sole_writer(str(record), None)


# Whether there is room.


def test_a_disk_with_space_has_room(record):
    status = os.statvfs(record)
    assert status.f_bavail * status.f_frsize >= ROOM_BYTES_MIN, "the disk of the tests is full"
    assert REAL.has_room(str(record))


def test_a_file_system_without_a_free_block_has_none():
    # /proc has no blocks at all.
    assert not REAL.has_room("/proc/rollout.jsonl")


def test_where_it_cannot_be_told_there_may_be_room(tmp_path):
    assert REAL.has_room(str(tmp_path / "missing" / "rollout.jsonl"))
