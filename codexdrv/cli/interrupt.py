"""Ctrl-C: before a command runs, the end at once; from then on an exception, as ever."""

import os
import signal
from types import FrameType

from codexdrv.exits import ExitCode


SENTENCE = "codexdrv: interrupted."


def leave_on_interrupt() -> None:
    """End at once: an exception in the midst of an import has a traceback, and worse."""
    # Where it is ignored, as behind a shell's &, it stays so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def raise_on_interrupt() -> None:
    """Let it be KeyboardInterrupt again: there is something to end in good order."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: FrameType | None) -> None:
    try:
        os.write(2, f"{SENTENCE}\n".encode())
    finally:
        os._exit(ExitCode.INTERRUPTED)
