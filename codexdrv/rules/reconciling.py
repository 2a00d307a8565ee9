"""How long an input has been in doubt, and how often it was proved absent: its facts tell."""

from collections.abc import Iterable
from typing import NamedTuple

from codexdrv.rules.ownership import Fact


ABSENCES_MAX = 3
"""What vanishes three times will vanish again: a prompt hook that blocks it, for one."""


class Moment(NamedTuple):
    """A fact, and when it became true."""

    fact: Fact
    #: Unix time, milliseconds.
    at_ms: int


def doubted_since_ms(moments: Iterable[Moment]) -> int | None:
    """Say since when the last attempt has been in doubt; None: it is not."""
    since: int | None = None
    for fact, at_ms in moments:
        if fact is Fact.IN_DOUBT and since is None:
            since = at_ms
        elif fact is Fact.DISPATCHED:
            since = None
    return since


def absences(moments: Iterable[Moment]) -> int:
    """Count how often it was proved absent since an operator last said so."""
    count = 0
    for fact, _ in moments:
        if fact is Fact.ABSENT:
            count += 1
        elif fact is Fact.RESOLVED_ABSENT:
            count = 0
    return count
