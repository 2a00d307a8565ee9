"""What stands around codexdrv goes wrong: each thing is told clearly, nothing is sent or lost.

What can end by itself is got over by itself: the supervisor that runs meanwhile goes on.
"""

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from codexdrv.errors import (
    ExitCode,
    JournalBusy,
    JournalUnsafe,
    JournalUnusable,
    NoServer,
    UnsafeSocket,
)
from codexdrv.journal.opening import BUSY_TIMEOUT_S, FILE_NAME
from codexdrv.paths import UNIX_PATH_BYTES_MAX
from tests.acceptance.binaries import by_version
from tests.acceptance.kit import Rig, Said
from tests.acceptance.machine import Machine, Ran
from tests.acceptance.mounts import AS_ROOT, Disk, as_root, network_disk, small_disk
from tests.acceptance.scenes import ASK, BUSY, FIRST, agreed, asking_turn, held_turn, used_thread
from tests.fakes.children import start_child


STRANGER = 54321
"""A uid that nobody has."""

LINKS_ITS_SOCKET = {"0.144.5": False, "0.163.0": True}
"""Newer servers listen elsewhere, and make a link at the path that they were told."""

HOLDER = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""
"""It keeps everybody from writing into the journal, until it ends."""

IMPOSTOR = """
import os, socket, sys
path, us, stranger = sys.argv[1], *map(int, sys.argv[2:])
server = socket.socket(socket.AF_UNIX)
server.bind(path)
os.chown(path, us, us)
os.seteuid(stranger)
server.listen()
print("listening", flush=True)
while accepted := server.accept()[0]:
    with accepted:
        if accepted.recv(1):
            print("heard", flush=True)
"""
"""Somebody else listens at a socket that is ours, and tells when anything comes in."""


class Wrong(NamedTuple):
    """How a condition is told."""

    code: str
    #: It begins the sentence.
    words: str
    #: It stands in the hint.
    advice: str


def check_error(ran: Ran, wrong: Wrong, *, exit_code: ExitCode) -> None:
    """Hold what a command with `--json` has said against how it should be told."""
    error = ran.body["error"]
    assert (ran.code, error["code"]) == (exit_code, wrong.code), ran
    assert error["message"].startswith(wrong.words)
    assert wrong.advice in error["hint"]
    assert ran.err == f"codexdrv: {error['message']}\n  {error['hint']}\n"


def check_all_refuse(machine: Machine, thread: str, wrong: Wrong) -> None:
    """Run a command of each kind: all of them exit 73 and tell the same."""
    *asked, supervisor = machine.run_together(
        [
            ("deliver", "--thread", thread, "--id", "refused", "--json", "refused"),
            ("status", "--json"),
            ("list", "--json"),
            ("supervise",),
        ]
    )
    for ran in asked:
        check_error(ran, wrong, exit_code=ExitCode.JOURNAL)
    assert supervisor.code == ExitCode.JOURNAL
    assert f"codexdrv: {wrong.words}" in supervisor.err
    assert wrong.advice in supervisor.err


def check_delivered(rig: Rig, machine: Machine, thread: str, *said: Said) -> None:
    """Wait until these are in the thread, by a supervisor that runs; nothing else ever was."""
    machine.wait_for_outcome(*(one.client_id for one in said if one.client_id in {"m1", "m2"}))
    assert agreed(rig, thread) == [FIRST, *said]
    assert rig.model.count("refused") == 0


# The state directory


@contextlib.contextmanager
def directory_open_to_others(machine: Machine) -> Iterator[Wrong]:
    machine.state.chmod(0o755)
    words = f"{machine.state} is open to others (mode 0755)."
    yield Wrong(JournalUnsafe.code, words, f"chmod 700 {machine.state}")
    machine.state.chmod(0o700)


@contextlib.contextmanager
def journal_open_to_others(machine: Machine) -> Iterator[Wrong]:
    journal = machine.state / FILE_NAME
    journal.chmod(0o640)
    words = f"{journal} is open to others (mode 0640)."
    yield Wrong(JournalUnsafe.code, words, f"chmod 600 {journal}")
    journal.chmod(0o600)


@contextlib.contextmanager
def owned_by_a_stranger(path: Path) -> Iterator[None]:
    as_root("chown", "-h", str(STRANGER), str(path))
    try:
        yield
    finally:
        as_root("chown", "-h", str(os.getuid()), str(path))


@contextlib.contextmanager
def strangers_directory(machine: Machine) -> Iterator[Wrong]:
    with owned_by_a_stranger(machine.state):
        words = f"{machine.state} belongs to uid {STRANGER}, and we are uid {os.getuid()}."
        yield Wrong(JournalUnsafe.code, words, "Run as its owner")


@contextlib.contextmanager
def open_directory_on_the_way(machine: Machine) -> Iterator[Wrong]:
    root = machine.rig.root
    root.chmod(0o777)
    words = f"Others may write in {root} (mode 0777). The journal must not lie there."
    yield Wrong(JournalUnsafe.code, words, f"chmod go-w {root}")
    root.chmod(0o700)


@pytest.mark.one_version
@pytest.mark.parametrize(
    "condition",
    [
        directory_open_to_others,
        journal_open_to_others,
        strangers_directory,
        open_directory_on_the_way,
    ],
)
def test_a_state_that_others_could_touch_is_refused_until_it_is_ours_alone(
    rig: Rig, machine: Machine, condition
):
    thread = used_thread(rig, rig.truth())
    machine.start()
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    with condition(machine) as wrong:
        check_all_refuse(machine, thread, wrong)
    machine.deliver("m2", thread, "two")
    check_delivered(rig, machine, thread, Said("m1", "one"), Said("m2", "two"))


@pytest.mark.one_version
def test_a_directory_for_all_is_fine_on_the_way_if_it_is_sticky_and_roots(
    rig: Rig, machine: Machine
):
    thread = used_thread(rig, rig.truth())
    as_root("chown", "root", str(rig.root))
    as_root("chmod", "1777", str(rig.root))
    try:
        machine.start()
        machine.deliver("m1", thread, "one")
        check_delivered(rig, machine, thread, Said("m1", "one"))
    finally:
        as_root("chown", str(os.getuid()), str(rig.root))


@pytest.mark.field_report("openai/codex#30957")
@pytest.mark.one_version
def test_a_state_on_a_network_file_system_is_refused(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    local = machine.state
    with network_disk(rig.root / "remote", "fuse.sshfs") as remote:
        for machine.state in (remote.point, remote.point / "state"):
            machine.write_config()
            words = f"{machine.state} lies on a network file system (fuse.sshfs)"
            wrong = Wrong(JournalUnsafe.code, words, "Put the state directory on a local disk")
            check_all_refuse(machine, thread, wrong)
    machine.state = local
    machine.write_config()
    machine.start()
    machine.deliver("m1", thread, "one")
    check_delivered(rig, machine, thread, Said("m1", "one"))


# The journal


@contextlib.contextmanager
def damaged(machine: Machine, damage: bytes, at: slice) -> Iterator[Wrong]:
    journal = machine.state / FILE_NAME
    good = journal.read_bytes()
    bad = bytearray(good)
    bad[at] = damage
    journal.write_bytes(bad)
    words = f"The journal {journal} cannot be used: "
    try:
        yield Wrong(JournalUnusable.code, words, "put a backup in its place")
        assert journal.read_bytes() == bad
    finally:
        journal.write_bytes(good)


def without_its_header(machine: Machine) -> contextlib.AbstractContextManager[Wrong]:
    return damaged(machine, b"no header".ljust(100), slice(100))


def with_a_page_of_garbage(machine: Machine) -> contextlib.AbstractContextManager[Wrong]:
    with sqlite3.connect(machine.state / FILE_NAME) as database:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'deliveries'"
        (page,) = database.execute(query).fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    return damaged(machine, b"garbage!" * (size // 8), slice((page - 1) * size, page * size))


def without_its_end(machine: Machine) -> contextlib.AbstractContextManager[Wrong]:
    return damaged(machine, b"", slice(10_000, None))


def cut_in_its_header(machine: Machine) -> contextlib.AbstractContextManager[Wrong]:
    return damaged(machine, b"", slice(50, None))


@contextlib.contextmanager
def of_a_newer_version(machine: Machine) -> Iterator[Wrong]:
    journal = machine.state / FILE_NAME
    good = journal.read_bytes()
    with sqlite3.connect(journal) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    new = journal.read_bytes()
    words = "The journal has version 99; this codexdrv knows version 1."
    try:
        yield Wrong(JournalUnusable.code, words, "Upgrade codexdrv; the journal was not touched.")
        assert journal.read_bytes() == new
    finally:
        journal.write_bytes(good)


@pytest.mark.one_version
@pytest.mark.parametrize(
    "condition",
    [
        without_its_header,
        with_a_page_of_garbage,
        without_its_end,
        cut_in_its_header,
        of_a_newer_version,
    ],
)
def test_a_journal_that_cannot_be_read_is_told_and_not_touched(
    rig: Rig, machine: Machine, condition
):
    thread = used_thread(rig, rig.truth())
    machine.deliver("m1", thread, "one")
    with machine.unwatched(), condition(machine) as wrong:
        check_all_refuse(machine, thread, wrong)
    machine.start()
    check_delivered(rig, machine, thread, Said("m1", "one"))


@contextlib.contextmanager
def held_journal(machine: Machine, seconds: float) -> Iterator[None]:
    """Let another process hold the journal, at most for so long."""
    holder = start_child(HOLDER, str(machine.state / FILE_NAME), str(seconds))
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.one_version
def test_a_writer_that_takes_a_second_keeps_the_others_waiting_and_no_more(
    rig: Rig, machine: Machine
):
    thread = used_thread(rig, rig.truth())
    machine.start()
    with held_journal(machine, 1):
        machine.deliver("m1", thread, "one")
    check_delivered(rig, machine, thread, Said("m1", "one"))


@pytest.mark.field_report("openai/codex#15095")
@pytest.mark.one_version
def test_while_the_journal_is_locked_nothing_is_admitted_or_sent(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    turn = held_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "one", "--when-busy", "wait")
    machine.wait_for_phase("m1", "queued", reason="busy")
    words = f"The journal {machine.state / FILE_NAME} is locked by another process."
    wrong = Wrong(JournalBusy.code, words, "Try again; nothing was stored.")
    deliver = ("deliver", "--thread", thread, "--id", "refused", "--json", "refused")
    with held_journal(machine, 10 * BUSY_TIMEOUT_S):
        rig.model.release(BUSY.text)
        truth.wait_for_turn(turn)
        for ran in machine.run_together([deliver, ("cancel", "m1", "--json")]):
            check_error(ran, wrong, exit_code=ExitCode.TRY_LATER)
        # Whoever only asks does not wait.
        assert machine.status("m1")["phase"] == "queued"
        assert truth.history(thread) == [FIRST, BUSY]
        assert rig.model.count("one") == 0
    check_delivered(rig, machine, thread, BUSY, Said("m1", "one"))
    assert machine.standing("m1").attempts == 1


# The disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """The file system that the state directory is; before the machine in a test's arguments."""
    with small_disk(tmp_path / "state", size="4m") as disk:
        yield disk


def full(machine: Machine) -> Wrong:
    words = f"The journal {machine.state / FILE_NAME} cannot be used: its disk is full ("
    return Wrong(JournalUnusable.code, words, "Make room on it; what is stored stays.")


@pytest.mark.field_report("openai/codex#15095")
@pytest.mark.one_version
def test_on_a_full_disk_nothing_is_admitted_and_what_is_stored_stays(
    rig: Rig, disk: Disk, machine: Machine
):
    thread = used_thread(rig, rig.truth())
    machine.deliver("m1", thread, "one")
    with machine.unwatched(), disk.filled():
        check_all_refuse(machine, thread, full(machine))
    assert [body["id"] for body in machine.run("list", "--json").bodies] == ["m1"]
    machine.start()
    check_delivered(rig, machine, thread, Said("m1", "one"))


@pytest.mark.field_report("openai/codex#15095")
@pytest.mark.one_version
def test_on_a_full_disk_nothing_is_sent_until_there_is_room(rig: Rig, disk: Disk, machine: Machine):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    turn = held_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "one", "--when-busy", "wait")
    machine.wait_for_phase("m1", "queued", reason="busy")
    with disk.filled():
        ran = machine.run("deliver", "--thread", thread, "--id", "refused", "--json", "refused")
        check_error(ran, full(machine), exit_code=ExitCode.JOURNAL)
        # Who asks needs no room.
        assert machine.run("list", "--json").body["id"] == "m1"
        rig.model.release(BUSY.text)
        truth.wait_for_turn(turn)
        machine.wait_for_log("its disk is full")
        assert truth.history(thread) == [FIRST, BUSY]
        assert rig.model.count("one") == 0
    check_delivered(rig, machine, thread, BUSY, Said("m1", "one"))
    assert machine.standing("m1").attempts == 1


@pytest.mark.one_version
def test_what_a_server_does_while_the_disk_is_full_is_written_when_there_is_room(
    rig: Rig, disk: Disk, machine: Machine
):
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd, approval_policy="untrusted")
    request = asking_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "one")
    machine.wait_for("m1", lambda found: found.answered_turn is not None)
    with disk.filled():
        truth.answer(request, {"decision": "accept"})
        truth.wait_for_input("m1")
        machine.wait_for_log("its disk is full")
        assert machine.standing("m1").phase == "pending"
    machine.wait_for_outcome("m1")
    assert machine.standing("m1").attempts == 1
    assert agreed(rig, thread) == [ASK, Said("m1", "one")]


@pytest.mark.one_version
def test_a_supervisor_does_not_begin_on_a_full_disk(rig: Rig, disk: Disk, machine: Machine):
    thread = used_thread(rig, rig.truth())
    machine.deliver("m1", thread, "one")
    with disk.filled():
        ran = machine.run("supervise")
        assert ran.code == ExitCode.JOURNAL, ran.err
        assert ran.err.startswith(f"codexdrv: {full(machine).words}")
    machine.start()
    check_delivered(rig, machine, thread, Said("m1", "one"))


@pytest.mark.one_version
def test_status_says_that_the_disk_is_full(rig: Rig, disk: Disk, machine: Machine):
    machine.start()
    assert machine.run("status").code == 0
    with disk.filled():
        ill = machine.run("status", "--json")
        assert (ill.code, ill.body["healthy"]) == (1, False)
        assert "disk is full" in " ".join(ill.body["problems"])
    assert machine.run("status").code == 0


@pytest.mark.one_version
def test_on_a_read_only_disk_all_is_refused_until_it_can_be_written(
    rig: Rig, disk: Disk, machine: Machine
):
    # Without a supervisor: the kernel makes nothing read-only where a file is open for writing.
    thread = used_thread(rig, rig.truth())
    machine.deliver("m1", thread, "one")
    with machine.unwatched(), disk.read_only():
        words = f"The journal {machine.state / FILE_NAME} cannot be used: "
        words += "its file system is read-only ("
        check_all_refuse(
            machine, thread, Wrong(JournalUnusable.code, words, "Mount it for writing")
        )
    machine.start()
    check_delivered(rig, machine, thread, Said("m1", "one"))


# The socket


@contextlib.contextmanager
def strangers_socket(rig: Rig, machine: Machine) -> Iterator[Wrong]:
    with owned_by_a_stranger(rig.socket_path.resolve()):
        words = f"The socket {rig.socket_path} belongs to uid {STRANGER}, neither us nor root."
        yield Wrong(UnsafeSocket.code, words, "as the user whose server it is")


@contextlib.contextmanager
def no_socket(rig: Rig, machine: Machine) -> Iterator[Wrong]:
    path = rig.root / "file"
    path.touch()
    machine.attach_at(path)
    yield Wrong(UnsafeSocket.code, f"{path} is not a socket.", "codex app-server --listen")
    path.unlink()
    path.symlink_to(rig.socket_path)


@contextlib.contextmanager
def nothing_there(rig: Rig, machine: Machine) -> Iterator[Wrong]:
    path = rig.root / "nothing"
    machine.attach_at(path)
    words = f"No server listens at {path}: No such file or directory."
    yield Wrong(NoServer.code, words, "codex app-server --listen")
    path.symlink_to(rig.socket_path)


@contextlib.contextmanager
def stale_socket(rig: Rig, machine: Machine) -> Iterator[Wrong]:
    rig.server.kill()
    assert rig.socket_path.is_socket()
    words = f"No server listens at {rig.socket_path}: Connection refused."
    yield Wrong(NoServer.code, words, "codex app-server --listen")
    rig.server.start()


@contextlib.contextmanager
def strangers_server(rig: Rig, machine: Machine) -> Iterator[Wrong]:
    path = rig.root / "impostor"
    machine.attach_at(path)
    command = [*AS_ROOT, sys.executable, "-c", IMPOSTOR, str(path), str(os.getuid())]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, str(STRANGER)], stdout=pipe, text=True) as impostor:
        assert impostor.stdout is not None
        assert impostor.stdout.readline() == "listening\n"
        try:
            words = f"The server at {path} belongs to uid {STRANGER}, neither us nor root."
            yield Wrong(UnsafeSocket.code, words, "as the user whose server it is")
            path.unlink()
            path.symlink_to(rig.socket_path)
        finally:
            as_root("kill", "-9", str(impostor.pid))
        assert impostor.stdout.read() == "", "something was said to it"


def on_the_way(rig: Rig, machine: Machine) -> Path:
    """Make a directory, and let the machine attach through it."""
    way = rig.root / "way"
    way.mkdir(mode=0o700)
    (way / "link").symlink_to(rig.socket_path)
    machine.attach_at(way / "link")
    return way


@contextlib.contextmanager
def open_directory_before_the_socket(rig: Rig, machine: Machine) -> Iterator[Wrong]:
    way = on_the_way(rig, machine)
    way.chmod(0o770)
    words = f"Others may write in {way} (mode 0770)."
    yield Wrong(UnsafeSocket.code, words, f"chmod go-w {way}")
    way.chmod(0o700)


@contextlib.contextmanager
def strangers_directory_before_the_socket(rig: Rig, machine: Machine) -> Iterator[Wrong]:
    way = on_the_way(rig, machine)
    with owned_by_a_stranger(way):
        words = f"{way} belongs to uid {STRANGER}, neither us nor root."
        yield Wrong(UnsafeSocket.code, words, "every directory is yours or root's")


@contextlib.contextmanager
def strangers_link(rig: Rig, machine: Machine) -> Iterator[Wrong]:
    link = on_the_way(rig, machine) / "link"
    with owned_by_a_stranger(link):
        words = f"{link} belongs to uid {STRANGER}, neither us nor root."
        yield Wrong(UnsafeSocket.code, words, "every directory is yours or root's")


@pytest.mark.one_version
@pytest.mark.parametrize(
    "condition",
    [
        strangers_socket,
        strangers_server,
        no_socket,
        nothing_there,
        stale_socket,
        open_directory_before_the_socket,
        strangers_directory_before_the_socket,
        strangers_link,
    ],
)
def test_a_socket_that_cannot_be_trusted_is_not_used_until_it_can(
    rig: Rig, machine: Machine, condition
):
    thread = used_thread(rig, rig.truth())
    with condition(rig, machine) as wrong:
        machine.start_unconnected()
        machine.wait_for_problem(wrong.words)
        check_error(machine.run("threads", "--json"), wrong, exit_code=ExitCode.UNAVAILABLE)
        admitted = machine.deliver("m1", thread, "one")
        told = (admitted["phase"], admitted["reason"], admitted["why"])
        assert told == ("queued", "no_server", wrong.words.rstrip("."))
        ill = machine.run("status", "--json")
        assert (ill.code, ill.body["problems"]) == (1, [wrong.words.rstrip(".")])
        assert rig.rollout(thread) == [FIRST]
        assert rig.model.count("one") == 0
    check_delivered(rig, machine, thread, Said("m1", "one"))
    assert machine.standing("m1").attempts == 1


def test_the_link_that_newer_servers_make_is_followed_also_to_the_next_server(
    rig: Rig, machine: Machine, version: str
):
    is_link = by_version(LINKS_ITS_SOCKET, version)
    assert rig.socket_path.is_symlink() == is_link
    real = rig.socket_path.resolve()
    assert (real.parent == Path(f"/tmp/codex-daemon-{os.getuid()}")) == is_link
    thread = used_thread(rig, rig.truth())
    machine.start()
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    rig.server.kill()
    assert real.is_socket()  # stale: nobody listens
    machine.deliver("m2", thread, "two")
    rig.server.start()
    check_delivered(rig, machine, thread, Said("m1", "one"), Said("m2", "two"))


@pytest.mark.one_version
def test_paths_that_are_too_long_for_the_kernel_are_used_all_the_same(rig: Rig, machine: Machine):
    deep = rig.root / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True, mode=0o700)
    # The socket itself under another name, not a link to a short one.
    os.link(rig.socket_path.resolve(), deep / "s.sock")
    machine.state = deep / "state"
    machine.write_config()
    machine.attach_at(deep / "s.sock")
    assert min(len(str(path)) for path in deep.iterdir()) > UNIX_PATH_BYTES_MAX
    thread = used_thread(rig, rig.truth())
    machine.start()
    admitted = machine.deliver("m1", thread, "one", "--wait", "surfaced")
    # It heard the bell, which lies there too.
    assert (admitted["phase"], admitted["supervisor"]) == ("surfaced", "up")
    assert len(str(machine.state / "bell")) > UNIX_PATH_BYTES_MAX
    assert machine.run("status").code == 0
    assert agreed(rig, thread) == [FIRST, Said("m1", "one")]


@pytest.mark.one_version
def test_a_supervisor_does_not_begin_without_a_bell(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    machine.deliver("m1", thread, "one")
    (machine.state / "bell").mkdir()
    ran = machine.run("supervise")
    assert ran.code == ExitCode.JOURNAL, ran.err
    assert f"codexdrv: The bell {machine.state}/bell cannot be hung up" in ran.err
    assert rig.model.count("one") == 0
    (machine.state / "bell").rmdir()
    machine.start()
    check_delivered(rig, machine, thread, Said("m1", "one"))
