"""How long an input has been in doubt, and how often it was proved absent: its facts tell."""

from collections.abc import Iterable
from typing import NamedTuple

from codexdrv.rules.ownership import Fact


ABSENCES_MAX = 3
"""What vanishes three times will vanish again: a prompt hook that blocks it, for one."""

LOSSES_MAX = 10
"""Connections and servers are lost without anybody's fault; but an input with which the server dies
each time must not be sent for ever."""

SWALLOWED = frozenset({"turn_ended", "no_echo", "unloaded"})
"""Reasons of a doubt in which the server took the input, lived on, and did not show it."""


class Moment(NamedTuple):
    """A fact, and when it became true."""

    fact: Fact
    #: Unix time, milliseconds.
    at_ms: int
    reason: str | None = None


def doubted_since_ms(moments: Iterable[Moment]) -> int | None:
    """Say since when the last attempt has been in doubt; None: it is not."""
    since: int | None = None
    for fact, at_ms, _ in moments:
        if fact is Fact.IN_DOUBT and since is None:
            since = at_ms
        elif fact is Fact.DISPATCHED:
            since = None
    return since


def was_swallowed(moments: Iterable[Moment]) -> bool:
    """Say whether the server took the last attempt, lived on, and did not show it."""
    swallowed = False
    for fact, _, reason in moments:
        if fact is Fact.DISPATCHED:
            swallowed = False
        elif fact is Fact.IN_DOUBT and reason in SWALLOWED:
            swallowed = True
    return swallowed


class Absences(NamedTuple):
    """How often an input was proved absent since an operator last said so."""

    #: However it was lost.
    times: int
    #: Of these: the server took it and lived on.
    swallowed: int


def absences(moments: Iterable[Moment]) -> Absences:
    """Count the proofs of absence."""
    found, attempt = Absences(0, 0), list[Moment]()
    for moment in moments:
        attempt.append(moment)
        if moment.fact is Fact.ABSENT:
            found = Absences(found.times + 1, found.swallowed + was_swallowed(attempt))
        elif moment.fact is Fact.RESOLVED_ABSENT:
            found = Absences(0, 0)
    return found


def ending(before: Absences, *, is_swallowed: bool) -> tuple[str, str] | None:
    """Say why one more proof of absence ends a delivery, in a word and a sentence, if it does."""
    if is_swallowed and before.swallowed + 1 >= ABSENCES_MAX:
        times = before.swallowed + 1
        return (
            "swallowed",
            f"it was taken {times} times and vanished each time: a hook may block it",
        )
    if before.times + 1 >= LOSSES_MAX:
        return "lost", f"it was lost {before.times + 1} times: the server may die of it"
    return None
