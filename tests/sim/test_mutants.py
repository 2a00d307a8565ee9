"""The laws bite: turn a rule wrong, and one of them fails."""

import pytest

from tests.sim.mutants import MUTANTS, SEED_MAX, mutated
from tests.sim.seeds import run_seed


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_breaks_a_law(name):
    mutant = MUTANTS[name]
    with mutated(mutant):
        # Those that are recorded first; the others only if these show nothing any more.
        for seed in (*mutant.seeds, *range(SEED_MAX + 1)):
            ran = run_seed(seed)
            if ran.broken is not None:
                break
    assert ran.broken is not None
    # The rule is to blame, not the world.
    assert run_seed(ran.seed).broken is None
