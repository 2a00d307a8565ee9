"""What is said of a thread that was left, and when that is as promised."""

import pytest

from tests.soak.keepalive import Kept, is_as_promised


KEPT = Kept(None, 180.2, 170, surfaced_after_s=0.12)
LEFT = Kept(61.2, 61.2, 58)


def test_both_are_told_in_words():
    assert KEPT.words == (
        "loaded in each of 170 looks for 180 s; then a message surfaced 0.12 s after `deliver`"
        " began"
    )
    assert LEFT.words == "unloaded 61 s after its last subscriber left"


def test_the_supervisor_makes_the_difference():
    assert is_as_promised(KEPT, LEFT)


@pytest.mark.parametrize(
    ("with_us", "without_us"),
    [
        (KEPT._replace(unloaded_after_s=60.0), LEFT),
        (KEPT._replace(surfaced_after_s=None), LEFT),
        (KEPT._replace(surfaced_after_s=30.0), LEFT),
        (KEPT, LEFT._replace(unloaded_after_s=None)),
        (KEPT, LEFT._replace(unloaded_after_s=5.0)),
    ],
)
def test_anything_else_is_not_as_promised(with_us: Kept, without_us: Kept):
    assert not is_as_promised(with_us, without_us)
