"""Opening the journal: what is made, what is refused, and that nobody's locks are lost."""

import importlib.resources
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from codexdrv.errors import ExitCode, JournalBusy, JournalUnsafe, JournalUnusable
from codexdrv.journal.journal import Journal
from codexdrv.journal.opening import (
    BUSY_TIMEOUT_S,
    FILE_NAME,
    VERSION,
    _statements,
    file_offence,
    open_database,
    translated,
)
from tests.fakes.children import run_child, start_child
from tests.fakes.orders import make_order


US = 1000
STRANGER = 1001

HOLDER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""
ADMITTER = """
import sys
from codexdrv.journal.journal import Journal
from tests.fakes.orders import make_order
with Journal(sys.argv[1]) as journal:
    journal.admit(make_order(sys.argv[2]))
    print(*[delivery.order.id for delivery in journal.deliveries()])
"""


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def status_of(mode, *, owner):
    return os.stat_result((mode, 1, 1, 1, owner, owner, 0, 0, 0, 0))


def admit_elsewhere(directory, name):
    """Admit in another process that opens the journal and closes it; say what it has seen."""
    return run_child(ADMITTER, directory, name).split()


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def file(directory):
    """The file of a journal that was made and closed."""
    Journal(directory).close()
    return Path(directory, FILE_NAME)


@pytest.fixture
def holder(file):
    """Another process that writes and does not end."""
    process = start_child(HOLDER, str(file))
    assert process.stdout.readline() == "held\n"
    yield process
    process.communicate()


# What is made


def test_directories_and_files_are_private_whatever_the_umask(tmp_path, open_umask):
    directory = tmp_path / "base" / "state"
    with Journal(str(directory)) as journal:
        assert [mode_of(path) for path in (directory.parent, directory)] == [0o700, 0o700]
        assert {path.name: mode_of(path) for path in directory.iterdir()} == {
            FILE_NAME: 0o600,
            f"{FILE_NAME}-wal": 0o600,
            f"{FILE_NAME}-shm": 0o600,
        }
        journal.admit(make_order())
        assert {mode_of(path) for path in directory.iterdir()} == {0o600}


def test_a_commit_is_on_disk_when_it_returns(directory):
    database = open_database(directory)
    pragmas = {
        name: database.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys", "user_version")
    }
    database.close()
    full = 2
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": full,
        "foreign_keys": 1,
        "user_version": VERSION,
    }


def test_a_journal_that_is_there_is_opened_as_it_is(directory, file):
    with Journal(directory) as journal:
        journal.admit(make_order())
    with Journal(directory) as journal:
        assert [delivery.order.id for delivery in journal.deliveries()] == ["m1"]


def test_a_file_that_died_at_its_birth_becomes_a_journal(directory):
    os.mkdir(directory, 0o700)
    os.close(os.open(f"{directory}/{FILE_NAME}", os.O_CREAT, 0o600))
    with Journal(directory) as journal:
        assert journal.admit(make_order()).delivery.order.seq == 1


def test_the_schema_is_inside_the_package():
    schema = importlib.resources.files("codexdrv.journal").joinpath("schema.sql")
    assert "CREATE TABLE deliveries" in schema.read_text("utf-8")


def test_a_script_is_split_where_a_statement_ends_and_not_in_a_comment():
    script = "CREATE TABLE a (\n  b, -- one; two\n  c\n);\n-- and; more\nCREATE TABLE d (e);\n"
    assert [statement.count("CREATE") for statement in _statements(script)] == [1, 1]


# What is refused


def test_a_journal_of_a_newer_version_is_refused_and_not_touched(directory, file):
    with sqlite3.connect(file) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()
    before = file.read_bytes()
    with pytest.raises(JournalUnusable) as caught:
        Journal(directory)
    assert f"version {VERSION + 1}" in caught.value.message
    assert f"version {VERSION}." in caught.value.message
    assert caught.value.exit_code is ExitCode.JOURNAL
    assert file.read_bytes() == before
    assert [path.name for path in Path(directory).iterdir()] == [FILE_NAME]


def test_a_file_that_is_no_journal_is_refused_and_not_touched(directory, file):
    file.write_bytes(b"this is no database, however long it may be." * 100)
    before = file.read_bytes()
    with pytest.raises(JournalUnusable, match="not a database") as caught:
        Journal(directory)
    assert "backup" in caught.value.hint
    assert file.read_bytes() == before


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602])
def test_a_journal_that_is_open_to_others_is_refused(directory, file, mode):
    file.chmod(mode)
    with pytest.raises(JournalUnsafe, match=f"mode 0{mode:o}") as caught:
        Journal(directory)
    assert caught.value.hint == f"chmod 600 {file}"
    assert caught.value.exit_code is ExitCode.JOURNAL


def test_a_directory_in_the_place_of_the_journal_is_refused(directory):
    Path(directory, FILE_NAME).mkdir(parents=True)
    Path(directory).chmod(0o700)
    with pytest.raises(JournalUnsafe, match="no plain file"):
        Journal(directory)


def test_a_link_in_the_place_of_the_journal_is_refused_and_not_followed(directory, tmp_path):
    os.mkdir(directory, 0o700)
    Path(directory, FILE_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalUnsafe, match="no plain file"):
        Journal(directory)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("mode", "owner", "said"),
    [
        (stat.S_IFREG | 0o600, US, None),
        (stat.S_IFREG | 0o400, US, None),
        (stat.S_IFREG | 0o600, STRANGER, "belongs to uid 1001, and we are uid 1000"),
        (stat.S_IFREG | 0o600, 0, "belongs to uid 0, and we are uid 1000"),
        (stat.S_IFIFO | 0o600, US, "is no plain file"),
    ],
)
def test_a_journal_is_a_plain_file_that_is_ours(mode, owner, said):
    offence = file_offence("/x", status_of(mode, owner=owner), uid=US)
    assert (offence is None) if said is None else (said in offence.sentence)


def test_a_directory_that_others_may_enter_is_refused(directory, file):
    Path(directory).chmod(0o750)
    with pytest.raises(JournalUnsafe, match="mode 0750"):
        Journal(directory)


def test_a_directory_in_which_others_may_write_is_refused_anywhere_on_the_way(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    with pytest.raises(JournalUnsafe, match="Others may write in") as caught:
        Journal(str(shared / "state"))
    assert caught.value.hint == f"chmod go-w {shared}"
    assert not (shared / "state" / FILE_NAME).exists()


def test_a_directory_that_cannot_be_made_is_said_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(JournalUnusable, match="file is not a directory"):
        Journal(str(tmp_path / "file" / "state"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (sqlite3.OperationalError("disk I/O error"), "cannot be used: disk I/O error."),
        (PermissionError(13, "Permission denied", "x"), "cannot be used: Permission denied."),
    ],
)
def test_what_the_system_says_of_the_file_is_said_as_it_is(tmp_path, error, said):
    with pytest.raises(JournalUnusable) as caught, translated(str(tmp_path / FILE_NAME)):
        raise error
    assert caught.value.message.endswith(said)
    assert "writable" in caught.value.hint


# Locks


def test_a_journal_that_another_process_holds_is_busy_and_later_is_not(directory, holder):
    with Journal(directory, busy_timeout_s=0) as journal:
        with pytest.raises(JournalBusy) as caught:
            journal.admit(make_order())
        assert caught.value.retryable
        assert caught.value.exit_code is ExitCode.TRY_LATER
        # Whoever only asks does not wait.
        assert list(journal.deliveries()) == []
        holder.communicate()
        assert journal.admit(make_order()).delivery.order.seq == 1


def test_a_writer_waits_for_another_one_by_default(directory):
    database = open_database(directory)
    assert database.execute("PRAGMA busy_timeout").fetchone() == (BUSY_TIMEOUT_S * 1000,)
    database.close()


def test_a_second_journal_of_one_process_does_not_cost_the_first_one_its_locks(directory):
    with Journal(directory) as journal:
        journal.admit(make_order("first"))
        # Closing any descriptor of a file drops all POSIX locks that the process has on it; the
        # next process to close the journal would then take away the log under our feet.
        Journal(directory).close()
        assert admit_elsewhere(directory, "second") == ["first", "second"]
        assert [delivery.order.id for delivery in journal.deliveries()] == ["first", "second"]
        assert journal.admit(make_order("third")).delivery.order.seq == 3
        assert admit_elsewhere(directory, "fourth") == ["first", "second", "third", "fourth"]
        assert len(list(journal.deliveries())) == 4
