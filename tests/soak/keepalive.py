"""A server unloads a thread when its last subscriber has left: not while a supervisor is there."""

import time
from pathlib import Path
from typing import NamedTuple

from tests.acceptance.kit import Rig
from tests.acceptance.machine import Machine
from tests.acceptance.scenes import used_thread


KEPT_S = 180.0
UNLOADED_S = (45.0, 90.0)
"""60 s on 0.171.0, and what a busy machine adds."""

LOOK_S = 1.0
SURFACED_S_MAX = 5.0


class Kept(NamedTuple):
    """What became of a thread that its user has left."""

    #: Seconds until the server had it no more; None: it always had.
    unloaded_after_s: float | None
    watched_s: float
    looks: int
    #: With a supervisor: how long a message took, from the command's start to the thread.
    surfaced_after_s: float | None = None

    @property
    def words(self) -> str:
        """Say it."""
        if self.unloaded_after_s is not None:
            words = f"unloaded {self.unloaded_after_s:.0f} s after its last subscriber left"
        else:
            words = f"loaded in each of {self.looks} looks for {self.watched_s:.0f} s"
        if self.surfaced_after_s is not None:
            words += (
                f"; then a message surfaced {self.surfaced_after_s:.2f} s after `deliver` began"
            )
        return words


def watch_with_us(root: Path, binary: str) -> Kept:
    """Leave a thread to a supervisor, watch it, and deliver into it."""
    with Rig(root, binary=binary) as rig, Machine(rig) as machine:
        thread = _leave_thread(rig, machine)
        kept = _watch(rig, thread, KEPT_S)
        began = time.monotonic()
        machine.deliver("m1", thread, "hello", "--wait", "surfaced")
        return kept._replace(surfaced_after_s=time.monotonic() - began)


def watch_without_us(root: Path, binary: str) -> Kept:
    """Leave a thread to nobody, and watch it until it is unloaded."""
    with Rig(root, binary=binary) as rig:
        return _watch(rig, _leave_thread(rig, None), KEPT_S)


def is_as_promised(with_us: Kept, without_us: Kept) -> bool:
    """Say whether the supervisor made the difference."""
    gone_s, surfaced_s = without_us.unloaded_after_s, with_us.surfaced_after_s
    return (
        with_us.unloaded_after_s is None
        and surfaced_s is not None
        and surfaced_s < SURFACED_S_MAX
        and gone_s is not None
        and UNLOADED_S[0] < gone_s < UNLOADED_S[1]
    )


def _leave_thread(rig: Rig, machine: Machine | None) -> str:
    """Use a thread, have it be a target where there is a machine, and leave."""
    user = rig.truth()
    thread = used_thread(rig, user)
    if machine is not None:
        machine.write_config(kept=thread)
        machine.start()
    user.close()
    return thread


def _watch(rig: Rig, thread: str, seconds: float) -> Kept:
    """Look, as a client that subscribes to nothing, whether the server has a thread."""
    began, looks = time.monotonic(), 0
    with_nothing = rig.truth()
    while (past_s := time.monotonic() - began) < seconds:
        if thread not in with_nothing.loaded_threads():
            return Kept(past_s, past_s, looks)
        looks += 1
        time.sleep(LOOK_S)
    return Kept(None, past_s, looks)
