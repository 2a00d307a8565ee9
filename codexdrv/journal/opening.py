"""Open the journal file: where it may lie, who may read it, and which version it has."""

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from codexdrv.errors import JournalBusy, JournalError, JournalUnsafe, JournalUnusable
from codexdrv.paths import (
    Offence,
    disk_offence,
    make_private_directory,
    network_filesystem,
    unsafe_step,
)


FILE_NAME = "journal.sqlite3"
VERSION = 1
"""`PRAGMA user_version` of the schema that this program writes."""
BUSY_TIMEOUT_S = 10.0
"""Writers hold the lock for milliseconds; longer means that one of them hangs."""
SQLITE_VERSION_MIN = (3, 37, 0)
"""STRICT tables came with it."""

_PRAGMAS = (
    "PRAGMA synchronous = FULL",  # a commit is on disk when it returns
    "PRAGMA foreign_keys = ON",
)


def open_database(directory: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Open the journal of a state directory, making both where they are missing.

    Args:
        directory: where it lies.
        busy_timeout_s: how long each write waits for another writer.

    Raises:
        JournalUnsafe: owner, mode or file system are not safe; nothing was written.
        JournalUnusable: corrupt, not writable, or of a newer version.
        JournalBusy: another process holds it.
    """
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        raise JournalUnusable(
            f"SQLite {sqlite3.sqlite_version} is too old: the journal needs 3.37.",
            hint="Use a Python that is built with a newer SQLite.",
        )
    path = os.path.join(directory, FILE_NAME)
    with translated(path):
        _check_surroundings(directory)
        _make_file(path)
        database = sqlite3.connect(
            path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(database, directory)
        except BaseException:
            database.close()
            raise
        return database


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn what SQLite and the system say about the file into our own errors."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise JournalBusy(
                f"The journal {path} is locked by another process.",
                hint="Try again; nothing was stored.",
            ) from error
        hint = "Check that the disk is not full and that the directory is yours and writable."
        raise _unusable(path, str(error), hint) from error
    except OSError as error:
        hint = "Check that the directory is yours and writable."
        raise _unusable(path, error.strerror or str(error), hint) from error
    except sqlite3.Error as error:
        hint = "Move it away, and put a backup in its place if there is one."
        raise JournalUnusable(f"{_start(path)}: {error}.", hint=hint) from error


def _unusable(path: str, words: str, hint: str) -> JournalError:
    """Say what is wrong; where the disk itself says it better than these words, by the disk."""
    with suppress(OSError):
        if offence := disk_offence(os.statvfs(os.path.dirname(path))):
            words, hint = f"{offence.sentence} ({words})", offence.hint
    return JournalUnusable(f"{_start(path)}: {words}.", hint=hint)


def _start(path: str) -> str:
    return f"The journal {path} cannot be used"


def _check_surroundings(directory: str) -> None:
    # First, so that nothing is made on what is refused.
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        kind = network_filesystem(os.path.realpath(directory), mounts.read())
    if kind is not None:
        raise JournalUnsafe(
            f"{directory} lies on a network file system ({kind}): SQLite's locks do not hold.",
            hint="Put the state directory on a local disk: [state] dir in the configuration.",
        )
    make_private_directory(directory)
    offence = unsafe_step(directory)
    if offence is not None:
        raise JournalUnsafe(
            f"{offence.sentence} The journal must not lie there.", hint=offence.hint
        )


def _make_file(path: str) -> None:
    # A file that is there is never opened here: closing it again would drop the POSIX locks that
    # SQLite holds on it for another connection of this process.
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileExistsError):
        # 0600 from birth; SQLite gives -wal and -shm the mode of the main file.
        os.close(os.open(path, flags, 0o600))
    if offence := file_offence(path, os.lstat(path), uid=os.geteuid()):
        raise JournalUnsafe(offence.sentence, hint=offence.hint)


def file_offence(path: str, status: os.stat_result, *, uid: int) -> Offence | None:
    """Say why a file is not a plain one that belongs to this user alone, or None."""
    elsewhere = "choose another directory under [state] in the configuration"
    if not stat.S_ISREG(status.st_mode):
        return Offence(f"{path} is no plain file.", f"Move it away, or {elsewhere}.")
    if status.st_uid != uid:
        return Offence(
            f"{path} belongs to uid {status.st_uid}, and we are uid {uid}.",
            f"Run as its owner, or {elsewhere}.",
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Offence(f"{path} is open to others (mode {mode:04o}).", f"chmod 600 {path}")
    return None


def _prepare(database: sqlite3.Connection, directory: str) -> None:
    for pragma in _PRAGMAS:
        database.execute(pragma)
    if _version(database) == VERSION:
        return
    # Two processes that make the file at once would meet in the change to WAL, which does not
    # wait for a lock; so they take turns. The lock is on the directory, because closing a
    # descriptor of the file itself would drop SQLite's own locks.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _migrate(database)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _migrate(database: sqlite3.Connection) -> None:
    found = _version(database)
    if found > VERSION:
        raise JournalUnusable(
            f"The journal has version {found}; this codexdrv knows version {VERSION}.",
            hint="Upgrade codexdrv; the journal was not touched.",
        )
    if found == VERSION:
        return
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("BEGIN IMMEDIATE")
    for statement in _statements(_schema()):
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {VERSION}")
    database.execute("COMMIT")


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _schema() -> str:
    # `importlib.resources` would cost `deliver` 8 ms; the wheel is installed unpacked.
    with open(os.path.join(os.path.dirname(__file__), "schema.sql"), encoding="utf-8") as file:
        return file.read()


def _statements(script: str) -> Iterator[str]:
    """Split a script where SQLite says that a statement is whole; comments hold semicolons too."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
