"""What the kernel says of processes: how large one is, and which servers belong to a home."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple


INTERVAL_S = 10.0
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


class Size(NamedTuple):
    """What a process takes."""

    pid: int
    rss_kib: int
    descriptors: int
    threads: int
    #: User and system time, since its start.
    cpu_ms: float


class Sample(NamedTuple):
    """One look at a supervisor and its surroundings."""

    #: Unix time.
    at_s: float
    #: None: no supervisor ran.
    size: Size | None
    #: App-servers of this home.
    servers: int
    #: Those of them that are nobody's: neither the supervisor's child, nor the one we attach to.
    orphans: int
    #: A fault was being done, or was over a moment ago.
    is_disturbed: bool


def measure(pid: int) -> Size | None:
    """Measure a process; None if it is gone."""
    proc = Path(f"/proc/{pid}")
    try:
        rows = dict(
            line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line
        )
        times = (proc / "stat").read_text().rpartition(")")[2].split()
        descriptors = len(list((proc / "fd").iterdir()))
        rss_kib = int(rows["VmRSS"].split()[0])
    except (OSError, KeyError):
        return None
    ticks = int(times[11]) + int(times[12])
    return Size(pid, rss_kib, descriptors, int(rows["Threads"]), ticks * TICK_MS)


def servers_of(home: Path) -> list[int]:
    """Find the app-servers that run on a home, whoever started them."""
    return [pid for pid, command in _processes(f"CODEX_HOME={home}") if b"app-server" in command]


def processes_in(root: Path) -> list[int]:
    """Find every process whose home, or Codex home, is in a directory."""
    named = {f"HOME={root}", f"CODEX_HOME={root / 'home'}", f"HOME={root / 'home'}"}
    found = {pid for word in named for pid, _ in _processes(word)}
    return sorted(found - {os.getpid()})


def hears(pid: int, number: signal.Signals) -> bool:
    """Say whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (each for each in status.splitlines() if each.startswith("SigCgt:"))
    return bool(int(line.split()[1], 16) & (1 << (number - 1)))


@contextmanager
def sampling(look: Callable[[], Sample], samples: list[Sample]) -> Iterator[None]:
    """Look every ten seconds, for as long as the block lasts."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(INTERVAL_S):
            samples.append(look())

    thread = threading.Thread(target=repeat, name="sampler")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _processes(variable: str) -> Iterator[tuple[int, bytes]]:
    wanted = variable.encode()
    for proc in Path("/proc").iterdir():
        if not proc.name.isdecimal():
            continue
        with suppress(OSError):  # it has ended meanwhile, or is somebody else's
            if wanted in (proc / "environ").read_bytes().split(b"\0"):
                yield int(proc.name), (proc / "cmdline").read_bytes()
