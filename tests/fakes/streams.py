"""Byte streams in memory, with the back-pressure of a socket (tests/fakes/test_streams.py)."""

import anyio
from anyio.abc import ByteStream


CAPACITY_BYTES = 65_536


class _Pipe:
    """One direction: what was sent and not yet received."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.bytes = bytearray()
        self.is_ended = False
        self.is_broken = False
        self._changed = anyio.Event()

    def notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def wait(self) -> None:
        await self._changed.wait()


class MemoryByteStream(ByteStream):
    """One end of a pair; `breaks_after` more bytes, a send fails as EPIPE does."""

    def __init__(self, inbox: _Pipe, outbox: _Pipe) -> None:
        self.breaks_after: int | None = None
        #: The argument of every send so far, whether it went through or not.
        self.sent: list[bytes] = []
        #: Set when a send had to wait for the peer.
        self.blocked = anyio.Event()
        self._inbox = inbox
        self._outbox = outbox
        self._is_closed = False
        self._is_sending = False
        self._is_receiving = False

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if self._is_sending:
            raise anyio.BusyResourceError("writing to")
        self._is_sending = True
        self.sent.append(item)
        try:
            await self._send_all(memoryview(item))
        finally:
            self._is_sending = False

    async def _send_all(self, rest: memoryview) -> None:
        pipe = self._outbox
        while rest:
            if self._is_closed:
                raise anyio.ClosedResourceError
            if pipe.is_broken or pipe.is_ended or self.breaks_after == 0:
                raise anyio.BrokenResourceError
            room = pipe.capacity - len(pipe.bytes)
            if self.breaks_after is not None:
                room = min(room, self.breaks_after)
            if room <= 0:
                self.blocked.set()
                await pipe.wait()
                continue
            part, rest = rest[:room], rest[room:]
            pipe.bytes += part
            if self.breaks_after is not None:
                self.breaks_after -= len(part)
            pipe.notify()

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        await anyio.lowlevel.checkpoint()
        if self._is_receiving:
            raise anyio.BusyResourceError("reading from")
        self._is_receiving = True
        try:
            return await self._receive_some(max_bytes)
        finally:
            self._is_receiving = False

    async def _receive_some(self, max_bytes: int) -> bytes:
        pipe = self._inbox
        while not self._is_closed:
            if pipe.bytes:
                data = bytes(pipe.bytes[:max_bytes])
                del pipe.bytes[:max_bytes]
                pipe.notify()
                return data
            if pipe.is_ended:
                raise anyio.EndOfStream
            await pipe.wait()
        raise anyio.ClosedResourceError

    async def send_eof(self) -> None:
        self._outbox.is_ended = True
        self._outbox.notify()
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self.cut()
        await anyio.lowlevel.checkpoint()

    def cut(self) -> None:
        """Close without a pause, as the kernel does for a process that is killed."""
        self._is_closed = True
        self._outbox.is_ended = True
        self._inbox.is_broken = True
        self._outbox.notify()
        self._inbox.notify()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def unread(self) -> bytes:
        """What went out and the other end has not received."""
        return bytes(self._outbox.bytes)


def open_pair(capacity: int = CAPACITY_BYTES) -> tuple[MemoryByteStream, MemoryByteStream]:
    """Make two connected ends; each direction holds `capacity` bytes that nobody has received."""
    one, other = _Pipe(capacity), _Pipe(capacity)
    return MemoryByteStream(one, other), MemoryByteStream(other, one)


async def receive_exactly(stream: ByteStream, count: int) -> bytes:
    """Receive that many bytes, however they are cut."""
    data = b""
    with anyio.fail_after(5):
        while len(data) < count:
            data += await stream.receive(count - len(data))
    return data


async def receive_all(stream: ByteStream) -> bytes:
    """Receive until the other side ends the stream."""
    data = bytearray()
    with anyio.fail_after(5):
        try:
            while True:
                data += await stream.receive()
        except anyio.EndOfStream:
            return bytes(data)
