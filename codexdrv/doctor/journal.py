"""The journal, read only: nothing is made where there is none, and nothing in it is changed."""

import os
import sqlite3
import stat
import time
from contextlib import closing, suppress
from typing import NamedTuple
from urllib.parse import quote

from codexdrv.doctor.finding import Finding, failed, note, ok, wrong
from codexdrv.doctor.interpreter import UPGRADE
from codexdrv.journal.opening import FILE_NAME, VERSION
from codexdrv.journal.rows import DELIVERY_COLUMNS, LIVE, read_delivery
from codexdrv.paths import Offence
from codexdrv.rules.lifecycle import Delivery, is_live


NAME = "journal"

BUSY_TIMEOUT_S = 2.0
"""A reader waits for nobody but a checkpoint that resets the log: milliseconds."""

LOOKS_AGAIN_MAX = 10
LOOK_AGAIN_S = 0.02
"""A command that comes and goes has it open for some milliseconds."""

COMPLAINTS_MAX = 3
"""A broken page makes hundreds; the first ones say enough."""

MEND = (
    "Stop the supervisor, move {path}* away, and put a backup in its place;\n"
    "without a backup codexdrv begins anew, and knows nothing of earlier messages."
)


class JournalSeen(NamedTuple):
    """What the file holds."""

    path: str
    version: int
    #: What SQLite finds wrong; empty: it is whole.
    complaints: tuple[str, ...]
    #: With its write-ahead log.
    size_bytes: int
    #: How many deliveries there are, by phase; empty as well where the version is not ours.
    phases: dict[str, int]
    #: The live delivery that was admitted first.
    oldest: Delivery | None

    @property
    def live(self) -> int:
        """How many deliveries still wait for something."""
        return sum(count for phase, count in self.phases.items() if is_live(phase))


class _Shape(NamedTuple):
    """What lies there: a file that somebody has open has a log and its index beside it."""

    has_log: bool
    has_index: bool
    changed_ns: int
    size_bytes: int


def look_at_journal(directory: str) -> JournalSeen | Offence | None:
    """Read the journal of a state directory as it is; None: there is none yet.

    Raises:
        OSError: it cannot be looked at.
    """
    path = os.path.join(directory, FILE_NAME)
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        # A pipe would keep us for ever, and what a link leads to is nothing of ours.
        return Offence(f"{path} is no plain file.", "Move it away.")
    shape = _shape(path)
    seen = _read(path, shape)
    for _ in range(LOOKS_AGAIN_MAX):
        # What one command makes at its start, and removes at its end, must not look like damage.
        if shape.has_log == shape.has_index and (shape.has_log or _shape(path) == shape):
            return seen
        time.sleep(LOOK_AGAIN_S)
        shape = _shape(path)
        seen = _read(path, shape)
    if _shape(path) == shape:
        return seen
    return Offence(f"{path} is opened and closed all the time.", "Try again in a moment.")


def judge_journal(seen: JournalSeen | Offence | None) -> Finding:
    """Say whether it can be used."""
    if seen is None:
        return note(NAME, "none yet: made by the first `codexdrv deliver`")
    if isinstance(seen, Offence):
        return failed(NAME, seen)
    if seen.complaints:
        said = "; ".join(seen.complaints)
        return wrong(NAME, f"{seen.path} is damaged: {said}", MEND.format(path=seen.path))
    if seen.version > VERSION:
        return wrong(
            NAME,
            f"{seen.path} has version {seen.version}; this codexdrv knows version {VERSION}",
            UPGRADE,
        )
    size = f"{seen.size_bytes / 2**20:.1f} MiB"
    counted = ", ".join(f"{count} {phase}" for phase, count in sorted(seen.phases.items()))
    return ok(NAME, f"version {seen.version}, whole, {size}; deliveries: {counted or 'none'}")


def _shape(path: str) -> _Shape:
    status = os.stat(path)
    log, index = (os.path.exists(f"{path}{suffix}") for suffix in ("-wal", "-shm"))
    return _Shape(log, index, status.st_mtime_ns, status.st_size)


def _read(path: str, shape: _Shape) -> JournalSeen | Offence:
    if shape.has_log != shape.has_index:
        # Read all the same, SQLite would make the other one.
        return Offence(
            f"{path} has only one of its -wal and -shm beside it: a copy, or restored.",
            "Run `codexdrv list`, which puts that in order; then `codexdrv doctor` again.",
        )
    # Both are made also with mode=ro, where they are missing, unless the file cannot change; and
    # they are missing when nobody has it open.
    alone = "" if shape.has_log else "&immutable=1"
    uri = f"file:{quote(os.fsencode(path))}?mode=ro{alone}"
    try:
        with closing(
            sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        ) as database:
            return _ask(database, path)
    except sqlite3.Error as error:
        return Offence(f"{path}: {error}.", MEND.format(path=path))


def _ask(database: sqlite3.Connection, path: str) -> JournalSeen:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    said = [line for (line,) in database.execute(f"PRAGMA integrity_check({COMPLAINTS_MAX})")]
    complaints = () if said == ["ok"] else tuple(" ".join(line.split()) for line in said)
    phases, oldest = {}, None
    if not complaints and version == VERSION:
        query = "SELECT phase, count(*) FROM deliveries GROUP BY phase"
        phases = dict(database.execute(query).fetchall())
        query = f"SELECT {DELIVERY_COLUMNS} FROM deliveries WHERE {LIVE}"
        row = database.execute(f"{query} ORDER BY admitted_at_ms LIMIT 1").fetchone()
        oldest = read_delivery(row) if row else None
    size = 0
    for name in (path, f"{path}-wal"):
        with suppress(FileNotFoundError):
            size += os.stat(name).st_size
    return JournalSeen(path, version, complaints, size, phases, oldest)
