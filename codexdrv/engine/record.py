"""Search a thread's record, the rollout file, for an input; synchronous, for a thread."""

import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from codexdrv.ids import DeliveryId, ThreadId
from codexdrv.protocol.events import UserMessage
from codexdrv.protocol.rollout import read_record_line


class RecordReading(NamedTuple):
    """What the record says."""

    #: Whether it could be read at all; if not, it says neither yes nor no.
    is_readable: bool
    #: The lines that record this input; two would be one too many.
    found: tuple[UserMessage, ...]


UNREADABLE = RecordReading(is_readable=False, found=())


def record_size(path: str | None) -> int:
    """Say how long the record is now, in bytes; 0 where there is none yet."""
    try:
        return os.stat(path).st_size if path else 0
    except OSError:
        return 0


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


def search_records(paths: Iterable[str], delivery: DeliveryId) -> RecordReading:
    """Find the lines that record an input in several records; all must be readable for a no."""
    readings = [search_record(path, delivery, start=0) for path in paths]
    found = tuple(message for reading in readings for message in reading.found)
    return RecordReading(all(reading.is_readable for reading in readings), found)


def search_record(path: str | None, delivery: DeliveryId, *, start: int) -> RecordReading:
    """Find the lines that record an input, from a byte position on.

    Only lines that hold the id are parsed, so the cost is that of reading the bytes once.
    """
    if path is None:
        return UNREADABLE
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= start:
                # Shorter than it was is another file under this name.
                return RecordReading(is_readable=size == start, found=())
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as record:
                return RecordReading(True, tuple(_search(record, delivery, start)))
    except OSError:
        return UNREADABLE


def _search(record: mmap.mmap, delivery: DeliveryId, start: int) -> list[UserMessage]:
    needle = f'"{delivery}"'.encode()
    found = []
    position = record.find(needle, start)
    while position >= 0:
        begin = record.rfind(b"\n", 0, position) + 1
        end = record.find(b"\n", position)
        end = len(record) if end < 0 else end
        message = read_record_line(record[begin:end])
        if message is not None and message.client_id == delivery:
            found.append(message)
        position = record.find(needle, end)
    return found
