"""Soak: run many seeds, and every pair of steps, and print what broke a law.

    python -m tests.sim --seeds 10000 --start 0

Exit 1 if any law was broken; the transcript of the first seeds that did is printed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable

from tests.sim.run import Ran
from tests.sim.seeds import run_seed
from tests.sim.steps import DISTURBANCES, run_pairs, run_singles


TRANSCRIPTS_MAX = 3
"""The first few tell; the rest can be run again by their seed."""
PROGRESS_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Run the simulator.")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first one")
    parser.add_argument("--show", action="store_true", help="print every transcript")
    parser.add_argument("--pairs", action="store_true", help="every pair of steps, too")
    asked = parser.parse_args()
    show: Callable[[Ran], object] = (lambda ran: _say(ran.show())) if asked.show else lambda _: 0
    seeds = range(asked.start, asked.start + asked.seeds)
    broken = _soak((run_seed(seed) for seed in seeds), len(seeds), show)
    if asked.pairs:
        for is_old in (False, True):
            for burst in DISTURBANCES:
                broken += _soak(run_singles(burst, is_old=is_old), None, show)
            broken += _soak(run_pairs(is_old=is_old), None, show)
    for ran in broken[:TRANSCRIPTS_MAX]:
        _say(ran.show())
    _say(f"broken: {[ran.seed for ran in broken]}" if broken else "all laws hold")
    return 1 if broken else 0


def _soak(runs: Iterable[Ran], total: int | None, show: Callable[[Ran], object]) -> list[Ran]:
    broken: list[Ran] = []
    began = told = time.monotonic()
    done = 0
    for ran in runs:
        done += 1
        show(ran)
        if ran.broken is not None:
            broken.append(ran)
            _say(f"seed {ran.seed}: {ran.broken}")
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            _say(f"{done} of {total or '?'} in {told - began:.0f} s")
    _say(f"{done} runs in {time.monotonic() - began:.0f} s")
    return broken


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
