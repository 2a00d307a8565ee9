"""Our end, which runs, and the peer's, which a test moves by hand."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NoReturn

import anyio
from anyio.abc import ByteStream

from codexdrv.engine.rpc import Rpc
from codexdrv.errors import CodexdrvError
from codexdrv.protocol.methods import Call
from codexdrv.transport.channel import Channel, Ticket
from codexdrv.wire.framing import MESSAGE_BYTES_MAX
from codexdrv.wire.message import decode, encode
from tests.contract.ways import WAIT_S, Kind, Way, fresh
from tests.fakes.server_framing import WebSocketServerFraming


ASK = Call("ask", {})
BIG = b"x" * 1_048_576
"""More than any stream here holds that nobody reads: a write of it waits."""


class ByteByByte(ByteStream):
    """A stream that carries one byte at a time, both ways."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        return await self._stream.receive(min(1, max_bytes))

    async def send(self, item: bytes) -> None:
        for byte in item:
            await self._stream.send(bytes([byte]))

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


class Peer:
    """The other end: it reads and writes when it is told to, and not otherwise."""

    def __init__(self, stream: ByteStream, stop_reading: Callable[[], None], kind: Kind) -> None:
        self.stream = stream
        self.stop_reading = stop_reading
        self.framing = kind.theirs()
        self._kind = kind
        self._taken: deque[bytes] = deque()

    async def greet(self) -> None:
        """Answer the upgrade, where there is one, and wait until the other side has seen that."""
        if not isinstance(self.framing, WebSocketServerFraming):
            return
        with anyio.fail_after(WAIT_S):
            while not self.framing.is_greeted:
                await self._read()
            self.framing.send_ping()
            await self.flush()
            while not self.framing.pongs:
                await self._read()

    async def take(self) -> bytes:
        with anyio.fail_after(WAIT_S):
            while not self._taken:
                await self._read()
        return self._taken.popleft()

    async def take_rest(self) -> list[bytes]:
        """Read until the end of the stream; messages that are not whole do not count."""
        with anyio.fail_after(WAIT_S), suppress(anyio.EndOfStream, ConnectionError):
            while True:
                await self._read()
        rest = list(self._taken)
        self._taken.clear()
        return rest

    async def send(self, *messages: bytes) -> None:
        for message in messages:
            self.framing.send_message(message)
        await self.flush()

    async def push(self, *messages: bytes) -> None:
        """Send for as long as somebody reads."""
        with suppress(anyio.BrokenResourceError, OSError):
            await self.send(*messages)

    async def send_half(self, message: bytes) -> None:
        """Send a message without its end."""
        self.framing.send_message(message)
        data = self.framing.data_to_send()
        with anyio.fail_after(WAIT_S):
            await self.stream.send(data[: len(data) // 2])

    async def flush(self) -> None:
        """Send what is due, replies to pings included."""
        with anyio.fail_after(WAIT_S):
            await self.stream.send(self.framing.data_to_send())

    async def say_goodbye(self) -> None:
        """Say that nothing more will come; the stream stays open where that is no goodbye."""
        self.framing.send_close()
        await self.flush()
        if not self._kind.has_goodbye:
            await self.stream.send_eof()

    async def request(self):
        """Take a message and read it."""
        return decode(await self.take())

    async def answer(self, *messages) -> None:
        await self.send(*map(encode, messages))

    async def _read(self) -> None:
        self._taken += self.framing.receive_data(await self.stream.receive())


class Asked:
    """One call in a task of its own: how it ended, and what `on_answer` was told."""

    def __init__(self) -> None:
        self.told: list = []
        self.result = None
        self.error: CodexdrvError | None = None
        self._scope = anyio.CancelScope()
        self._is_over = anyio.Event()

    async def over(self) -> None:
        with anyio.fail_after(WAIT_S):
            await self._is_over.wait()

    async def cancel(self) -> None:
        self._scope.cancel()
        await self.over()

    async def run(self, rpc: Rpc, call: Call) -> None:
        with self._scope:
            try:
                self.result = await rpc.call(call, on_answer=self.told.append)
            except CodexdrvError as error:
                self.error = error
        self._is_over.set()


class Link:
    """Our end of a connection, and what came of it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.rpc = Rpc(channel, self.hear, self._note_gap)
        #: What else runs until the block ends.
        self.tasks = anyio.create_task_group()
        #: Messages, in the order in which they were told.
        self.heard: list = []
        self.gaps = 0
        #: Why it ended.
        self.end: Exception | None = None
        self._changed = anyio.Event()

    def hear(self, message) -> None:
        self.heard.append(message)
        self._changed.set()

    def ask(self, call: Call = ASK) -> Asked:
        asked = Asked()
        self.tasks.start_soon(asked.run, self.rpc, call)
        return asked

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(WAIT_S):
            while not condition():
                self._changed = anyio.Event()
                await self._changed.wait()

    async def ended(self) -> Exception:
        await self.until(lambda: self.end is not None)
        return self.end

    async def quiet(self) -> None:
        with anyio.fail_after(WAIT_S):
            await self.rpc.wait_until_quiet()

    async def choke(self) -> Ticket:
        """Post more than the peer's side holds: while it does not read, our writer waits."""
        ticket = self.channel.post(BIG)
        await self.turn_until(lambda: ticket.is_started)
        return ticket

    async def written(self, ticket: Ticket) -> None:
        """Wait until all of a message is in the hands of the kernel."""
        await self.turn_until(lambda: ticket.is_started and not self.channel._is_cut)

    async def waiting(self, count: int) -> None:
        """Wait until so many messages are posted of which no byte is written."""
        await self.turn_until(lambda: len(self.channel._outbox) == count)

    async def turn_until(self, condition: Callable[[], bool]) -> None:
        """Let our tasks go on until it is so; for what needs no news from the peer."""
        with anyio.fail_after(WAIT_S):
            while not condition():
                await anyio.lowlevel.checkpoint()

    async def run_channel(self) -> None:
        await self._run(lambda: self.channel.run(self.hear, lambda _: self._note_gap()))

    async def run_rpc(self) -> None:
        await self._run(self.rpc.run)

    async def _run(self, run: Callable[[], Awaitable[NoReturn]]) -> None:
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - a test looks at it
            self.end = error
            self._changed.set()

    def _note_gap(self) -> None:
        self.gaps += 1
        self._changed.set()


class PeeredLink(Link):
    """A link whose peer a test moves."""

    def __init__(self, channel: Channel, peer: Peer) -> None:
        super().__init__(channel)
        self.peer = peer


@asynccontextmanager
async def run_link(link, run: Callable[[Link], Awaitable[None]]) -> AsyncIterator:
    """Run a channel, as one of the two methods of a link does, until the block ends."""
    async with link.tasks:
        link.tasks.start_soon(run, link)
        yield link
        link.tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_link(
    way: Way,
    directory: Path,
    run: Callable[[Link], Awaitable[None]],
    *,
    bytes_max: int = MESSAGE_BYTES_MAX,
    is_thin: bool = False,
    is_greeted: bool = True,
) -> AsyncIterator[PeeredLink]:
    """Connect and run; nothing but the greeting has been said."""
    async with way.open(fresh(directory)) as ends:
        wrap = ByteByByte if is_thin else lambda stream: stream
        channel = Channel(wrap(ends.ours), way.kind.ours(bytes_max))
        peer = Peer(wrap(ends.theirs), ends.stop_reading, way.kind)
        async with run_link(PeeredLink(channel, peer), run) as link:
            if is_greeted:
                await link.peer.greet()
            yield link
