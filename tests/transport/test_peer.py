import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from codexdrv.transport.peer import (
    PeerIdentity,
    current_boot,
    identify,
    identify_server,
    is_gone,
    peer_of,
    writers_of,
)
from tests.fakes.children import start_child


BOOT_ID = "6f4f7bd1-6fc9-4a0c-9ad0-000000000000"


class Proc:
    """A directory that looks like /proc, where a test needs what it cannot make happen."""

    def __init__(self, path):
        self.path = str(path)
        self._root = path
        (path / "sys/kernel/random").mkdir(parents=True)
        self.boot(BOOT_ID)

    def boot(self, boot_id):
        (self._root / "sys/kernel/random/boot_id").write_text(f"{boot_id}\n")

    def show(self, pid, *, name="codex", state="S", threads=3, ticks=500, exe=None):
        entry = self._root / str(pid)
        entry.mkdir(exist_ok=True)
        between = " ".join(["0"] * 16)
        (entry / "stat").write_text(f"{pid} ({name}) {state} {between} {threads} 0 {ticks} 0 0\n")
        (entry / "comm").write_text(f"{name}\n")
        if exe is not None:
            (entry / "exe").symlink_to(exe)

    def end(self, pid):
        (self._root / str(pid) / "stat").unlink()


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


@pytest.fixture
def child():
    """A process that ends when its stdin does."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        yield process


def test_a_living_process_has_one_identity():
    first = identify(os.getpid())
    assert first is not None
    assert first.pid == os.getpid()
    assert first.start_ticks > 0
    assert first == identify(os.getpid())
    assert not is_gone(first)


def test_two_processes_have_two_identities(child):
    ours, its = identify(os.getpid()), identify(child.pid)
    assert ours is not None
    assert its is not None
    assert its.boot_id == ours.boot_id
    assert its.start_ticks >= ours.start_ticks


def test_a_zombie_is_gone_and_so_is_what_was_reaped(child):
    identity = identify(child.pid)
    assert identity is not None
    assert not is_gone(identity)
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(identity)
    child.wait()
    assert is_gone(identity)


@pytest.mark.parametrize("pid", [0, -1])
def test_a_pid_that_is_none_is_unknown(pid):
    assert identify(pid) is None
    assert identify_server(pid) is None


def test_a_process_that_is_not_there_is_unknown(proc):
    assert identify(7, proc.path) is None


@pytest.mark.parametrize("text", ["", "7 (codex) S 1", "7 (codex) S " + "x " * 30, "7 codex S"])
def test_an_entry_that_cannot_be_read_is_unknown_but_not_gone(proc, tmp_path, text):
    proc.show(7)
    identity = identify(7, proc.path)
    assert identity is not None
    (tmp_path / "7/stat").write_text(text)
    assert identify(7, proc.path) is None
    assert not is_gone(identity, proc.path)


def test_a_name_with_parentheses_and_blanks_does_not_shift_the_fields(proc):
    proc.show(7, name="a) R 1 (b) Z", ticks=500)
    assert identify(7, proc.path) == PeerIdentity(7, 500, BOOT_ID)


def test_another_process_with_the_same_pid_is_not_the_one(proc):
    proc.show(7, ticks=500)
    identity = identify(7, proc.path)
    assert identity is not None
    proc.show(7, ticks=501)
    assert is_gone(identity, proc.path)


def test_nothing_outlives_a_boot(proc):
    proc.show(7)
    identity = identify(7, proc.path)
    assert identity is not None
    proc.boot("another")
    assert is_gone(identity, proc.path)


@pytest.mark.parametrize(
    ("state", "threads", "expected"),
    [("Z", 1, True), ("X", 0, True), ("Z", 2, False), ("D", 1, False), ("T", 1, False)],
)
def test_only_a_process_whose_last_thread_ended_is_dead(proc, state, threads, expected):
    proc.show(7)
    identity = identify(7, proc.path)
    assert identity is not None
    proc.show(7, state=state, threads=threads)
    assert is_gone(identity, proc.path) is expected


def test_without_proc_nothing_is_known_to_be_gone(proc, tmp_path):
    identity = PeerIdentity(7, 500, BOOT_ID)
    assert is_gone(identity, proc.path)
    (tmp_path / "sys/kernel/random/boot_id").unlink()
    assert not is_gone(identity, proc.path)
    assert identify(7, proc.path) is None


@pytest.mark.parametrize(
    ("name", "exe", "is_known"),
    [
        ("codex", "/opt/bin/codex", True),
        ("tokio-main", "/opt/codex-x86_64-unknown-linux-musl", True),
        ("codex", "/opt/bin/codex (deleted)", True),
        ("codex", None, True),
        ("codex", "/usr/bin/node", False),
        ("node", "/usr/bin/node", False),
        ("systemd", "/usr/lib/systemd/systemd", False),
        ("systemd", None, False),
        ("socat", "/usr/bin/socat", False),
        ("ssh", None, False),
    ],
)
def test_a_wrapper_an_activator_and_a_forwarder_are_not_the_server(proc, name, exe, is_known):
    proc.show(7, name=name, exe=exe)
    expected = PeerIdentity(7, 500, BOOT_ID) if is_known else None
    assert identify_server(7, proc.path) == expected


def test_a_server_that_has_ended_meanwhile_is_unknown(proc):
    proc.show(7)
    proc.end(7)
    assert identify_server(7, proc.path) is None


def test_the_kernel_says_who_is_at_the_other_end():
    one, other = socket.socketpair()
    with one, other:
        assert peer_of(one) == (os.getpid(), os.geteuid())


def test_the_boot_is_the_one_that_every_living_process_has(proc):
    ours = identify(os.getpid())
    assert ours is not None
    assert current_boot() == ours.boot_id
    assert current_boot(proc.path) == BOOT_ID


def test_without_proc_the_boot_is_unknown(tmp_path):
    assert current_boot(str(tmp_path)) is None


# Who writes a file.


@contextmanager
def opened_by_another(path, mode):
    """Let a second process have a file open; it ends when its stdin does."""
    script = "import sys; file = open(*sys.argv[1:]); print(flush=True); sys.stdin.read()"
    with start_child(script, str(path), mode) as process:
        process.stdout.readline()
        yield process.pid
        process.stdin.close()


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "rollout.jsonl"
    path.write_text("{}\n")
    return path


def test_a_file_that_nobody_has_open_has_no_writer(record):
    assert writers_of(str(record)) == set()


@pytest.mark.parametrize("mode", ["a", "r+", "w"])
def test_a_process_that_has_it_open_for_writing_is_a_writer(record, mode):
    with opened_by_another(record, mode) as pid:
        assert writers_of(str(record)) == {pid}
    assert writers_of(str(record)) == set()


def test_a_process_that_only_reads_it_is_none(record):
    with opened_by_another(record, "r"):
        assert writers_of(str(record)) == set()


def test_all_who_write_it_are_found(record):
    with opened_by_another(record, "a") as pid, record.open("a"), record.open():
        assert writers_of(str(record)) == {pid, os.getpid()}


def test_by_whatever_name_it_was_opened_it_is_the_same_file(record):
    link, other = record.with_name("link.jsonl"), record.with_name("other.jsonl")
    link.symlink_to(record)
    other.hardlink_to(record)
    with opened_by_another(link, "a") as one, opened_by_another(other, "a") as two:
        assert writers_of(str(record)) == {one, two}


def test_who_writes_another_file_beside_it_does_not_write_it(record):
    with opened_by_another(record.with_name("another.jsonl"), "a"):
        assert writers_of(str(record)) == set()


def test_a_file_that_is_not_there_has_no_writer(record):
    with opened_by_another(record, "a"):
        record.unlink()
        assert writers_of(str(record)) == set()


def test_what_cannot_be_looked_into_is_passed_over(proc, record):
    opened = record.parent / "7" / "fd"
    opened.mkdir(parents=True)
    # Its flags cannot be read; that of 8 has no list at all, as another user's has none for us.
    (opened / "3").symlink_to(record)
    (record.parent / "8").mkdir()
    assert writers_of(str(record), proc.path) == set()
    (opened.with_name("fdinfo")).mkdir()
    (opened.with_name("fdinfo") / "3").write_text("pos:\t0\nflags:\t02100001\nmnt_id:\t1\n")
    assert writers_of(str(record), proc.path) == {7}
