"""Decisions of the resident process, pure: when a server of our own hangs, or is given up."""

from collections.abc import Sequence
from typing import NamedTuple


DEATHS_WINDOW_S = 600.0
"""With the pauses between the starts, a server that dies at once has its tenth death in 4 minutes;
one that a person restarts by hand stays far below."""

HUNG_S = 180.0
"""Without a byte, though each connection in that time had 30 s for one: no hiccup of a connection.
A start that takes longer than that on its cold disk is started again."""

LOOK_GAP_S_MAX = 90.0
"""A try to connect and the pause before it take less: after more, it was we who were stopped."""


class Silence(NamedTuple):
    """For how long a server has given no sign of life, as far as it was asked for one."""

    lasted_s: float
    #: When that was so, by one clock.
    as_of_s: float

    def at(self, now_s: float, *, heard_s: float | None = None) -> "Silence":
        """Say for how long by now; `heard_s` is when the connection last brought anything."""
        if heard_s is not None and heard_s > self.as_of_s:
            return Silence(0.0, heard_s).at(now_s)
        passed_s = now_s - self.as_of_s
        # Whoever was stopped (a laptop, Ctrl-Z) has heard nothing by its own fault.
        counted_s = passed_s if passed_s <= LOOK_GAP_S_MAX else 0.0
        return Silence(self.lasted_s + counted_s, now_s)

    @property
    def is_hung(self) -> bool:
        """Say whether that is so long that nobody can be at work in the server any more."""
        return self.lasted_s >= HUNG_S


def recent_deaths(deaths: Sequence[float], *, now_s: float) -> tuple[float, ...]:
    """Keep the times of death that still count; by one clock, seconds."""
    return tuple(death for death in deaths if now_s - death <= DEATHS_WINDOW_S)


def is_given_up(deaths: Sequence[float], *, deaths_max: int, now_s: float) -> bool:
    """Say whether a server has died so often that starting it once more is no use."""
    return len(recent_deaths(deaths, now_s=now_s)) >= deaths_max
