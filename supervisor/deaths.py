"""The deaths of a server of our own: each is told and counted, and one of them is the last."""

import anyio
import structlog

from codexdrv.errors import ServerKeepsDying
from codexdrv.transport.child import Child
from supervisor.rules import DEATHS_WINDOW_S, is_given_up, recent_deaths


LAST_WORDS_MAX = 16_384
"""Characters of its stderr in an error."""

log = structlog.get_logger()


class Deaths:
    """The deaths of one life of ours."""

    def __init__(self, deaths_max: int) -> None:
        """Take the number that is one too many."""
        self._deaths_max = deaths_max
        #: Those that count, by anyio's clock.
        self.times_s: tuple[float, ...] = ()

    def count(self, child: Child, *, why: str = "") -> None:
        """Count the death of a server that has ended.

        Args:
            child: the server.
            why: a beginning for how it ended.

        Raises:
            ServerKeepsDying: there is no point in starting another.
        """
        now_s = anyio.current_time()
        self.times_s = (*recent_deaths(self.times_s, now_s=now_s), now_s)
        if is_given_up(self.times_s, deaths_max=self._deaths_max, now_s=now_s):
            how = f"{why}{child.how_it_ended()}"
            said = child.last_words[-LAST_WORDS_MAX:]
            deaths = len(self.times_s)
            # The error goes to the terminal as text; who reads the log as JSON has it there, too.
            log.error("server.given_up", server_pid=child.pid, deaths=deaths, how=how, stderr=said)
            raise _hopeless(how, said, deaths)


def _hopeless(how: str, said: str, deaths: int) -> ServerKeepsDying:
    window = f"within {DEATHS_WINDOW_S / 60:g} minutes"
    often = f"{deaths} times {window}; the last time" if deaths > 1 else "once"
    return ServerKeepsDying(
        f"codex app-server has died {often}: {how}."
        # Not all of it need have to do with the end.
        + (f"\nThe end of what it said on stderr:\n{said}" if said else ""),
        hint="Mend that and start the supervisor again; `codexdrv doctor` looks at the rest.",
    )
