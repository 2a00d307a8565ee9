"""Search a thread's record, the rollout file, for an input; synchronous, for a thread."""

import os
import stat
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from codexdrv.ids import DeliveryId, ThreadId, TurnId
from codexdrv.journal.dispatch import Mark
from codexdrv.protocol.rollout import ModelInput, Trace, read_traces
from codexdrv.rules.evidence import Record, Sighting


Seen = TypeVar("Seen", Sighting, TurnId | None)

READ_BYTES = 1 << 20
"""One block of a record: few calls, and little memory. A line that is longer is held whole, as the
server held it when it wrote it."""
SEAM_BYTES_MAX = 4096
"""What is kept of the end of what was read: several lines, with times and ids that no other file
has in that place."""


def record_size(path: str | None) -> int:
    """Say how long the record is now, in bytes; 0 where there is none yet."""
    try:
        return os.stat(path).st_size if path else 0
    except OSError:
        return 0


def is_there(path: str) -> bool:
    """Say whether a record is there, as it was written or compressed."""
    return os.path.lexists(path) or os.path.lexists(f"{path}.zst")


def find_records(path: str, thread: ThreadId) -> tuple[str, ...]:
    """Find every record that a thread ever had: a revert begins a new file, which lacks the rest.

    It looks through the directories of all days; ask once, not for each input.

    Args:
        path: the one that the server names now.
        thread: whose.
    """
    # <sessions>/YYYY/MM/DD/rollout-…-THREAD[_…].jsonl; the older one may be of another day.
    root = Path(path).parents[min(3, len(Path(path).parents) - 1)]
    return tuple(sorted({path, *map(str, root.glob(f"[0-9]*/*/*/rollout-*{thread}*.jsonl"))}))


def search_records(paths: Iterable[str], order_id: DeliveryId, text: str) -> Record:
    """Search several records of a thread from their beginning; all must be readable for a no."""
    watch, record = RecordWatch(order_id, text, None), Record(is_readable=False)
    for path in paths:
        record = watch.read(path)
    return record


class RecordWatch:
    """What the record says of one attempt, from its mark on; each look reads only what is new."""

    def __init__(self, order_id: DeliveryId, text: str, mark: Mark | None) -> None:
        self._sought = _Sought(order_id, text)
        self._files: dict[str, _RecordFile] = {}
        #: The name of the file that was the record at the dispatch.
        self._noted: str | None = None
        if mark is not None and mark.path is not None:
            # A thread that had a turn has a file; where we see none, it is elsewhere.
            self._add(mark.path, mark.size, may_be_missing=not mark.size and mark.anchor is None)

    def read(self, path_now: str | None) -> Record:
        """Read on, and say what everything that was read shows.

        Args:
            path_now: the record as the server names it now, which is all that tells of a revert;
                None where it names none: a thread that it does not know.
        """
        if path_now is not None:
            self._add(path_now, 0, may_be_missing=False)
        looks = [file.read_on(self._sought) for file in self._files.values()]
        return Record(
            is_readable=bool(looks) and all(look.is_readable for look in looks),
            sightings=_in_either(look.shown.sightings for look in looks),
            ghosts=_in_either(look.shown.unpaired for look in looks),
            is_noted=path_now is None or os.path.basename(path_now) == self._noted,
        )

    def _add(self, path: str, start: int, *, may_be_missing: bool) -> None:
        # An archived record keeps its name in another directory; a revert's has another name.
        name = os.path.basename(path)
        self._noted = self._noted or name
        self._files.setdefault(
            name, _RecordFile(path, start, may_be_missing=may_be_missing)
        ).path_now = path


def _in_either(shown: Iterable[tuple[Seen, ...]]) -> tuple[Seen, ...]:
    """Join what several files show: what one repeats of another was not said twice."""
    counts: Counter[Seen] = Counter()
    for each in shown:
        counts |= Counter(each)
    return tuple(counts.elements())


class _Shown(NamedTuple):
    """What the lines that were read show of an input."""

    sightings: tuple[Sighting, ...] = ()
    #: The turns of those model inputs that are exactly its text and were not followed by the
    #: event of the same message.
    unpaired: tuple[TurnId | None, ...] = ()


class _Sought(NamedTuple):
    """An input, as the record would show it."""

    order_id: DeliveryId
    text: str

    def follow(self, shown: _Shown, line: bytes) -> _Shown:
        for trace in read_traces(line):
            shown = self._fold(shown, trace)
        return shown

    def _fold(self, shown: _Shown, trace: Trace) -> _Shown:
        sightings, unpaired = shown
        is_equal = trace.text == self.text
        if isinstance(trace, ModelInput):
            return _Shown(sightings, (*unpaired, trace.turn)) if is_equal else shown
        turn = trace.turn or None
        if is_equal:
            # Whoever sent it: an equal text of another client is no ghost of ours.
            unpaired = _without_newest(unpaired, turn)
        if trace.client_id == self.order_id:
            sightings = (*sightings, Sighting(turn, is_equal))
        return _Shown(sightings, unpaired)


def _without_newest(
    unpaired: tuple[TurnId | None, ...], turn: TurnId | None
) -> tuple[TurnId | None, ...]:
    """Pair an event with the line that it follows.

    That is the newest one: the server writes the two as neighbours, so one that is older and
    still alone will stay so. An event of a legacy thread names no turn.
    """
    for place in reversed(range(len(unpaired))):
        if turn is None or unpaired[place] in {turn, None}:
            return unpaired[:place] + unpaired[place + 1 :]
    return unpaired


class _Look(NamedTuple):
    """What one file shows, and whether all of it could be read."""

    is_readable: bool
    shown: _Shown


class _RecordFile:
    """One file, read on from look to look."""

    def __init__(self, path: str, start: int, *, may_be_missing: bool) -> None:
        self.path_now = path
        self._path_noted = path
        #: Behind the last line that was whole; those before it are never read again.
        self._offset = start
        #: The bytes before it, once they were seen.
        self._seam = b""
        self._shown = _Shown()
        #: The first input of a thread makes its file; until then there is none.
        self._may_be_missing = may_be_missing

    def read_on(self, sought: _Sought) -> _Look:
        """Read what is new; what was seen before stays seen, whatever became of the file."""
        try:
            with self._open() as file:
                self._may_be_missing = False
                return self._read(file, sought)
        except FileNotFoundError:
            is_compressed = any(os.path.lexists(f"{path}.zst") for path in self._places())
            return _Look(self._may_be_missing and not is_compressed, self._shown)
        except OSError:
            return _Look(False, self._shown)

    def _open(self) -> BinaryIO:
        *others, last = self._places()
        for path in others:
            try:
                return open(path, "rb", READ_BYTES, opener=_open_now)
            except FileNotFoundError:
                continue
        return open(last, "rb", READ_BYTES, opener=_open_now)

    def _places(self) -> list[str]:
        """List where it may lie: where the server says, where it was, and in the archive."""
        above = Path(self._path_noted).parents
        # <home>/sessions/YYYY/MM/DD/NAME, <home>/archived_sessions/NAME
        archive = above[min(4, len(above) - 1)] / "archived_sessions"
        name = os.path.basename(self._path_noted)
        return [self.path_now, self._path_noted, str(archive / name)]

    def _read(self, file: BinaryIO, sought: _Sought) -> _Look:
        number, seam = file.fileno(), self._seam
        status = os.fstat(number)
        is_ours = (
            stat.S_ISREG(status.st_mode)
            and status.st_size >= self._offset
            # Cut, written anew, or another file: what is missing cannot be told.
            and os.pread(number, len(seam), self._offset - len(seam)) == seam
        )
        if not is_ours:
            return _Look(False, self._shown)
        file.seek(self._offset)
        rest = b""
        for line in file:
            if not line.endswith(b"\n"):
                rest = line
                break
            self._shown = sought.follow(self._shown, line)
            self._offset += len(line)
        size = min(SEAM_BYTES_MAX, self._offset)
        self._seam = os.pread(number, size, self._offset - size)
        # A line that was cut is no JSON object. One that is whole and lacks its newline counts,
        # as it does for the server; it is read again, for it may not stay the last one.
        return _Look(True, sought.follow(self._shown, rest))


def _open_now(path: str, flags: int) -> int:
    """Open without waiting for the writer that a named pipe may never get."""
    return os.open(path, flags | os.O_NONBLOCK)
