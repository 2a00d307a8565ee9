"""What keeps failing: told when it begins, when its reason changes, and when it is over."""

from typing import Any

import anyio
import structlog


log = structlog.get_logger()


class Trouble:
    """One thing that is tried again and again; its failures are counted, not repeated.

    A supervisor without a server for a week has one line in its log, not 10,000 (FIELD-REPORTS,
    agmsg#1236: 35,569 lines of one error).
    """

    def __init__(self, began: str, ended: str) -> None:
        """Take the events of the log: that it has failed, and that it works again."""
        self._began = began
        self._ended = ended
        #: Why it failed the last time; None: it works.
        self.reason: str | None = None
        self._since_s = 0.0
        #: How often it has failed in a row.
        self.count = 0

    def note(self, reason: str, **fields: Any) -> None:
        """Take one failure; it is logged unless the last one had the same reason."""
        if not self.count:
            self._since_s = anyio.current_time()
        self.count += 1
        if reason != self.reason:
            self.reason = reason
            log.warning(self._began, error=reason, count=self.count, **fields)

    def end(self, **fields: Any) -> None:
        """Take it that it works; logged if it did not before."""
        if self.count:
            lasted_s = round(anyio.current_time() - self._since_s, 1)
            log.info(self._ended, after_failures=self.count, lasted_s=lasted_s, **fields)
        self.count, self.reason = 0, None
