"""What we are told by signals: to stop, or to read the configuration anew."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import anyio
import structlog
from anyio.abc import TaskStatus


ECHO_S = 0.5
"""One Ctrl-C may come twice: from the terminal, and from a wrapper that hands it on (`timeout`,
`uv run`). No person means two so close together."""

LAST_LINE_S = 0.5
"""A log that takes no more (Ctrl-S) must not keep us."""

log = structlog.get_logger()


class Signals:
    """SIGTERM, SIGINT and SIGHUP, from the first moment to the last."""

    def __init__(self, *, echo_s: float = ECHO_S) -> None:
        #: Which server would be left to itself if we ended now; set by whoever starts one.
        self.server_pid: Callable[[], int | None] = lambda: None
        self._echo_s = echo_s
        self._stopping_since_s = 0.0
        #: Set once it is time to stop.
        self.stop = anyio.Event()
        self._reload = anyio.Event()
        self._had_terminal = _has_terminal()

    async def hear(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Listen until we are told to stop; a second word to stop ends the process at once."""
        # As the default is: else the ends of our children are lost to us, and to theirs.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP and not self._is_hung_up():
                    self._reload.set()
                    continue
                log.info("life.stopping", signal=signal.Signals(number).name)
                break
        self._stopping_since_s = time.monotonic()
        # Outside the loop, which may be what is stuck.
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._end_at_once)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.stop.set()

    async def wait_for_reload(self) -> None:
        """Wait for SIGHUP; several that come meanwhile are one."""
        await self._reload.wait()
        self._reload = anyio.Event()

    def _end_at_once(self, number: int, _frame: FrameType | None) -> None:
        """End by the signal, as if nobody heard it; the kernel tells a server of our own."""
        if time.monotonic() - self._stopping_since_s < self._echo_s:
            return
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        # Whom we interrupt may be about to write a line, and holds the lock for that.
        line = threading.Thread(target=self._tell_end, args=(number,), daemon=True)
        line.start()
        line.join(LAST_LINE_S)
        os.kill(os.getpid(), number)

    def _tell_end(self, number: int) -> None:
        pid = self.server_pid()
        left = {} if pid is None else {"leaves_server": pid}
        log.warning("life.cut_short", signal=signal.Signals(number).name, **left)

    def _is_hung_up(self) -> bool:
        """Say whether our terminal is gone: then the kernel has sent it, and nobody wants us."""
        return self._had_terminal and not _has_terminal()


def _has_terminal() -> bool:
    try:
        return os.isatty(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
