import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codexdrv.rules.backoff import (
    CONNECT_DELAY_S_FIRST,
    CONNECT_DELAY_S_MAX,
    HELD_DELAY_S_FIRST,
    HELD_DELAY_S_MAX,
    LOOKS_OFTEN,
    delay_s,
    look_delay_s,
)


# The same examples every time, however slow the machine.
STEADY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
COUNTS = st.integers(-10, 10**12)
SECONDS = st.floats(0.001, 1e6)


@pytest.mark.parametrize("failures", [0, -1])
def test_nothing_failed_so_nothing_is_waited_for(failures):
    assert delay_s(failures, first=1.0, most=60.0) == 0.0


def test_a_held_message_waits_100_ms_doubling_to_5_s():
    waits = [delay_s(n, first=HELD_DELAY_S_FIRST, most=HELD_DELAY_S_MAX) for n in range(1, 9)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_connection_waits_1_s_doubling_to_60_s():
    waits = [delay_s(n, first=CONNECT_DELAY_S_FIRST, most=CONNECT_DELAY_S_MAX) for n in range(1, 9)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


@STEADY
@given(COUNTS, SECONDS, SECONDS)
def test_no_delay_is_over_its_limit_however_often_it_failed(failures, first, most):
    assert 0.0 <= delay_s(failures, first=first, most=most) <= most


@STEADY
@given(COUNTS, SECONDS, SECONDS)
def test_one_more_failure_never_shortens_the_delay(failures, first, most):
    assert delay_s(failures, first=first, most=most) <= delay_s(
        failures + 1, first=first, most=most
    )


def test_what_is_in_doubt_is_looked_at_at_once():
    assert look_delay_s(0) == 0.0


def test_what_is_in_doubt_is_looked_at_often_for_a_minute():
    waits = [look_delay_s(looks) for looks in range(1, LOOKS_OFTEN + 1)]
    assert waits[:7] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert 60 <= sum(waits) < 65
    assert max(waits) == 5.0


@pytest.mark.parametrize("looks", [LOOKS_OFTEN + 1, LOOKS_OFTEN + 2, 10**9])
def test_what_is_in_doubt_is_looked_at_once_a_minute_for_ever_after(looks):
    assert look_delay_s(looks) == 60.0
