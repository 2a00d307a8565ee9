"""One connection of the fake server, and the pump that serves it in lines."""

from collections import deque
from contextlib import suppress

import anyio
from anyio.abc import ByteStream

from codexdrv.wire.message import encode
from tests.fakes.line_framing import LineFraming


_STREAM_ERRORS = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class Connection:
    """One client, without I/O."""

    def __init__(self, number=0):
        #: In the order of connecting; whoever tells several of them does so by it.
        self.number = number
        self.is_greeted = False
        self.is_dropped = False
        self._outbox = deque()
        self._changed = anyio.Event()

    def send(self, message):
        if not self.is_dropped:
            self._outbox.append(encode(message))
            self.wake()

    def drop(self):
        self.is_dropped = True
        self.wake()

    def forget(self):
        """Lose what was not sent yet, as a process that is killed does."""
        self._outbox.clear()

    def wake(self):
        self._changed.set()

    async def due(self) -> list[bytes] | None:
        """Wait for frames to send; None when the connection is dropped and all are sent."""
        await self._changed.wait()
        self._changed = anyio.Event()
        frames = list(self._outbox)
        self._outbox.clear()
        if self.is_dropped:
            self.wake()
            return frames or None
        return frames


async def serve_lines(server, stream: ByteStream) -> None:
    """Serve one connection until either side ends it."""
    connection, framing = server.connect(), LineFraming()

    async def read():
        with suppress(*_STREAM_ERRORS):
            while not framing.is_closed:
                for frame in framing.receive_data(await stream.receive()):
                    server.receive(connection, frame)
                connection.wake()  # it may have been a ping
        server.drop(connection)

    async with stream, anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        while (frames := await connection.due()) is not None:
            for frame in frames:
                framing.send_message(frame)
            with suppress(*_STREAM_ERRORS):
                await stream.send(framing.data_to_send())
        tasks.cancel_scope.cancel()
