"""One connection to a server, ready for a session: the stream, its framing, and who is there."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

from codexdrv.transport.channel import Channel
from codexdrv.transport.peer import PeerIdentity
from codexdrv.transport.unix import open_unix
from codexdrv.wire.websocket import WebSocketFraming


class Connection(NamedTuple):
    """An open connection."""

    channel: Channel
    #: The server's process, where that is known for certain.
    peer: PeerIdentity | None
    pid: int


Connect = Callable[[], AbstractAsyncContextManager[Connection]]
"""Open a new one, each time."""


@asynccontextmanager
async def attach(socket: str) -> AsyncIterator[Connection]:
    """Connect to a server that listens on a unix socket.

    Raises:
        LinkError: as `open_unix`.
    """
    async with open_unix(socket) as link:
        yield Connection(Channel(link.stream, WebSocketFraming()), link.peer, link.pid)
