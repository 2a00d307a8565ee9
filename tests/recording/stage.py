"""Where a behaviour of the server is played: a rig, a witness, and the tap that records.

The witness is another client (it starts threads, compacts, archives); what it says is not
recorded.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from codexdrv.ids import DeliveryId, ThreadId, TurnId
from codexdrv.protocol.methods import Call, resume_thread, start_turn, steer_turn
from tests.acceptance.kit import Rig, ServerError, Truth
from tests.acceptance.scenes import BUSY, held_turn, used_thread
from tests.recording.tap import Line, Tap


TURN_OF_NOBODY = TurnId("019a0000-0000-7000-8000-00000000abcd")
THREAD_OF_NOBODY = ThreadId("019a0000-0000-7000-8000-00000000dcba")
DRAIN_S = 1.0
"""How long a server gets to refuse new work after SIGTERM; one that has not begun never does."""


class Stage:
    """A rig in which one behaviour is played."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.truth: Truth = rig.truth()
        self.lines: list[Line] = []

    def used_thread(self) -> ThreadId:
        """Start a thread of another client that has had a turn."""
        return ThreadId(used_thread(self.rig, self.truth))

    def held_turn(self, thread: ThreadId) -> TurnId:
        """Start a turn of another client, which runs until `release`."""
        return TurnId(held_turn(self.rig, self.truth, thread))

    def steered_thread(self) -> ThreadId:
        """Start a thread with two turns, the second of which took a steered message."""
        thread = self.used_thread()
        turn = self.held_turn(thread)
        self.truth.steer(thread, turn, "and this", client_id=identity("and this"))
        self.release()
        self.truth.wait_for_turn(turn)
        return thread

    def release(self, text: str = str(BUSY.text)) -> None:
        """Let the model finish."""
        self.rig.model.release(text)

    @contextlib.contextmanager
    def tap(self, *threads: ThreadId, socket: str = "s.sock") -> Iterator[Tap]:
        """Connect, subscribe to threads, and record until the end of the block."""
        with Tap(self.rig.root / socket) as tap:
            for thread in threads:
                tap.call(resume_thread(thread))
            yield tap
            self.lines = tap.lines[:]


def start(thread: ThreadId, text: str) -> Call:
    """Start a turn, with the text's own id."""
    return start_turn(thread, identity(text), text)


def steer(thread: ThreadId, turn: TurnId, text: str) -> Call:
    """Steer a turn, with the text's own id."""
    return steer_turn(thread, turn, identity(text), text)


def identity(text: str) -> DeliveryId:
    """Name a delivery by what it says."""
    return DeliveryId("id-of-" + text[:40].replace(" ", "-"))


def is_of(kind: str) -> Callable[[Any], bool]:
    """Match the params of a notification about an item of this kind."""
    return lambda params: bool(params["item"]["type"] == kind)


def wait_for_drain(truth: Truth, thread: ThreadId) -> None:
    """Wait until the server refuses new work, or has shown that it will not."""
    deadline = time.monotonic() + DRAIN_S
    while time.monotonic() < deadline:
        try:
            truth.running_turn(thread)
        except ServerError as refusal:
            if "draining" in refusal.message:
                return
            raise
