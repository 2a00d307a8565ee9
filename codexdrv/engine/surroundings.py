"""What the host says beside the server: who lives, who has a file open, whether there is room."""

import os
from collections.abc import Callable
from typing import NamedTuple

from codexdrv.journal.dispatch import Peer
from codexdrv.rules.evidence import Fate
from codexdrv.transport.peer import (
    PeerIdentity,
    current_boot,
    current_namespace,
    is_gone,
    writers_of,
)


ROOM_BYTES_MIN = 1_048_576
"""A record line may be as large as an input, and is written whole or cut."""


class Surroundings(NamedTuple):
    """Questions to the host, each synchronous and short; simulations answer them otherwise."""

    #: What became of the process that an input was sent to; None: nobody noted which.
    fate_of: Callable[[Peer | None], Fate]
    #: Whether only this server can write the record of a thread that it has loaded.
    is_sole_writer: Callable[[str, PeerIdentity | None], bool]
    #: Whether the record can grow.
    has_room: Callable[[str], bool]


def fate_of(peer: Peer | None) -> Fate:
    """Say what became of a server process."""
    if peer is None:
        return Fate.UNKNOWN
    boot = current_boot()
    if boot is not None and boot != peer.boot_id:
        return Fate.HOST_RESTARTED
    if peer.namespace != current_namespace():
        # Its pid is another process's here, or nobody's.
        return Fate.UNKNOWN
    return Fate.GONE if is_gone(PeerIdentity(*peer)) else Fate.ALIVE


def is_sole_writer(path: str, server: PeerIdentity | None) -> bool:
    """Say whether this server, and nobody else, writes into the record of a thread it has loaded.

    Every version has the file open for as long as the thread is loaded. One that has not, writes
    elsewhere: the file was replaced, or could not be written and is held back. Where the server's
    process is not known (behind a forwarder), the only one that has it open is the server.
    """
    writers = writers_of(path)
    if not writers:
        # There is none before the first turn of a thread.
        return not os.path.exists(path)
    return len(writers) == 1 and (server is None or server.pid in writers)


def has_room(path: str) -> bool:
    """Say whether the file system of a record has room for more of it; unknown: yes."""
    try:
        status = os.statvfs(os.path.dirname(path))
    except OSError:
        return True
    return status.f_bavail * status.f_frsize >= ROOM_BYTES_MIN


REAL = Surroundings(fate_of, is_sole_writer, has_room)
"""The host that we run on."""
