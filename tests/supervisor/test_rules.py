"""When a server of our own has died too often in too short a time, and when it only seems alive."""

import pytest

from supervisor.rules import (
    DEATHS_WINDOW_S,
    HUNG_S,
    LOOK_GAP_S_MAX,
    Silence,
    is_given_up,
    recent_deaths,
)


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


def silent_after(*gaps_s):
    """Look at a server that says nothing, after each of these gaps."""
    silence = Silence(0.0, NOW_S)
    for gap_s in gaps_s:
        silence = silence.at(silence.as_of_s + gap_s)
    return silence


@pytest.mark.parametrize(
    ("gaps_s", "hangs"),
    [
        ([], False),
        ([30], False),
        ([60, 60, HUNG_S - 121], False),
        ([60, 60, HUNG_S - 120], True),
        ([LOOK_GAP_S_MAX] * 2, True),
    ],
)
def test_a_server_hangs_when_it_was_silent_for_minutes_of_looks(gaps_s, hangs):
    assert silent_after(*gaps_s).is_hung is hangs


@pytest.mark.parametrize("stopped_s", [LOOK_GAP_S_MAX + 1, 86_400])
def test_the_time_in_which_we_were_stopped_is_not_the_silence_of_the_server(stopped_s):
    assert silent_after(60, stopped_s, 60) == (120, NOW_S + stopped_s + 120)


def test_a_sign_of_life_ends_the_silence_and_the_next_begins_with_it():
    silence = silent_after(60, 60)
    heard_s = silence.as_of_s + 3600
    assert silence.at(heard_s + 30, heard_s=heard_s) == (30, heard_s + 30)


def test_what_was_heard_before_the_last_look_is_no_new_sign_of_life():
    silence = silent_after(60)
    now_s = silence.as_of_s + 30
    assert silence.at(now_s, heard_s=silence.as_of_s) == (90, now_s)
