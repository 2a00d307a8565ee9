"""An idle supervisor is small, flat, and at rest."""

import pytest

from tests.soak.idle import Idle
from tests.soak.sampling import Size


BEFORE = Size(1, 33 * 1024, 13, 2, 500.0)
CHEAP = Idle("0.171.0", BEFORE, BEFORE._replace(cpu_ms=580.0), 80.0)


def test_it_is_told_in_words():
    assert CHEAP.cpu_ms == pytest.approx(60.0)
    assert CHEAP.is_cheap
    assert CHEAP.words == (
        "0.171.0: 20 threads, RSS 33.0 MiB, after a minute 33.0 MiB (at most 45); CPU 60 ms a"
        " minute (at most 250); 13 descriptors, 2 threads of its own"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BEFORE, BEFORE._replace(cpu_ms=900.0)),
        (BEFORE, BEFORE._replace(rss_kib=34 * 1024)),
        (BEFORE._replace(rss_kib=46 * 1024), BEFORE._replace(rss_kib=46 * 1024)),
    ],
)
def test_what_is_busy_or_grows_or_is_large_is_not_cheap(before: Size, after: Size):
    assert not Idle("0.171.0", before, after, 60.0).is_cheap
