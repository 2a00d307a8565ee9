"""The supervisor's end of the bell: hung up under the lock, heard, and taken down."""

import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import anyio

from codexdrv import bell
from codexdrv.errors import JournalUnusable
from codexdrv.paths import short_socket_path


@contextmanager
def hung_bell(directory: str) -> Iterator[socket.socket]:
    """Hang up the bell, under the lock: what an earlier life left is taken down first.

    Raises:
        JournalUnusable: something else is in its place, or the disk is full.
    """
    path = f"{directory}/{bell.FILE_NAME}"
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ringer:
        ringer.setblocking(False)
        try:
            with short_socket_path(path) as short:
                ringer.bind(short)
            os.chmod(path, 0o600)
        except OSError as error:
            raise JournalUnusable(
                f"The bell {path} cannot be hung up: {error.strerror}.",
                hint="Move it away, if it is no socket of ours; else make room on the disk.",
            ) from error
        try:
            yield ringer
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)


async def hear_bell(ringer: socket.socket, on_ring: Callable[[], None]) -> None:
    """Listen for ever; several rings that wait are one."""
    while True:
        await anyio.wait_readable(ringer)
        with suppress(BlockingIOError):
            while True:
                ringer.recv(1)
        on_ring()
