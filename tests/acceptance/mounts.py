"""File systems that only root can make: a small disk, a read-only one, one of another kernel.

Each is held by a helper, run as root, that takes it down when this process lets go of it: by the
end of the block, or by its own end, of whatever kind.
"""

import contextlib
import ctypes
import errno
import os
import select
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]
"""Mounts and other people's files want root; a user namespace will not do, for in it `/` belongs
to nobody, and a state directory under such a root is refused."""

MOUNTED = "mounted"
"""What the helper says when it is."""

MNT_DETACH = 2
"""Of umount2(2): gone at once, also where a file is still open."""


class Disk(NamedTuple):
    """A mounted file system."""

    point: Path

    @contextlib.contextmanager
    def filled(self) -> Iterator[None]:
        """Leave no room on it, for as long as the block lasts."""
        ballast = self.point / "ballast"
        try:
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            yield
        finally:
            ballast.unlink()

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """Let nobody write, for as long as the block lasts; no file may be open for writing."""
        as_root("mount", "-o", "remount,ro", str(self.point))
        try:
            yield
        finally:
            as_root("mount", "-o", "remount,rw", str(self.point))


@contextlib.contextmanager
def small_disk(point: Path, *, size: str) -> Iterator[Disk]:
    """Mount an empty file system of this size, ours alone, in memory."""
    options = f"size={size},mode=0700,uid={os.getuid()},gid={os.getgid()}"
    with _held("tmpfs", point, options):
        yield Disk(point)


@contextlib.contextmanager
def network_disk(point: Path, kind: str) -> Iterator[Disk]:
    """Mount one of a FUSE kind ("fuse.sshfs"): an empty directory, ours alone, and no network."""
    with _held(kind, point, f"{os.getuid()}:{os.getgid()}"):
        yield Disk(point)


def as_root(*command: str) -> None:
    """Run a command as root; its failure is an error."""
    subprocess.run([*AS_ROOT, *command], check=True)


@contextlib.contextmanager
def _held(kind: str, point: Path, options: str) -> Iterator[None]:
    point.mkdir(mode=0o700)
    command = [*AS_ROOT, sys.executable, __file__, kind, str(point), options]
    pipe = subprocess.PIPE
    # A session of its own: Ctrl-C is for the tests, which then let go.
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as helper:
        assert helper.stdin is not None
        assert helper.stdout is not None
        said = helper.stdout.readline().decode().strip()
        assert said == MOUNTED, f"{kind} cannot be mounted; these tests want root: {said}"
        try:
            yield
        finally:
            helper.stdin.close()
            helper.wait()


# From here on: the helper.


def _hold(kind: str, point: str, options: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    fuse = os.open("/dev/fuse", os.O_RDWR) if kind.startswith("fuse.") else None
    owner = [int(number) for number in options.split(":")] if fuse is not None else []
    if fuse is not None:
        options = f"fd={fuse},rootmode=40000,user_id={owner[0]},group_id={owner[1]},allow_other"
    if libc.mount(b"none", point.encode(), kind.encode(), 0, options.encode()):
        _say(os.strerror(ctypes.get_errno()))
        return
    try:
        _say(MOUNTED)
        _serve_until_eof(fuse, owner)
    finally:
        libc.umount2(point.encode(), MNT_DETACH)


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _serve_until_eof(fuse: int | None, owner: list[int]) -> None:
    stdin = sys.stdin.fileno()
    watched = [stdin] if fuse is None else [stdin, fuse]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if stdin in ready:
            return
        assert fuse is not None
        request = os.read(fuse, 1 << 17)
        _, opcode, unique = struct.unpack_from("=IIQ", request)
        answer, error = _answer(opcode, owner)
        if opcode not in NEVER_ANSWERED:
            os.write(fuse, struct.pack("=IiQ", 16 + len(answer), -error, unique) + answer)


GETATTR, INIT = 3, 26
NEVER_ANSWERED = {2, 36, 42}
"""FORGET, INTERRUPT and BATCH_FORGET."""


def _answer(opcode: int, owner: list[int]) -> tuple[bytes, int]:
    """Speak as much of fuse(4) as a look at the directory itself takes."""
    if opcode == INIT:
        version, read_ahead, background, write_bytes_max = (7, 31), 0, (12, 9), 4096
        return struct.pack(
            "=IIII HHI 40x", *version, read_ahead, 0, *background, write_bytes_max
        ), 0
    if opcode == GETATTR:
        directory, links = 0o040700, 2
        return struct.pack(
            "=QII 6Q 3I 7I", *[0] * 3, 1, *[0] * 8, directory, links, *owner, 0, 4096, 0
        ), 0
    return b"", errno.ENOSYS


if __name__ == "__main__":
    _hold(*sys.argv[1:])
