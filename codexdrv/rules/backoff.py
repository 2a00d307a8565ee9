"""How long to wait before the next try."""

HELD_DELAY_S_FIRST = 0.1
"""A boundary or an overload often passes at once."""
HELD_DELAY_S_MAX = 5.0
"""A caller who waits should not notice the pause."""
CONNECT_DELAY_S_FIRST = 1.0
"""A restarting server needs about that."""
CONNECT_DELAY_S_MAX = 60.0
"""Hours of absence must not fill a log."""


def delay_s(failures: int, *, first: float, most: float) -> float:
    """Double from `first` with each failure, up to `most`; nothing failed, nothing to wait for."""
    if failures <= 0:
        return 0.0
    # 2**64 is beyond any limit; a larger exponent would only overflow.
    return min(most, first * 2.0 ** min(failures - 1, 64))


SETTLE_S = 2.0
"""Between two quiet fences that prove absence: the lateness that was seen is 30 ms (0.144.5)."""

PARK_S = 900.0
"""Doubt holds a lane as long as `status` takes a delivery for healthy (DESIGN.md, "Ownership")."""

LOOK_DELAY_S_FIRST = 0.1
LOOK_DELAY_S_MAX = 5.0
LOOKS_OFTEN = 17
"""So many looks fill the first minute."""
LOOK_DELAY_S_LATER = 60.0
"""For ever after: what is in doubt is never given up."""


def look_delay_s(looks: int) -> float:
    """Say how long to wait after that many looks at an input that is in doubt."""
    if looks > LOOKS_OFTEN:
        return LOOK_DELAY_S_LATER
    return delay_s(looks, first=LOOK_DELAY_S_FIRST, most=LOOK_DELAY_S_MAX)
