"""An attempt is read back as it was written ahead, by this version and by the next."""

import json

import pytest

from codexdrv.ids import TurnId
from codexdrv.journal.dispatch import Dispatch, Mark, Peer, Step, decode_dispatch, encode_dispatch
from tests.fakes.orders import NOW_MS, TURN


BARE = Dispatch("start", None, 1, 1, 1, None, Mark(None, None, 0))
FULL = Dispatch(
    "steer",
    TURN,
    life=3,
    generation=2,
    number=9,
    peer=Peer(4242, 123_456_789, "6a2c…boot"),
    mark=Mark(TurnId("anchor"), "/home/me/ünicode/rollout.jsonl", 65_536),
    trail=(
        Step("resume", "not subscribed", NOW_MS),
        Step("steer", "a turn runs: steer it", NOW_MS + 3),
    ),
)


@pytest.mark.parametrize("dispatch", [BARE, FULL])
def test_an_attempt_is_read_back_as_it_was_written(dispatch):
    read = decode_dispatch(encode_dispatch(dispatch))
    assert read == dispatch
    assert all(type(step) is Step for step in read.trail)
    assert type(read.mark) is Mark


def test_what_is_written_is_an_object_with_named_members():
    body = json.loads(encode_dispatch(FULL))
    assert body["route"] == "steer"
    assert body["mark"]["size"] == 65_536


def test_what_a_newer_version_noted_beside_is_no_reason_to_stop():
    noted = json.loads(encode_dispatch(FULL)) | {"tomorrow": 1}
    assert decode_dispatch(json.dumps(noted)) == FULL
