"""The tolls of all tortures, as a table and as JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator

from tests.acceptance.kit import Message
from tests.torture.judge import Count
from tests.torture.reckoning import Toll


def table(tolls: Iterable[Toll]) -> str:
    """Draw a Markdown table, a row a version and way, and below it what the faults were."""
    tolls = list(tolls)
    counts = list(Count)
    head = ["version", "way", "deliveries", "faults", *counts, "sent again", "time"]
    rows = [
        [
            toll.version,
            toll.way,
            str(toll.deliveries),
            str(toll.faults.total()),
            *(str(count_of(toll)[count]) for count in counts),
            str(toll.sent_again),
            f"{toll.took_s:.0f} s",
        ]
        for toll in tolls
    ]
    lines = [head, ["---"] * len(head), *rows]
    drawn = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([*drawn, "", *_reasons(tolls)])


def as_json(toll: Toll) -> Message:
    """Say it to a machine."""
    return {
        "version": toll.version,
        "way": toll.way,
        "deliveries": toll.deliveries,
        "faults": toll.faults,
        "missed": toll.missed,
        "counts": count_of(toll),
        "rulings": [ruling._asdict() for ruling in toll.rulings if ruling.why],
        "sent_again": toll.sent_again,
        "orphans": toll.orphans,
        "took_s": round(toll.took_s, 1),
        "stories": toll.stories,
    }


def count_of(toll: Toll) -> Counter[Count]:
    """Count the deliveries of each kind: one that is wrong twice is one."""
    return Counter(count for _, count in {(found.id, found.count) for found in toll.rulings})


def _reasons(tolls: list[Toll]) -> Iterator[str]:
    for toll in tolls:
        faults = ", ".join(f"{count} {fault}" for fault, count in sorted(toll.faults.items()))
        yield f"{toll.version} {toll.way}: {faults or 'no faults'}"
        if toll.orphans:
            yield f"  servers that outlived their supervisor, ended by hand: {toll.orphans}"
        for ruling in toll.rulings:
            if ruling.count is not Count.SURFACED and ruling.count is not Count.REVERTED:
                yield f"  {ruling.id}: {ruling.count}: {ruling.why}"
