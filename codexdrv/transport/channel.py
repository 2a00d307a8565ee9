"""One pump for every connection: any byte stream, any framing, two tasks.

The reader never waits for the writer, so that a peer that does not read cannot keep us from
hearing it; what the framing wants to reply rides on the next write.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import NoReturn

import anyio
from anyio.abc import ByteStream

from codexdrv.errors import LinkLost, OutboxFull
from codexdrv.wire.framing import Framing


OUTBOX_MESSAGES_MAX = 128
"""Callers wait beyond this; app-server's own queues hold as many."""

READ_BYTES_MAX = 65_536
"""As much as a pipe holds, and a few hundred messages at once."""

BATCH_BYTES_MAX = 1_048_576
"""One write ends at the message that passes this: those behind it can still be withdrawn."""

UNSENT_BYTES_MAX = 8_388_608
"""More than the largest input (6 MiB): only replies to a peer that does not read grow so far."""

DRAIN_TIMEOUT_S = 0.25
"""What a peer said before it left is in our kernel already; reading it takes milliseconds."""

CLOSE_TIMEOUT_S = 1.0
"""For a goodbye, and for the stream: politeness, on which nothing depends."""

_STREAM_ERRORS = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Ticket:
    """One posted message, for as long as somebody may want it back."""

    __slots__ = ("_outbox", "frame", "is_started")

    def __init__(self, frame: bytes, outbox: "deque[Ticket]") -> None:
        self.frame = frame
        #: Whether a byte of it may have been written. It errs to True: a framing may hold a message
        #: back (WebSocket, until the upgrade is answered), and that cannot be seen from here.
        self.is_started = False
        self._outbox = outbox

    def withdraw(self) -> bool:
        """Take the message back; False if it may have been written, else it never will be."""
        with suppress(ValueError):
            self._outbox.remove(self)
        return not self.is_started


class Channel:
    """Messages over one connection, used once; made inside the event loop."""

    def __init__(self, stream: ByteStream, framing: Framing) -> None:
        #: When the last bytes came (at first: when the channel was made), by anyio's clock.
        self.last_received_at = anyio.current_time()
        #: When the last message came, not a pong; None: none has.
        self.last_message_at: float | None = None
        self._stream = stream
        self._framing = framing
        self._outbox: deque[Ticket] = deque()
        self._unsent = bytearray()
        self._work = anyio.Event()
        self._is_closed = False
        #: Whether the last write went out in part, as far as we know.
        self._is_cut = False

    def post(self, frame: bytes) -> Ticket:
        """Queue a message.

        Raises:
            OutboxFull, LinkLost: nothing was queued, nothing will be written.
        """
        if self._is_closed:
            raise LinkLost("The connection has ended.")
        if len(self._outbox) >= OUTBOX_MESSAGES_MAX:
            raise OutboxFull(f"{OUTBOX_MESSAGES_MAX} messages wait for the server to read.")
        ticket = Ticket(frame, self._outbox)
        self._outbox.append(ticket)
        self._work.set()
        return ticket

    def ping(self) -> None:
        """Queue something that the peer answers, where the framing has such a thing."""
        self._framing.send_ping()
        self._collect()

    @property
    def noise_frames_max(self) -> int:
        """How many frames that are no messages may come first; see `Framing`."""
        return self._framing.noise_frames_max

    @property
    def has_ping(self) -> bool:
        """Whether `ping` makes the peer answer; else a request has to."""
        return self._framing.has_ping

    async def run(
        self,
        on_message: Callable[[bytes], None],
        on_gap: Callable[[bytes], None] = lambda _: None,
    ) -> NoReturn:
        """Read and write until the connection ends; call `on_message` in the order of the wire.

        Args:
            on_message: told of each message.
            on_gap: told how each message began that was over the cap and dropped
                (`Framing.take_gaps`).

        Raises:
            LinkLost: the stream has ended, or the peer said goodbye.
            PeerError: as the framing says.
            Exception: whatever `on_message` raised. None of these comes in a group.
        """
        ends: list[Exception] = []

        async def run_half(half: Callable[[], Awaitable[NoReturn]]) -> None:
            try:
                await half()
            except Exception as error:  # noqa: BLE001 - raised again below
                self._is_closed = True
                ends.append(error)
                halves.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as halves:
                halves.start_soon(run_half, partial(self._read, on_message, on_gap))
                halves.start_soon(run_half, self._write)
        finally:
            self._is_closed = True
        raise ends.pop(0)

    async def aclose(self) -> None:
        """Say goodbye if the peer listens, then close the stream; takes 2 s at most."""
        self._is_closed = True
        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
            # After half a frame, the peer would read a goodbye as the other half.
            if not self._is_cut:
                await self._say_goodbye()
        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True), suppress(*_STREAM_ERRORS):
            await self._stream.aclose()

    async def _say_goodbye(self) -> None:
        self._framing.send_close()
        self._collect()
        if data := self._take_unsent():
            with suppress(*_STREAM_ERRORS):
                await self._stream.send(data)

    async def _read(
        self, on_message: Callable[[bytes], None], on_gap: Callable[[bytes], None]
    ) -> NoReturn:
        while True:
            data = await self._receive()
            self.last_received_at = anyio.current_time()
            # Messages come before the error behind them, and nothing else may ever come: so ask
            # until there are none.
            while messages := self._framing.receive_data(data):
                self.last_message_at = self.last_received_at
                for message in messages:
                    on_message(message)
                data = b""
            for head in self._framing.take_gaps():
                on_gap(head)
            if self._framing.is_closed:
                raise LinkLost("The server has closed the connection.")
            is_choked = len(self._unsent) > UNSENT_BYTES_MAX
            if self._collect() and is_choked:
                raise LinkLost("The server asks for replies and does not read them.")

    async def _receive(self) -> bytes:
        try:
            return await self._stream.receive(READ_BYTES_MAX)
        except anyio.EndOfStream as error:
            self._framing.receive_eof()
            raise LinkLost("The server has ended the connection.") from error
        except _STREAM_ERRORS as error:
            raise LinkLost("The connection broke while we read.") from error

    async def _write(self) -> NoReturn:
        while True:
            while data := self._take_due():
                await self._send(data)
            self._work = anyio.Event()
            await self._work.wait()

    async def _send(self, data: bytes) -> None:
        self._is_cut = True
        try:
            await self._stream.send(data)
        except _STREAM_ERRORS as error:
            self._is_closed = True
            # An answer that is read makes a delivery known instead of uncertain.
            await anyio.sleep(DRAIN_TIMEOUT_S)
            raise LinkLost("The connection broke while we wrote.") from error
        self._is_cut = False

    def _take_due(self) -> bytes:
        """Take what one write carries; the messages in it count as started from here on."""
        taken = 0
        while self._outbox and taken < BATCH_BYTES_MAX and not self._is_closed:
            ticket = self._outbox.popleft()
            ticket.is_started = True
            taken += len(ticket.frame)
            self._framing.send_message(ticket.frame)
        self._collect()
        return self._take_unsent()

    def _collect(self) -> bool:
        """Fetch what the framing wants written; say whether there was anything."""
        data = self._framing.data_to_send()
        if data:
            self._unsent += data
            self._work.set()
        return bool(data)

    def _take_unsent(self) -> bytes:
        data = bytes(self._unsent)
        self._unsent.clear()
        return data
