"""What a supervisor takes that has nothing to do: 20 targets, and a minute without a delivery."""

import time
from pathlib import Path
from typing import NamedTuple

from codexdrv.snapshot import load_snapshot
from tests.acceptance.kit import Rig
from tests.acceptance.machine import Machine
from tests.soak.sampling import Size, measure


THREADS = 20
SETTLE_S = 15.0
MINUTE_S = 60.0
RSS_MIB_MAX = 45.0
CPU_MS_MAX = 250.0
GROWTH_KIB_MAX = 512
"""Flat: what the allocator may still take after the first look."""

SUBSCRIBED_S_MAX = 30.0
LOOK_S = 0.2


class Idle(NamedTuple):
    """A supervisor, measured before and after an idle minute."""

    version: str
    before: Size
    after: Size
    seconds: float

    @property
    def cpu_ms(self) -> float:
        """What it took of a processor, for a minute."""
        return (self.after.cpu_ms - self.before.cpu_ms) * MINUTE_S / self.seconds

    @property
    def words(self) -> str:
        """Say it."""
        first, last = self.before.rss_kib / 1024, self.after.rss_kib / 1024
        return (
            f"{self.version}: {THREADS} threads, RSS {first:.1f} MiB, after a minute {last:.1f} MiB"
            f" (at most {RSS_MIB_MAX:.0f}); CPU {self.cpu_ms:.0f} ms a minute"
            f" (at most {CPU_MS_MAX:.0f}); {self.after.descriptors} descriptors,"
            f" {self.after.threads} threads of its own"
        )

    @property
    def is_cheap(self) -> bool:
        """Say whether it takes no more than was promised."""
        grown_kib = self.after.rss_kib - self.before.rss_kib
        largest_mib = max(self.after.rss_kib, self.before.rss_kib) / 1024
        is_small = largest_mib < RSS_MIB_MAX and grown_kib <= GROWTH_KIB_MAX
        return is_small and self.cpu_ms < CPU_MS_MAX


def idle(root: Path, *, binary: str, version: str) -> Idle:
    """Measure an idle supervisor."""
    with Rig(root, binary=binary) as rig, Machine(rig) as machine:
        machine.write_config(**_make_threads(rig))
        machine.start()
        deadline = time.monotonic() + SUBSCRIBED_S_MAX
        while _count_subscribed(machine) < THREADS:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{_count_subscribed(machine)} of {THREADS} are subscribed")
            time.sleep(LOOK_S)
        time.sleep(SETTLE_S)
        assert machine._supervisor is not None, "it was started"
        pid, began = machine._supervisor.pid, time.monotonic()
        before = measure(pid)
        time.sleep(MINUTE_S)
        after = measure(pid)
        assert before is not None, "it ran when it was started"
        assert after is not None, machine.log.read_text()[-2000:]
        return Idle(version, before, after, time.monotonic() - began)


def _make_threads(rig: Rig) -> dict[str, str]:
    named = {}
    with_them = rig.truth()
    for number in range(THREADS):
        thread = with_them.start_thread(rig.cwd)
        with_them.wait_for_turn(with_them.start_turn(thread, f"t{number} begins"))
        named[f"n{number}"] = thread
    with_them.close()
    return named


def _count_subscribed(machine: Machine) -> int:
    found = load_snapshot(str(machine.state))
    threads = found.body["threads"].values() if found else []
    return sum(each["subscription"] == "subscribed" for each in threads)
