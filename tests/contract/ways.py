"""Every way to run a channel: a framing, and the stream under it."""

import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
from anyio.abc import ByteStream

from codexdrv.paths import short_socket_path
from codexdrv.transport.child import Child
from codexdrv.transport.stream import DescriptorStream
from codexdrv.transport.unix import open_unix
from codexdrv.wire.framing import Framing
from codexdrv.wire.jsonl import JsonlFraming
from codexdrv.wire.websocket import WebSocketFraming
from tests.fakes.line_framing import LineFraming
from tests.fakes.server_framing import WebSocketServerFraming
from tests.fakes.streams import open_pair


CABLE = Path(__file__).with_name("cable.py")
WAIT_S = 10.0
STOP_GRACE_S = 0.5


class Ends(NamedTuple):
    """A stream, and the end that the peer holds."""

    ours: ByteStream
    theirs: ByteStream
    #: Makes every later write of ours fail, while the peer can still write.
    stop_reading: Callable[[], None]


class Kind(NamedTuple):
    """A framing: our side, the peer's, and what it can do."""

    name: str
    ours: Callable[[int], Framing]
    theirs: Callable[[], Framing]
    #: Whether there is more to a goodbye than the end of the stream.
    has_goodbye: bool
    has_cap: bool = True


class Way(NamedTuple):
    kind: Kind
    name: str
    open: Callable[[Path], AbstractAsyncContextManager[Ends]]

    def __str__(self) -> str:
        return f"{self.kind.name}-{self.name}"


@asynccontextmanager
async def open_memory(_: Path) -> AsyncIterator[Ends]:
    ours, theirs = open_pair()

    def stop_reading():
        ours.breaks_after = 0

    yield Ends(ours, theirs, stop_reading)


@contextmanager
def listening(directory: Path):
    with socket.socket(socket.AF_UNIX) as sock:
        with short_socket_path(str(directory / "s")) as short:
            sock.bind(short)
        sock.listen()
        sock.setblocking(False)
        yield sock


@asynccontextmanager
async def accepted(server: socket.socket, ours: ByteStream) -> AsyncIterator[Ends]:
    with anyio.fail_after(WAIT_S):
        await anyio.wait_readable(server)
    sock, _ = server.accept()
    sock.setblocking(False)
    async with DescriptorStream(sock, sock) as theirs:
        yield Ends(ours, theirs, lambda: sock.shutdown(socket.SHUT_RD))


@asynccontextmanager
async def open_socket(directory: Path) -> AsyncIterator[Ends]:
    with listening(directory) as server:
        async with (
            open_unix(str(directory / "s")) as link,
            accepted(server, link.stream) as ends,
        ):
            yield ends


@asynccontextmanager
async def open_pipes(_: Path) -> AsyncIterator[Ends]:
    """Two pipes, as those of a child."""
    (one_reads, other_writes), (other_reads, one_writes) = open_pipe(), open_pipe()
    async with (
        DescriptorStream(one_reads, one_writes) as ours,
        DescriptorStream(other_reads, other_writes) as theirs,
    ):
        yield Ends(ours, theirs, other_reads.close)


def open_pipe():
    """Open the two ends of a pipe as files that do not block."""
    numbers = os.pipe()
    for number in numbers:
        os.set_blocking(number, False)
    return tuple(
        open(number, mode, buffering=0) for number, mode in zip(numbers, ("rb", "wb"), strict=True)
    )


@asynccontextmanager
async def open_child(directory: Path) -> AsyncIterator[Ends]:
    """A real process, whose pipes lead to the peer."""
    said: list[str] = []
    with listening(directory) as server:
        child = Child(
            [sys.executable, "-I", "-S", str(CABLE), "s"],
            environment={},
            directory=str(directory),
            on_stderr=said.append,
            has_pipes=True,
        )
        try:
            async with child.stream() as stream, accepted(server, stream) as ends:
                yield ends
        finally:
            with anyio.CancelScope(shield=True):
                await child.stop(STOP_GRACE_S)
    assert said == []


def fresh(directory: Path) -> Path:
    """Make a directory for one connection."""
    return Path(tempfile.mkdtemp(dir=directory))


JSONL = Kind("jsonl", JsonlFraming, JsonlFraming, has_goodbye=False)
WEBSOCKET = Kind("websocket", WebSocketFraming, WebSocketServerFraming, has_goodbye=True)
# The fake that the tests of other modules use in place of the two; whoever fakes, passes.
LINES = Kind("lines", lambda _: LineFraming(), LineFraming, has_goodbye=True, has_cap=False)

STREAMS = {"memory": open_memory, "unix": open_socket, "stdio": open_pipes}
WAYS = [
    *(Way(kind, name, opener) for kind in (JSONL, WEBSOCKET) for name, opener in STREAMS.items()),
    # A child has JSONL only: no server speaks WebSocket on its pipes.
    Way(JSONL, "child", open_child),
    Way(LINES, "memory", open_memory),
]
