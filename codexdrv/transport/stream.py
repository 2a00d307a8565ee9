"""Non-blocking descriptors as a byte stream: a socket, or the two pipes of a child."""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import anyio
from anyio.abc import ByteStream


IS_OVER_POLL_S = 0.5
"""How often a silent stream is asked whether its peer has ended: a look costs one system call."""


class Descriptor(Protocol):
    """A socket, or the file of a pipe; not blocking."""

    def fileno(self) -> int:
        """Say its number; once it is closed, -1 or ValueError."""

    def close(self) -> None:
        """Close it."""


class DescriptorStream(ByteStream):
    """What is read from one descriptor and written to another, or to the same.

    Not anyio's own: in 4.16 a read that is cancelled in the moment in which data comes leaves an
    `InvalidStateError` in the event loop; its `wait_readable` does not.
    """

    def __init__(
        self,
        reading: Descriptor,
        writing: Descriptor,
        *,
        is_over: Callable[[], bool] | None = None,
    ) -> None:
        """Take descriptors that are open.

        Args:
            reading: where bytes come from.
            writing: where they go to.
            is_over: whether nothing more will come, though the stream stays open: a process that
                inherited the pipes of a dead peer holds them for as long as it lives.
        """
        self._reading = reading
        self._writing = writing
        self._is_over = is_over

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Wait for bytes.

        Raises:
            EndOfStream: there will be none.
            OSError, ClosedResourceError: the descriptor broke, or was closed.
        """
        await anyio.lowlevel.checkpoint()
        is_last = False
        while True:
            try:
                data = os.read(self._open(self._reading), max_bytes)
            except BlockingIOError:
                if is_last:
                    raise anyio.EndOfStream from None
                is_last = await self._wait_readable()
            else:
                if not data:
                    raise anyio.EndOfStream
                return data

    async def send(self, item: bytes) -> None:
        """Write all of it.

        Raises:
            OSError, ClosedResourceError: the peer reads no more, or the descriptor was closed.
        """
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[os.write(self._open(self._writing), rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._writing)

    async def send_eof(self) -> None:
        """Say that nothing more will be written."""
        await anyio.lowlevel.checkpoint()
        if self._writing is not self._reading:
            _close(self._writing)
        elif isinstance(self._writing, socket.socket):
            with suppress(OSError):
                self._writing.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close both descriptors; who waits for them is told. Twice is fine."""
        _close(self._reading)
        _close(self._writing)

    async def _wait_readable(self) -> bool:
        """Wait for bytes; say whether the peer has ended, so that a last look is enough."""
        if self._is_over is None:
            await anyio.wait_readable(self._reading)
            return False
        with anyio.move_on_after(IS_OVER_POLL_S):
            await anyio.wait_readable(self._reading)
            return False
        return self._is_over()

    def _open(self, descriptor: Descriptor) -> int:
        number = _number(descriptor)
        if number < 0:
            raise anyio.ClosedResourceError
        return number


def _close(descriptor: Descriptor) -> None:
    if _number(descriptor) >= 0:
        # Whoever waits for it is told, instead of waiting for ever.
        anyio.notify_closing(descriptor)
        descriptor.close()


def _number(descriptor: Descriptor) -> int:
    """Say the descriptor's number, or -1; a closed file says it with an exception."""
    try:
        return descriptor.fileno()
    except ValueError:
        return -1
