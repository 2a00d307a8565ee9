"""The unix socket of a running server: check it, connect, and see who is there."""

import errno
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
from anyio.abc import ByteStream

from codexdrv.errors import DeadlinePassed, NoServer, UnsafeSocket
from codexdrv.paths import short_socket_path, unsafe_step
from codexdrv.transport.peer import PeerCredentials, PeerIdentity, identify_server, peer_of
from codexdrv.transport.stream import DescriptorStream


CONNECT_TIMEOUT_S = 5.0
"""A healthy server takes a connection within milliseconds; a stopped one never."""

CONNECT_RETRY_S = 0.02
"""A full queue tells nobody when there is room again: a look costs one system call."""

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED}
_START_IT = (
    "Start it with `codex app-server --listen unix://PATH`, or name its socket: "
    "[server] socket in the configuration."
)


class UnixLink(NamedTuple):
    """A connection, and the process behind it where that is known (`peer.identify_server`)."""

    stream: ByteStream
    peer: PeerIdentity | None
    pid: int


def check_socket(path: str) -> str:
    """Make sure that nobody else can stand in for the server; return the path without links.

    Codex 0.163 and newer make a link at PATH to /tmp/codex-daemon-UID/<hash>: it is followed, and
    the way is checked on both sides of it.

    Raises:
        NoServer: there is nothing, or it cannot be reached.
        UnsafeSocket: the socket, or a step on the way, belongs to others or is open to them.
    """
    try:
        if offence := unsafe_step(path):
            raise UnsafeSocket(offence.sentence, hint=offence.hint)
        # The way is safe: nobody but us and root can change it between these lines.
        real = Path(path).resolve(strict=True)
        status = real.stat()
    except OSError as error:
        raise _no_server(path, error) from error
    check_file(path, status, uid=os.geteuid())
    return str(real)


def check_file(path: str, status: os.stat_result, *, uid: int) -> None:
    """Make sure that a file is a socket, and ours or root's.

    Raises:
        UnsafeSocket: it is not.
    """
    if not stat.S_ISSOCK(status.st_mode):
        raise UnsafeSocket(f"{path} is not a socket.", hint=_START_IT)
    _check_owner(f"The socket {path}", status.st_uid, uid=uid)


def check_peer(path: str, peer: PeerCredentials, *, uid: int) -> PeerIdentity | None:
    """Make sure that who listens is us or root; identify the process, where that can be known.

    Raises:
        UnsafeSocket: somebody else listens.
    """
    _check_owner(f"The server at {path}", peer.uid, uid=uid)
    return identify_server(peer.pid)


@asynccontextmanager
async def open_unix(path: str, *, timeout_s: float = CONNECT_TIMEOUT_S) -> AsyncIterator[UnixLink]:
    """Connect to a server that is checked first; the connection itself is the probe.

    Raises:
        NoServer, UnsafeSocket: as `check_socket` does, or nobody listens, or a stranger does.
        DeadlinePassed: the server takes no connections.
    """
    real = check_socket(path)
    try:
        unconnected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise _no_server(path, error) from error
    with unconnected as sock:
        sock.setblocking(False)
        try:
            with short_socket_path(real) as short, anyio.fail_after(timeout_s):
                await _connect(sock, short)
        except TimeoutError as error:
            raise DeadlinePassed(
                f"The server at {path} took no connection within {timeout_s:g} s.",
                hint="It may be stopped, or overloaded.",
            ) from error
        except OSError as error:
            raise _no_server(path, error) from error
        credentials = peer_of(sock)
        peer = check_peer(path, credentials, uid=os.geteuid())
        async with DescriptorStream(sock, sock) as stream:
            yield UnixLink(stream, peer, credentials.pid)


async def _connect(sock: socket.socket, path: str) -> None:
    # Not through the event loop: asyncio takes the EAGAIN of a full queue for "in progress", sees
    # that the socket is writable, and calls it connected.
    while True:
        try:
            return sock.connect(path)
        except BlockingIOError:
            await anyio.sleep(CONNECT_RETRY_S)


def _check_owner(what: str, owner: int, *, uid: int) -> None:
    if owner not in {uid, 0}:
        raise UnsafeSocket(
            f"{what} belongs to uid {owner}, neither us nor root.",
            hint="Run codexdrv as the user whose server it is.",
        )


def _no_server(path: str, error: OSError) -> NoServer:
    if error.errno in _ABSENT:
        return NoServer(f"No server listens at {path}: {error.strerror}.", hint=_START_IT)
    return NoServer(
        f"The socket {path} cannot be used: {error.strerror}.",
        hint="Check the path, and who may use it.",
    )
