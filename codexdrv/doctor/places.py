"""The state directory and the Codex home as places: who may touch them, what disk they lie on."""

import os
import stat
from contextlib import suppress
from typing import NamedTuple

from codexdrv import bell, lock, snapshot
from codexdrv.doctor.finding import Finding, failed, note, ok, wrong
from codexdrv.journal import opening
from codexdrv.paths import (
    Offence,
    dead_end,
    disk_offence,
    network_filesystem,
    private_directory_offence,
    unsafe_step,
)


FREE_BYTES_MIN = 64 * 2**20
"""One turn's record can be as large (lines of 81 MB were seen, WIRE-FACTS, "Framing"), and both
write-ahead logs need room before anything is given back."""

FREE_FILES_MIN = 1000
"""Every thread is a file of its own, and every database is three."""

OURS = (
    opening.FILE_NAME,
    f"{opening.FILE_NAME}-wal",
    f"{opening.FILE_NAME}-shm",
    lock.FILE_NAME,
    snapshot.FILE_NAME,
    bell.FILE_NAME,
)
"""What we make in the state directory; the mode of each is 0600."""

MOVE = "Put it on a local disk: dir under [state]."

ANYBODYS = "/tmp"  # noqa: S108 - it is named, not used
AWAY = "Move it, not into a workspace either: dir under [state]."


class StateSeen(NamedTuple):
    """The state directory, and who may touch it."""

    path: str
    #: It is there; if not, what follows is about the way to it.
    is_there: bool
    offences: tuple[Offence, ...]


class Disk(NamedTuple):
    """Where a directory lies, or would."""

    path: str
    #: Of the network file system; None: it is a local one.
    network: str | None
    #: Two directories of one device share their room.
    device: int
    #: None: the file system does not say.
    room: os.statvfs_result | None


def look_at_state(directory: str) -> StateSeen:
    """Look at the way to the state directory, at it, and at its files."""
    offences: list[Offence] = []
    status = None
    # A way that ends early is safe as far as it goes; the rest we shall make, if we can.
    with suppress(FileNotFoundError, NotADirectoryError):
        if offence := unsafe_step(directory):
            offences.append(offence)
    with suppress(FileNotFoundError, NotADirectoryError):
        status = os.stat(directory)
    if status is None:
        obstacle = dead_end(directory) or _closed_way(directory)
        return StateSeen(directory, False, (*offences, obstacle) if obstacle else tuple(offences))
    uid = os.geteuid()
    if offence := private_directory_offence(directory, status, uid=uid):
        return StateSeen(directory, True, (*offences, offence))
    for name in OURS:
        path = os.path.join(directory, name)
        with suppress(FileNotFoundError):
            if offence := private_file_offence(path, os.lstat(path), uid=uid):
                offences.append(offence)
    return StateSeen(directory, True, tuple(offences))


def _closed_way(directory: str) -> Offence | None:
    """Say why we may not make a directory, or None; of a disk for reading, another check tells."""
    there = _there(directory)
    if os.access(there, os.W_OK | os.X_OK) or os.statvfs(there).f_flag & os.ST_RDONLY:
        return None
    return Offence(
        f"{directory} is not there, and we may not make it: {there} is closed to us.",
        "Choose another one: dir under [state]. Or run as the user whose it is.",
    )


def private_file_offence(path: str, status: os.stat_result, *, uid: int) -> Offence | None:
    """Say why a file of ours is not ours alone, or None; the bell is a socket."""
    if path.endswith(f"/{bell.FILE_NAME}") and stat.S_ISSOCK(status.st_mode):
        plain = stat.S_IFREG | stat.S_IMODE(status.st_mode)
        status = os.stat_result((plain, *status[1:]))
    return opening.file_offence(path, status, uid=uid)


def judge_state(seen: StateSeen | Offence) -> list[Finding]:
    """Say who else could touch the journal; a line for each offence."""
    name = "permissions"
    if isinstance(seen, Offence):
        return [failed(name, seen)]
    if seen.offences:
        return [failed(name, offence) for offence in seen.offences]
    if not seen.is_there:
        return [note(name, f"{seen.path} is not there yet: made by the first `codexdrv deliver`")]
    return [ok(name, f"{seen.path} and its files are yours alone, and so is the way to them")]


def sandbox_place_above(directory: str, tmpdir: str) -> str | None:
    """Name what holds a directory, and a model's sandboxed command may write in without asking.

    These are /tmp and $TMPDIR, and the workspaces (WIRE-FACTS, "Sandbox"), which are each
    thread's own and not known here.
    """
    real = os.path.realpath(directory)
    for place in (ANYBODYS, tmpdir):
        top = os.path.realpath(place)
        if os.path.isabs(place) and os.path.commonpath((top, real)) == top:
            return place
    return None


def judge_sandbox(directory: str, place: str | Offence | None) -> Finding:
    """Say whether a model could forge what we have written down."""
    if isinstance(place, Offence):
        return failed("sandbox", place)
    if place is None:
        return ok(
            "sandbox", f"{directory} is in no place that every sandboxed command may write in"
        )
    return note(
        "sandbox",
        f"{directory} lies in {place}, where a model's sandboxed commands may write",
        AWAY,
    )


def look_at_disk(path: str) -> Disk:
    """Look at the file system of a directory, or of what there is on the way to it."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        network = network_filesystem(os.path.realpath(path), mounts.read())
    there = _there(path)
    device, room = os.stat(there).st_dev, None
    with suppress(OSError):
        room = os.statvfs(there)
    return Disk(path, network, device, room)


def _there(path: str) -> str:
    """Name what there is of the way to a path."""
    there = os.path.realpath(path)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    return there


def judge_file_systems(state: Disk | Offence, home: Disk | Offence) -> list[Finding]:
    """Say whether SQLite's locks hold: in the journal, and in Codex's own databases."""
    name = "file system"
    findings = [failed(name, disk) for disk in (state, home) if isinstance(disk, Offence)]
    if isinstance(state, Disk) and state.network:
        said = f"{state.path} lies on a network file system ({state.network})"
        findings.append(wrong(name, f"{said}: SQLite's locks do not hold there", MOVE))
    if isinstance(home, Disk) and home.network:
        findings.append(
            note(
                name,
                f"the Codex home {home.path} lies on a network file system ({home.network})",
                "Codex keeps SQLite databases there: a local disk is safer.",
            )
        )
    return findings or [ok(name, "state and Codex home lie on local disks")]


def judge_room(state: Disk | Offence, home: Disk | Offence) -> list[Finding]:
    """Say whether there is room to write in both places."""
    places = {"the state directory": state, "the Codex home": home}
    # What could not be looked at is told once, by the check of the file system.
    disks = {what: disk for what, disk in places.items() if isinstance(disk, Disk)}
    devices = {disk.device for disk in disks.values()}
    if len(devices) < len(disks):
        disks = {" and ".join(disks): next(iter(disks.values()))}
    findings = [
        wrong("disk", f"{what}, {disk.path}: {offence.sentence}", offence.hint)
        for what, disk in disks.items()
        if disk.room and (offence := room_offence(disk.room))
    ]
    rooms = "; ".join(f"{_room(disk.room)} for {what}" for what, disk in disks.items())
    return findings or [ok("disk", f"free: {rooms or 'unknown'}")]


def room_offence(room: os.statvfs_result) -> Offence | None:
    """Say why there is too little room on a file system, or None."""
    if offence := disk_offence(room):
        return offence
    free = room.f_bavail * room.f_frsize
    # A file system that does not count its blocks, or its files, has none of none.
    if room.f_blocks and free < FREE_BYTES_MIN:
        return Offence(
            f"only {free / 2**20:.1f} MiB are free; {FREE_BYTES_MIN // 2**20} may be needed",
            "Make room on that disk.",
        )
    if room.f_files and room.f_favail < FREE_FILES_MIN:
        return Offence(
            f"only {room.f_favail} more files fit; {FREE_FILES_MIN} may be needed",
            "Remove files on that disk: it has run out of inodes, not of bytes.",
        )
    return None


def _room(room: os.statvfs_result | None) -> str:
    if room is None:
        return "unknown"
    size = f"{room.f_bavail * room.f_frsize / 2**30:.1f} GiB" if room.f_blocks else "unknown"
    return f"{size} and {room.f_favail} files" if room.f_files else size
