"""A server of our own is given up when it has died too often in too short a time."""

import pytest

from supervisor.rules import DEATHS_WINDOW_S, is_given_up, recent_deaths


NOW_S = 10_000.0


@pytest.mark.parametrize(
    ("ages_s", "is_hopeless"),
    [
        ([], False),
        ([0], False),
        ([0, 0], False),
        ([0, 0, 0], True),
        ([0, 1, DEATHS_WINDOW_S], True),
        # One a day is life, not a loop.
        ([0, 1, DEATHS_WINDOW_S + 1], False),
        ([0, 86_400, 172_800, 259_200], False),
        ([0, 1, 2, 86_400], True),
    ],
)
def test_only_deaths_within_the_window_count(ages_s, is_hopeless):
    deaths = [NOW_S - age for age in ages_s]
    assert is_given_up(deaths, deaths_max=3, now_s=NOW_S) is is_hopeless


def test_what_no_longer_counts_is_forgotten():
    deaths = (NOW_S - DEATHS_WINDOW_S - 1, NOW_S - DEATHS_WINDOW_S, NOW_S)
    assert recent_deaths(deaths, now_s=NOW_S) == deaths[1:]
