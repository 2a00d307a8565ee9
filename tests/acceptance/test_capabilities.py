"""What a thread can be asked for is found by asking it; the server's own words say no."""

from typing import Any

import pytest

from codexdrv.errors import Refused
from codexdrv.protocol.refusals import Meaning, read_refusal
from tests.acceptance.binaries import by_version
from tests.acceptance.kit import Rig, ServerError, Truth
from tests.acceptance.scenes import used_thread


NIL = "00000000-0000-0000-0000-000000000000"

ASKED: dict[str, dict[str, Any]] = {
    "thread/items/list": {"limit": 1},
    "thread/turns/list": {"limit": 1},
    "thread/read": {"includeTurns": False},
    "thread/queue/list": {},
    # Both name what is not there, so that they change nothing.
    "thread/revert": {"beforeTurnId": NIL},
    "thread/rollback": {"numTurns": 0},
    "turn/interrupt": {"turnId": NIL},
}

SUPPORTED = {
    "0.144.5": {"thread/turns/list", "thread/read", "thread/rollback", "turn/interrupt"},
    "0.163.0": ASKED.keys() - {"thread/rollback"},
}


def is_supported(truth: Truth, thread: str, method: str) -> bool:
    """Ask, and read the answer as the driver does."""
    try:
        truth.call(method, threadId=thread, **ASKED[method])
    except ServerError as refusal:
        refused = Refused(refusal.code, refusal.message, refusal.data)
        return read_refusal(refused).meaning is not Meaning.NOT_SUPPORTED
    return True


@pytest.mark.field_report("phoenix#8464", "rome#243")
def test_what_a_used_thread_supports_is_found_by_asking_it(rig: Rig, version: str):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    found = {method for method in ASKED if is_supported(truth, thread, method)}
    assert found == by_version(SUPPORTED, version)


@pytest.mark.field_report("phoenix#8464", "rome#243")
def test_a_no_is_not_remembered_because_the_first_turn_may_change_it(rig: Rig, version: str):
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)
    before = is_answered(truth, thread)
    truth.wait_for_turn(truth.start_turn(thread, "first"))
    assert (before, is_answered(truth, thread)) == (False, True)


def is_answered(truth: Truth, thread: str) -> bool:
    """Say whether the thread lists its turns now."""
    try:
        truth.call("thread/turns/list", threadId=thread, limit=1)
    except ServerError:
        return False
    return True
