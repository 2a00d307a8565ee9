"""The process table of a simulated host: pids come again, start ticks do not."""

from codexdrv.journal.dispatch import Peer
from codexdrv.rules.evidence import Fate
from codexdrv.transport.peer import PeerIdentity


BOOT_ID = "boot"
"""Nobody starts the host again here."""


class Processes:
    """Who lives on the host now."""

    def __init__(self) -> None:
        self._ticks = 1000
        self._started: dict[int, int] = {}
        self._next_pid = 100

    def start(self, pid: int | None = None) -> PeerIdentity:
        """Start a process, under a pid that is free."""
        if pid is None:
            self._next_pid += 1
            pid = self._next_pid
        assert pid not in self._started, "the pid is taken"
        self._ticks += 7
        self._started[pid] = self._ticks
        return PeerIdentity(pid, self._ticks, BOOT_ID)

    def end(self, pid: int) -> None:
        del self._started[pid]

    def is_alive(self, peer: Peer) -> bool:
        """Say whether that very process lives (DESIGN.md, "peer identity")."""
        return peer.boot_id == BOOT_ID and self._started.get(peer.pid) == peer.start_ticks

    def has_pid(self, pid: int) -> bool:
        return pid in self._started

    def fate_of(self, peer: Peer | None) -> Fate:
        """Say what became of a process, as `engine/surroundings.py` does of real ones."""
        if peer is None:
            return Fate.UNKNOWN
        if peer.boot_id != BOOT_ID:
            return Fate.HOST_RESTARTED
        return Fate.ALIVE if self.is_alive(peer) else Fate.GONE
