"""What lies unread in the sockets of another process."""

import array
import ctypes
import fcntl
import os
import socket
import stat
import termios
from contextlib import closing, suppress
from pathlib import Path


PIDFD_GETFD = 438
"""pidfd_getfd(2), the same number on every architecture; Python has no name for it."""


def unread_bytes(pid: int) -> int:
    """Count the bytes that wait in the unix sockets of a process of ours, which may be stopped."""
    libc = ctypes.CDLL(None, use_errno=True)
    total = 0
    with closing(_Descriptor(os.pidfd_open(pid))) as process:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if not stat.S_ISSOCK(entry.stat().st_mode):
                    continue
                number = libc.syscall(PIDFD_GETFD, process.number, int(entry.name), 0)
                assert number >= 0, os.strerror(ctypes.get_errno())
                with socket.socket(fileno=number) as theirs:
                    # What the model has answered waits in one of another kind.
                    if theirs.family == socket.AF_UNIX:
                        waiting = array.array("i", [0])
                        fcntl.ioctl(number, termios.FIONREAD, waiting)
                        total += waiting[0]
    return total


class _Descriptor:
    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        os.close(self.number)
