"""Which process is behind a socket, and whether that very process is gone.

No wall-clock times here: they move with the clock. A process is its pid, the clock ticks between
boot and its start, and the id of the boot.
"""

import socket
import struct
from pathlib import Path
from typing import NamedTuple


SERVER_NAME_PREFIX = "codex"
"""How every native binary's file name begins (`codex`, `codex-x86_64-unknown-linux-musl`)."""

_CREDENTIALS = struct.Struct("3i")

# Where a field is in /proc/PID/stat (proc(5)), counted from field 3, the first after the name.
_STATE, _THREADS, _START_TICKS = 0, 17, 19


class PeerIdentity(NamedTuple):
    """One process of one boot, for ever."""

    pid: int
    start_ticks: int
    boot_id: str


class PeerCredentials(NamedTuple):
    """Who called `listen`, as the kernel noted it then; pid 0: in no namespace that we see."""

    pid: int
    uid: int


class _ProcessStatus(NamedTuple):
    state: str
    threads: int
    start_ticks: int


def peer_of(sock: socket.socket) -> PeerCredentials:
    """Ask the kernel who is at the other end of a connected unix socket."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return PeerCredentials(pid, uid)


def identify(pid: int, proc: str = "/proc") -> PeerIdentity | None:
    """Identify a process; None if there is none, or if it cannot be read."""
    if pid <= 0:
        return None
    try:
        return PeerIdentity(pid, _process_status(pid, proc).start_ticks, _boot_id(proc))
    except (OSError, ValueError, IndexError):
        return None


def identify_server(pid: int, proc: str = "/proc") -> PeerIdentity | None:
    """Identify the process behind a socket if it is the server itself; else it is unknown.

    An npm wrapper, systemd or a forwarder (ssh, socat) may end while the server lives on, and
    "gone" then proves nothing: so only an executable that is named as the server's counts.
    """
    name = _executable_name(pid, proc)
    return identify(pid, proc) if name.startswith(SERVER_NAME_PREFIX) else None


def is_gone(identity: PeerIdentity, proc: str = "/proc") -> bool:
    """Say whether a process has ended for certain; what cannot be read is not gone."""
    try:
        boot_id = _boot_id(proc)
    except OSError:
        # No /proc at all: then a missing pid says nothing.
        return False
    if boot_id != identity.boot_id:
        return True
    try:
        now = _process_status(identity.pid, proc)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except (OSError, ValueError, IndexError):
        return False
    # A first thread that ended alone is shown as a zombie while the others still write.
    is_dead = now.state in {"Z", "X"} and now.threads <= 1
    return is_dead or now.start_ticks != identity.start_ticks


def _process_status(pid: int, proc: str) -> _ProcessStatus:
    text = Path(proc, str(pid), "stat").read_bytes()
    # The name stands in parentheses and may hold some itself.
    fields = text[text.rindex(b")") + 1 :].split()
    return _ProcessStatus(fields[_STATE].decode(), int(fields[_THREADS]), int(fields[_START_TICKS]))


def _boot_id(proc: str) -> str:
    return Path(proc, "sys/kernel/random/boot_id").read_text("ascii").strip()


def _executable_name(pid: int, proc: str) -> str:
    """Name the executable; where it is another user's, the name that the process goes by."""
    entry = Path(proc, str(pid))
    try:
        return (entry / "exe").readlink().name
    except OSError:
        pass
    try:
        return (entry / "comm").read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""
