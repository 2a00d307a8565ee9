"""What we are told by signals: to stop, or to read the configuration anew."""

import os
import signal
import sys

import anyio
import structlog
from anyio.abc import TaskStatus


log = structlog.get_logger()


class Signals:
    """SIGTERM, SIGINT and SIGHUP, from the first moment to the last."""

    def __init__(self) -> None:
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
        # A second one ends us at once; the kernel tells a server of our own.
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.stop.set()

    async def wait_for_reload(self) -> None:
        """Wait for SIGHUP; several that come meanwhile are one."""
        await self._reload.wait()
        self._reload = anyio.Event()

    def _is_hung_up(self) -> bool:
        """Say whether our terminal is gone: then the kernel has sent it, and nobody wants us."""
        return self._had_terminal and not _has_terminal()


def _has_terminal() -> bool:
    try:
        return os.isatty(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
