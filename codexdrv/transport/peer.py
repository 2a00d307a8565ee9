"""Which process is behind a socket, and whether that very process is gone.

No wall-clock times here: they move with the clock. A process is its pid, the clock ticks between
boot and its start, and the id of the boot.
"""

import os
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
    #: In which the pid means this process (pid_namespaces(7)); empty: it could not be read.
    namespace: str = ""


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
        ticks = _process_status(pid, proc).start_ticks
        return PeerIdentity(pid, ticks, _boot_id(proc), current_namespace(proc))
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
        # Other users' processes may be hidden (proc(5), hidepid), but not from kill(2).
        return proc != "/proc" or not _is_anybody(identity.pid)
    except (OSError, ValueError, IndexError):
        return False
    # A first thread that ended alone is shown as a zombie while the others still write.
    is_dead = now.state in {"Z", "X"} and now.threads <= 1
    return is_dead or now.start_ticks != identity.start_ticks


def current_boot(proc: str = "/proc") -> str | None:
    """Say which boot this is; None if it cannot be read."""
    try:
        return _boot_id(proc)
    except OSError:
        return None


def current_namespace(proc: str = "/proc") -> str:
    """Name the pid namespace that we are in; empty if that cannot be read."""
    try:
        return os.readlink(f"{proc}/self/ns/pid")
    except OSError:
        return ""


def writers_of(path: str, proc: str = "/proc") -> set[int]:
    """Find the processes that have a file open to write.

    Those of other users cannot be looked into; of them, whoever may be a server counts.
    """
    try:
        wanted = os.stat(path)
    except OSError:
        return set()
    return {
        int(entry.name)
        for entry in Path(proc).iterdir()
        if entry.name.isdecimal() and _has_open(entry, wanted)
    }


def _is_anybody(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # there is one, and it is another user's
    return True


def _has_open(process: Path, wanted: os.stat_result) -> bool:
    try:
        opened = os.listdir(process / "fd")
    except PermissionError:
        return _executable_name(int(process.name), str(process.parent)).startswith(
            SERVER_NAME_PREFIX
        )
    except OSError:
        return False
    return any(_writes(process, number, wanted) for number in opened)


def _writes(process: Path, number: str, wanted: os.stat_result) -> bool:
    descriptor = process / "fd" / number
    try:
        # By the name first: most are sockets and pipes, which need no second call.
        if not os.readlink(descriptor).startswith("/"):
            return False
        if not os.path.samestat(os.stat(descriptor), wanted):
            return False
        return _open_flags(process / "fdinfo" / number) & os.O_ACCMODE != os.O_RDONLY
    except (OSError, ValueError):
        return False


def _open_flags(info: Path) -> int:
    # A line `flags:`, in octal (proc_pid_fdinfo(5)).
    lines = info.read_text("ascii").splitlines()
    return next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))


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
