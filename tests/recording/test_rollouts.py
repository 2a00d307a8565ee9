"""What every version writes into its record, as far as we lean on it."""

import json
import re
from itertools import pairwise

import pytest

from codexdrv.protocol.events import UserMessage
from codexdrv.protocol.rollout import ModelInput, read_traces
from tests.acceptance.binaries import VERSIONS
from tests.recording.rollouts import OLDEST, ROLLOUTS, names_of


PATHS = sorted(ROLLOUTS.glob("*/*.jsonl"))
SIZE_BYTES_MAX = 256 * 1024
"""Of all together: they are kept for ever."""
CUT = {"ghost", "unended"}
"""Here a line of a pair was taken away."""


@pytest.fixture(params=PATHS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def rollout(request):
    return request.param


def traces_in(path):
    return [read_traces(row) for row in path.read_bytes().split(b"\n")]


def test_each_scene_is_recorded_on_each_version():
    found = {(path.parent.name, path.name) for path in PATHS}
    assert found == {(version, name) for version in VERSIONS for name in names_of(version)}


def test_the_two_lines_of_a_pair_are_neighbours_and_have_one_text_and_turn(rollout):
    lines = traces_in(rollout)
    for before, line in pairwise(lines):
        for event in line:
            if isinstance(event, UserMessage):
                assert before[-1] == ModelInput(event.turn or before[-1].turn, event.text)
                assert before[-1].turn


def test_a_text_has_one_model_input_for_each_event(rollout):
    traces = [trace for line in traces_in(rollout) for trace in line]
    for text in {trace.text for trace in traces if isinstance(trace, UserMessage)}:
        same = [isinstance(trace, UserMessage) for trace in traces if trace.text == text]
        is_missing = rollout.stem in CUT and text == "hello"
        assert same.count(False) == same.count(True) + is_missing


def test_only_the_oldest_version_goes_on_in_a_line_that_has_no_end():
    glued = {
        path.parent.name
        for path in PATHS
        for row in path.read_bytes().splitlines()
        if row.count(b'}{"timestamp":') and not is_json(row)
    }
    assert glued == {OLDEST}


def is_json(row):
    try:
        json.loads(row)
    except json.JSONDecodeError:
        return False
    return True


def test_nothing_of_the_machine_is_in_a_rollout(rollout):
    text = rollout.read_text("utf-8")
    uuids = re.findall(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", text)
    assert {each[:24] for each in uuids} == {"019a0000-0000-7000-8000-"}
    paths = re.findall(r"(?<![\w./:<;+])/[\w.-]+/", text)
    assert set(paths) <= {"/rig/"}
    assert set(re.findall(r"20\d\d-\d\d-\d\d", text)) == {"2027-01-15"}


def test_the_rollouts_stay_small():
    assert sum(path.stat().st_size for path in PATHS) < SIZE_BYTES_MAX
