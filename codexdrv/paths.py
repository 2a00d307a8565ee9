"""Directories and socket paths: who may change them, and how to name a long one.

`deliver` imports it, so: only what that command loads anyway.
"""
# pathlib costs `deliver` 4 ms.

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from codexdrv.errors import JournalUnsafe, JournalUnusable


UNIX_PATH_BYTES_MAX = 107
"""The kernel's `sun_path` holds 108 bytes, one of them the closing NUL."""

LINKS_MAX = 40
"""The kernel follows as many in one path (path_resolution(7)) before it says ELOOP."""

NETWORK_FILE_SYSTEMS = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "ceph"),
        *("lustre", "gpfs", "beegfs", "ocfs2", "gfs2", "orangefs"),
        *("9p", "virtiofs", "vboxsf", "fakeowner"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.juicefs", "fuse.s3fs"),
        *("fuse.gcsfuse", "fuse.rclone", "fuse.grpcfuse", "fuse.vmhgfs-fuse"),
    }
)
"""File systems that another kernel may write too, the host of a virtual machine among them: a
write-ahead log needs memory that all its users share, and one kernel that keeps all the locks."""

_OF_THE_KERNEL = frozenset({"proc", "sysfs", "devpts", "debugfs", "tracefs", "securityfs"})
"""File systems that take no directories; root, too, is told that there is no such file."""

_ELSEWHERE = "choose another directory under [state] in the configuration"

_OCTAL = re.compile(r"\\([0-7]{3})")
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Offence(NamedTuple):
    """What is wrong with a file, in a sentence, and what to do about it."""

    sentence: str
    hint: str


@contextmanager
def short_socket_path(path: str) -> Iterator[str]:
    """Name a socket in at most `UNIX_PATH_BYTES_MAX` bytes, for as long as the block lasts.

    Raises:
        OSError: the directory cannot be opened, or the file name alone is too long.
    """
    if len(os.fsencode(path)) <= UNIX_PATH_BYTES_MAX:
        yield path
        return
    directory, name = os.path.split(path)
    opened = os.open(directory or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{opened}/{name}"
        if len(os.fsencode(short)) > UNIX_PATH_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        yield short
    finally:
        os.close(opened)


def make_private_directory(path: str) -> None:
    """Make a directory that only we may enter, with its parents; durable on return.

    Raises:
        JournalUnsafe: it was there, and is open to others.
        JournalUnusable: it cannot be made.
    """
    try:
        _make_directory(path.rstrip("/") or "/")
    except OSError as error:
        raise _unusable(path, "made", error) from error
    check_private_directory(path)


def check_private_directory(path: str) -> None:
    """Make sure that only we may enter a directory.

    Raises:
        JournalUnsafe: it is none, or is open to others; root gets no exception.
        JournalUnusable: it cannot be looked at.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise _unusable(path, "looked at", error) from error
    if offence := private_directory_offence(path, status, uid=os.geteuid()):
        raise JournalUnsafe(offence.sentence, hint=offence.hint)


def dead_end(path: str) -> Offence | None:
    """Say why a directory that is not there cannot be made by anybody, or None: a try will tell.

    Raises:
        OSError: the list of mounts cannot be read.
    """
    here = path
    while here and not os.path.lexists(here):
        here = os.path.dirname(here) if here != "/" else ""
    here = here or "."
    start = f"The directory {path} cannot be made: {here}"
    if not os.path.exists(here):
        return Offence(
            f"{start} is a link to {os.path.realpath(here)}, which is not there.",
            f"Mount or make what it leads to, or {_ELSEWHERE}.",
        )
    if not os.path.isdir(here):
        return Offence(f"{start} is not a directory.", f"Move it away, or {_ELSEWHERE}.")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        kind = file_system(os.path.realpath(here), mounts.read())
    if here != path and kind in _OF_THE_KERNEL:
        return Offence(
            f"{start} is the kernel's ({kind}) and takes none.", f"{_ELSEWHERE.capitalize()}."
        )
    return None


def private_directory_offence(path: str, status: os.stat_result, *, uid: int) -> Offence | None:
    """Say why a directory does not belong to this user alone, or None."""
    if not stat.S_ISDIR(status.st_mode):
        return Offence(f"{path} is not a directory.", "Choose another path.")
    if status.st_uid != uid:
        return Offence(
            f"{path} belongs to uid {status.st_uid}, and we are uid {uid}.",
            "Run as its owner, or choose another directory.",
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Offence(f"{path} is open to others (mode {mode:04o}).", f"chmod 700 {path}")
    return None


def unsafe_step(path: str) -> Offence | None:
    """Say who else could put another file in the place of this path, or None.

    Looks at every directory on the way, and at every link, but not at the file itself.

    Raises:
        OSError: the path ends early, and nothing before that was unsafe.
    """
    uid = os.geteuid()
    offences = (step_offence(step, status, uid=uid) for step, status in _walk(path))
    return next(filter(None, offences), None)


def step_offence(path: str, status: os.stat_result, *, uid: int) -> Offence | None:
    """Say why others could change what a directory (or link) on the way leads to, or None."""
    if status.st_uid not in {uid, 0}:
        return Offence(
            f"{path} belongs to uid {status.st_uid}, neither us nor root.",
            "Use a path on which every directory is yours or root's.",
        )
    # The mode of a link means nothing. With an ACL, the group's bits are the widest of its entries.
    if stat.S_ISLNK(status.st_mode) or not status.st_mode & _OTHERS_MAY_WRITE:
        return None
    # In a sticky directory nobody else may rename our files; the owner may, so it must be root.
    if status.st_mode & stat.S_ISVTX and status.st_uid == 0:
        return None
    mode = stat.S_IMODE(status.st_mode)
    return Offence(f"Others may write in {path} (mode {mode:04o}).", f"chmod go-w {path}")


def network_filesystem(path: str, mountinfo_text: str) -> str | None:
    """Name the type of the network file system that holds a path, or None; see `file_system`."""
    found = file_system(path, mountinfo_text)
    return found if found in NETWORK_FILE_SYSTEMS else None


def file_system(path: str, mountinfo_text: str) -> str:
    """Name the type of the file system that holds a path.

    `path` is absolute and has no links; `mountinfo_text` is /proc/self/mountinfo (proc(5)).
    """
    longest, found = -1, ""
    # Not `splitlines`: a mount point may hold what Unicode calls a line break.
    for line in mountinfo_text.strip("\n").split("\n"):
        before, _, after = line.partition(" - ")
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), before.split(" ")[4])
        # Of two mounts on one point, the later one hides the earlier.
        if len(point) >= longest and _is_within(path, point):
            longest, found = len(point), after.split(" ")[0]
    return found


def disk_offence(disk: os.statvfs_result) -> Offence | None:
    """Say why nothing can be written on a file system (of `os.statvfs`), or None."""
    if disk.f_flag & os.ST_RDONLY:
        return Offence(
            "its file system is read-only",
            f"Mount it for writing, or {_ELSEWHERE}.",
        )
    # A file system that does not count its blocks, or its files, has none of none.
    if (disk.f_blocks and not disk.f_bavail) or (disk.f_files and not disk.f_favail):
        return Offence("its disk is full", "Make room on it; what is stored stays.")
    return None


def _is_within(path: str, directory: str) -> bool:
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


def _make_directory(path: str) -> None:
    missing = []
    # What lies behind a link that leads nowhere is missing, and the link is not.
    while path and not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for step in reversed(missing):
        try:
            os.mkdir(step, 0o700)
        except FileExistsError:
            continue
        _sync_directory(os.path.dirname(step) or ".")


def _unusable(path: str, what: str, error: OSError) -> JournalUnusable:
    """Say by what is in the way why a directory cannot be used, else by the system's word."""
    with suppress(OSError):
        if offence := dead_end(path):
            return JournalUnusable(offence.sentence, hint=offence.hint)
    return JournalUnusable(
        f"The directory {path} cannot be {what}: {error.strerror}.",
        hint=f"{_ELSEWHERE.capitalize()}.",
    )


def _sync_directory(path: str) -> None:
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _walk(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Walk as the kernel does: yield each directory looked into, and each link followed."""
    here, links = "/", 0
    todo = os.path.join(os.getcwd(), path).split("/")[::-1]
    while todo:
        name = todo.pop()
        if name in {"", "."}:
            continue
        if name == "..":
            here = os.path.dirname(here)
            continue
        yield here, os.lstat(here)
        step = os.path.join(here, name)
        status = os.lstat(step)
        if not stat.S_ISLNK(status.st_mode):
            here = step
            continue
        links += 1
        if links > LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        yield step, status
        target = os.readlink(step)
        here = "/" if target.startswith("/") else here
        todo += target.split("/")[::-1]
