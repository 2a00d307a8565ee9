"""By chance: 300 worlds, the same ones each time; `make soak` runs 10,000."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.seeds import run_seed


CHECKOUT = Path(__file__).parents[2]
SEEDS = 300
BATCH = 25


@pytest.mark.timeout(120)
@pytest.mark.parametrize("start", range(0, SEEDS, BATCH))
def test_all_laws_hold(start):
    for seed in range(start, start + BATCH):
        ran = run_seed(seed)
        assert ran.broken is None, ran.show()


@pytest.mark.parametrize("seed", [3, 11, 42])
def test_a_seed_tells_the_same_story_each_time(seed):
    first, second = run_seed(seed), run_seed(seed)
    assert first.transcript == second.transcript


@pytest.mark.timeout(60)
def test_other_processes_tell_the_same_story():
    # Hashes of strings and addresses in memory differ from process to process.
    shown = set()
    for hashes in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-m", "tests.sim", "--seeds", "3", "--start", "7", "--show"],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONHASHSEED": hashes},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        shown.add("\n".join(line for line in told.splitlines() if " runs in " not in line))
    assert len(shown) == 1
