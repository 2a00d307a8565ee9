"""What a server says on stderr, into our log: as much of it as a person reads.

With RUST_LOG=trace it would quote every message; and a log is no place for bodies.
"""

import re
from collections.abc import Callable

import structlog


MINUTE_S = 60.0
LINES_A_MINUTE = 60
"""A server that starts says five; one in trouble, some for each turn."""

# "2026-11-30T20:36:21.012345Z TRACE codex_core::…", as tracing-subscriber writes it.
_CHATTER = re.compile(r"^\d{4}-\d\d-\d\dT\S+\s+(TRACE|DEBUG)\s")

log = structlog.get_logger()


class Remarks:
    """The lines of one server process; called from one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Take the clock: monotonic seconds."""
        self._clock = clock
        self._minute_began = clock()
        self._said = 0
        self._dropped = 0

    def hear(self, line: str) -> None:
        """Log a line, or count it: chatter, and what comes too fast."""
        now = self._clock()
        if now - self._minute_began >= MINUTE_S:
            self._minute_began, self._said = now, 0
        if self._said >= LINES_A_MINUTE or _CHATTER.match(line):
            self._dropped += 1
            return
        self._said += 1
        left_out = {"left_out": self._dropped} if self._dropped else {}
        self._dropped = 0
        log.info("server.said", line=line, **left_out)
