"""One supervisor a state directory: an `flock` that is held for life and never expires."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from codexdrv.errors import AlreadyRunning, JournalUnusable


FILE_NAME = "lock"


@contextmanager
def held_lock(directory: str) -> Iterator[None]:
    """Hold the lock of a state directory; the kernel drops it when the process ends.

    The file holds the pid for people; nobody decides anything by it.

    Raises:
        AlreadyRunning: another process holds it.
        JournalUnusable: it cannot be opened.
    """
    path = f"{directory}/{FILE_NAME}"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalUnusable(
            f"The lock {path} cannot be opened: {error.strerror}.",
            hint="Move it away, if it is no plain file of yours.",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            raise AlreadyRunning(
                f"Another supervisor holds {path} (pid {holder or 'unknown'}).",
                hint="One supervisor serves all threads of a state directory; "
                "`codexdrv status` shows it.",
            ) from None
        os.ftruncate(descriptor, 0)
        # A full disk keeps nobody from holding it; what cannot be used then, the journal says.
        with suppress(OSError):
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
