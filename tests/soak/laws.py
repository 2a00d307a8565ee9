"""What must hold at the end of a soak; pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from tests.soak.faults import Struck
from tests.soak.plan import Fault, Mode
from tests.soak.sampling import Sample, Size
from tests.torture.judge import WRONG, Ruling


SAMPLES_MIN = 12
"""With fewer, a quarter is no sample."""

RSS_SHARE, RSS_SLACK_KIB = 0.10, 2048
COUNT_SLACK = 2
"""Descriptors and threads: a look may meet one that is on its way."""


class Growth(NamedTuple):
    """The medians of the second and of the last quarter."""

    before: float
    after: float

    def is_flat(self, *, share: float, slack: float) -> bool:
        """Say whether it has not grown by more than that."""
        return self.after <= self.before * (1 + share) + slack


class Toll(NamedTuple):
    """What one soak came to."""

    version: str
    mode: Mode
    seed: int
    took_s: float
    deliveries: int
    rulings: list[Ruling]
    struck: list[Struck]
    samples: list[Sample]
    #: When each delivery surfaced, oldest first; Unix times.
    surfaced_s: list[float]
    #: By exit code, how often `deliver` could not store.
    refused: Counter[str]
    #: Deliveries that were proved absent, and sent again.
    sent_again: int
    lives: int
    #: Laws that were broken on the way.
    broken: list[str]


def growth_of(values: Sequence[float]) -> Growth | None:
    """Compare the second quarter with the last; None where there is too little to compare."""
    if len(values) < SAMPLES_MIN:
        return None
    quarter = len(values) // 4
    return Growth(median(values[quarter : 2 * quarter]), median(values[-quarter:]))


def calm_sizes(samples: Iterable[Sample]) -> list[Size]:
    """Take the sizes that no fault has disturbed."""
    return [each.size for each in samples if each.size is not None and not each.is_disturbed]


def longest_life(samples: Iterable[Sample]) -> list[Size]:
    """Take the sizes of the process that was seen most often, disturbed or not."""
    sizes = [each.size for each in samples if each.size is not None]
    pids = Counter(size.pid for size in sizes)
    longest = max(pids, key=pids.__getitem__, default=0)
    return [size for size in sizes if size.pid == longest]


def recoveries(struck: Iterable[Struck], surfaced_s: Sequence[float]) -> dict[Fault, list[float]]:
    """By fault, how long after its end the next delivery surfaced, each time; infinite: never."""
    found: dict[Fault, list[float]] = {}
    for each in struck:
        if not each.missed:
            later = (at_s - each.to_s for at_s in surfaced_s if at_s >= each.to_s)
            found.setdefault(each.fault, []).append(min(later, default=float("inf")))
    return found


def find_broken(toll: Toll) -> list[str]:
    """Say every law that was broken, in words."""
    return [
        *toll.broken,
        *(f"{each.id}: {each.count}: {each.why}" for each in toll.rulings if each.count in WRONG),
        *_find_orphans(toll.samples),
        *_find_growth("across lives", calm_sizes(toll.samples)),
        *_find_growth("of one life", longest_life(toll.samples)),
        *(
            f"nothing surfaced any more after: {fault}"
            for fault, after_s in recoveries(toll.struck, toll.surfaced_s).items()
            if float("inf") in after_s
        ),
    ]


def _find_orphans(samples: Iterable[Sample]) -> Iterator[str]:
    for each in samples:
        if each.orphans and not each.is_disturbed:
            yield f"{each.orphans} servers of nobody's at {each.at_s:.0f}"


def _find_growth(what: str, sizes: Sequence[Size]) -> Iterator[str]:
    for name, values, share, slack in (
        ("RSS in KiB", [size.rss_kib for size in sizes], RSS_SHARE, RSS_SLACK_KIB),
        ("descriptors", [size.descriptors for size in sizes], 0.0, COUNT_SLACK),
        ("threads", [size.threads for size in sizes], 0.0, COUNT_SLACK),
    ):
        growth = growth_of(values)
        if growth is not None and not growth.is_flat(share=share, slack=slack):
            yield f"{name} {what} grew from {growth.before:.0f} to {growth.after:.0f}"
