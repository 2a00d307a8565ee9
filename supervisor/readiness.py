"""What we tell the service manager that started us: sd_notify(3), one datagram a word.

It can harm nobody: without a manager nothing is said, and a word that does not get through goes
with the next one. The protocol is stable and small, so it needs no library.
"""

import os
import socket
import time
from collections.abc import Mapping

from codexdrv.paths import short_socket_path


STATUS_CHARACTERS_MAX = 500
"""`systemctl status` shows one line of it."""


class Readiness:
    """The line to the service manager; every method returns at once and raises nothing.

    Args:
        environment: where NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID stand, if they do.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._unsent: dict[str, str] = {}
        #: How often to call `watchdog`: twice as often as is asked for. None: nobody asks.
        self.watchdog_interval_s = _watchdog_interval_s(environment)

    def ready(self, status: str) -> None:
        """Say that the start, or a reload, is done, and how we are."""
        for word in ("RELOADING", "MONOTONIC_USEC"):
            self._unsent.pop(word, None)
        self._tell(READY="1", STATUS=_line(status))

    def status(self, text: str) -> None:
        """Say how we are, for `systemctl status`."""
        self._tell(STATUS=_line(text))

    def reloading(self) -> None:
        """Say that the configuration is read anew; `ready` must follow."""
        self._tell(RELOADING="1", MONOTONIC_USEC=str(time.monotonic_ns() // 1000))

    def stopping(self, *, takes_s: float = 0.0) -> None:
        """Say that we stop, and how long that may take, where the unit's own time is shorter."""
        more = {"EXTEND_TIMEOUT_USEC": str(int(takes_s * 1e6))} if takes_s else {}
        self._tell(STOPPING="1", STATUS="Stopping", **more)

    def watchdog(self) -> None:
        """Say that we are alive; more than once in `watchdog_interval_s` is no harm."""
        if self.watchdog_interval_s is not None:
            self._tell(WATCHDOG="1")

    def _tell(self, **words: str) -> None:
        if self._address is None:
            return
        self._unsent |= words
        message = "\n".join(f"{name}={value}" for name, value in self._unsent.items())
        if _send(self._address, message):
            self._unsent.clear()


def _send(address: str, message: str) -> bool:
    try:
        # A socket a word: the manager may be started anew, and nothing is held open for months.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            text = message.encode("utf-8", "replace")
            if address.startswith("\0"):
                sender.sendto(text, socket.MSG_DONTWAIT, address)
                return True
            with short_socket_path(address) as path:
                sender.sendto(text, socket.MSG_DONTWAIT, path)
    except OSError:
        return False
    return True


def _address(named: str) -> str | None:
    """Read NOTIFY_SOCKET; None: there is none, or it is of a kind that only machines have."""
    if named.startswith("@") and len(named) > 1:
        return f"\0{named[1:]}"
    return named if os.path.isabs(named) else None


def _watchdog_interval_s(environment: Mapping[str, str]) -> float | None:
    # It may be meant for the one who started us: then it is not ours to answer.
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        microseconds = int(environment.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return microseconds / 2e6 if microseconds > 0 else None


def _line(text: str) -> str:
    return " ".join(text.split())[:STATUS_CHARACTERS_MAX]
