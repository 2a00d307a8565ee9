"""What a soak came to, as Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from tests.soak.laws import (
    Toll,
    calm_sizes,
    find_broken,
    growth_of,
    longest_life,
    recoveries,
)
from tests.soak.plan import Fault
from tests.torture.judge import Count


RECOVERY = (
    "Recovery: from the end of a fault to the next delivery that surfaced; deliveries come 2 s"
    " apart, which is in it."
)

SIZES = "The supervisor, looked at every 10 s: medians of the second and of the last quarter."


def report(tolls: Sequence[Toll], command: str) -> str:
    """Draw the tables: the deliveries, the faults, and what the supervisor took."""
    return "\n\n".join(
        [
            f"`{command}`",
            _table(_deliveries(tolls)),
            RECOVERY,
            _table(_faults(tolls)),
            SIZES,
            _table(_sizes(tolls)),
            *_broken(tolls),
        ]
    )


def _deliveries(tolls: Iterable[Toll]) -> Iterator[list[str]]:
    shown = [Count.SURFACED, Count.GHOST, Count.NOT_STORED, Count.UNCERTAIN]
    wrong = [Count.LOST, Count.TWICE, Count.DISORDER, Count.UNTRUE, Count.LIVE, Count.FAILED]
    yield ["codex", "mode", "seed", "time", "faults", "deliveries", *shown, *wrong, "sent again",
           "refused by `deliver`, then taken", "lives"]  # fmt: skip
    for toll in tolls:
        counts = {count: len({e.id for e in toll.rulings if e.count is count}) for count in Count}
        yield [
            toll.version,
            toll.mode,
            str(toll.seed),
            f"{toll.took_s / 60:.0f} min",
            str(sum(not each.missed for each in toll.struck)),
            str(toll.deliveries),
            *(str(counts[count]) for count in (*shown, *wrong)),
            str(toll.sent_again),
            ", ".join(f"{count} x exit {code}" for code, count in toll.refused.items()) or "0",
            str(toll.lives),
        ]


def _faults(tolls: Iterable[Toll]) -> Iterator[list[str]]:
    tolls = list(tolls)
    head = ["fault"]
    for toll in tolls:
        head += [f"{toll.mode}: times", "recovery min / median / max"]
    yield head
    after_s = [recoveries(toll.struck, toll.surfaced_s) for toll in tolls]
    for fault in Fault:
        row: list[str] = []
        for toll, found in zip(tolls, after_s, strict=True):
            missed = sum(each.fault is fault and bool(each.missed) for each in toll.struck)
            times = found.get(fault, [])
            row += [f"{len(times)}" + (f" ({missed} missed)" if missed else ""), _spread(times)]
        if any(cell not in {"0", ""} for cell in row):
            yield [fault, *row]


def _spread(times: Sequence[float]) -> str:
    if not times:
        return ""
    return f"{min(times):.1f} / {median(times):.1f} / {max(times):.1f} s"


def _sizes(tolls: Iterable[Toll]) -> Iterator[list[str]]:
    yield ["mode", "samples", "RSS", "most", "descriptors", "threads", "CPU a minute"]
    for toll in tolls:
        calm, one = calm_sizes(toll.samples), longest_life(toll.samples)
        for what, sizes in (("all lives, calm", calm), ("longest life", one)):
            rss = [size.rss_kib / 1024 for size in sizes]
            yield [
                f"{toll.mode}, {what}",
                str(len(sizes)),
                f"{_growth(rss, 1)} MiB",
                f"{max(rss, default=0):.1f} MiB",
                _growth([size.descriptors for size in sizes], 0),
                _growth([size.threads for size in sizes], 0),
                _cpu(toll) if what == "longest life" else "",
            ]


def _growth(values: Sequence[float], digits: int) -> str:
    growth = growth_of(values)
    if growth is None:
        return f"{median(values):.{digits}f} (too short to compare)" if values else "none"
    return f"{growth.before:.{digits}f}, {growth.after:.{digits}f}"


def _cpu(toll: Toll) -> str:
    """Say what the longest life took, with its deliveries and faults."""
    pids = {size.pid for size in longest_life(toll.samples)}
    seen = [(s.at_s, s.size.cpu_ms) for s in toll.samples if s.size and s.size.pid in pids]
    if len(seen) < 2:
        return ""
    (from_s, from_ms), (to_s, to_ms) = seen[0], seen[-1]
    return f"{(to_ms - from_ms) / (to_s - from_s) * 60:.0f} ms"


def _broken(tolls: Iterable[Toll]) -> Iterator[str]:
    tolls = list(tolls)
    missed = [f"- {t.mode}: {e.fault}: {e.missed}" for t in tolls for e in t.struck if e.missed]
    if missed:
        yield "Faults that could not be done:\n" + "\n".join(missed)
    found = [f"- {toll.mode}: {words}" for toll in tolls for words in find_broken(toll)]
    yield "Broken laws:\n" + "\n".join(found) if found else "No law was broken."


def _table(rows: Iterable[list[str]]) -> str:
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
