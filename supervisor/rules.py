"""Decisions of the resident process, pure: when a server of our own is given up."""

from collections.abc import Sequence


DEATHS_WINDOW_S = 600.0
"""With the pauses between the starts, a server that dies at once has its tenth death in 4 minutes;
one that a person restarts by hand stays far below."""


def recent_deaths(deaths: Sequence[float], *, now_s: float) -> tuple[float, ...]:
    """Keep the times of death that still count; by one clock, seconds."""
    return tuple(death for death in deaths if now_s - death <= DEATHS_WINDOW_S)


def is_given_up(deaths: Sequence[float], *, deaths_max: int, now_s: float) -> bool:
    """Say whether a server has died so often that starting it once more is no use."""
    return len(recent_deaths(deaths, now_s=now_s)) >= deaths_max
