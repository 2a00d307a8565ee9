"""Every recording, replayed through floors 1 to 3, tells the story that is written next to it."""

import inspect
import re

import pytest

from codexdrv.ids import NIL_TURN
from codexdrv.protocol import results
from codexdrv.protocol.events import READERS, Unrecognized
from codexdrv.protocol.refusals import Meaning, Understood
from codexdrv.wire.message import Request
from tests.acceptance.binaries import VERSIONS
from tests.recording.record import BEHAVIOURS, RECORDINGS
from tests.recording.replay import Replay, readers_of
from tests.recording.stable import read_lines
from tests.recording.stage import THREAD_OF_NOBODY, TURN_OF_NOBODY
from tests.recording.used import UNRECORDED, build_calls


PATHS = sorted(RECORDINGS.glob("*/*.jsonl"))
SIZE_BYTES_MAX = 1024 * 1024
"""Of all recordings: they are read by people, and kept for ever."""

NEVER_REFUSED_SO = {
    Meaning.OVERLOADED,  # takes thousands of requests: tests/acceptance
}
NOT_OURS = {"unknown-method"}
"""Recordings of requests that no builder makes."""
HOSTS = {"developers.openai.com"}
"""The server's own advice links to it."""


@pytest.fixture(params=PATHS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def recording(request):
    return request.param


def lines_of(path):
    return read_lines(path.read_text("utf-8"))


def replayed(path):
    replay = Replay()
    replay.tell(lines_of(path))
    return replay


def requests_in(path):
    frames = (line.frame for line in lines_of(path) if line.direction == ">")
    return [frame for frame in frames if "id" in frame]


def with_more_members(value):
    match value:
        case dict():
            more = {key: with_more_members(each) for key, each in value.items()}
            return more | {"of a newer version": {"x": [1]}}
        case list():
            return [with_more_members(each) for each in value]
        case _:
            return value


def test_a_recording_tells_its_story(recording):
    expected = recording.with_suffix(".txt").read_text("utf-8")
    assert Replay().tell(lines_of(recording)) == expected


def test_members_of_a_newer_version_change_no_story(recording):
    newer = [
        line._replace(frame=with_more_members(line.frame)) if line.direction == "<" else line
        for line in lines_of(recording)
    ]
    assert Replay().tell(newer) == recording.with_suffix(".txt").read_text("utf-8")


def test_news_without_a_reader_are_unrecognized_and_no_other_but_errors_that_end_nothing(recording):
    said = [line.frame for line in lines_of(recording) if line.direction == "<"]
    methods_said = {frame["method"] for frame in said if "id" not in frame}
    unrecognized = {
        event.method for event in replayed(recording).read if isinstance(event, Unrecognized)
    }
    assert unrecognized - {"error"} == methods_said - READERS.keys()


def test_what_was_sent_is_what_we_send(recording):
    ours = {(call.method, *sorted(call.params)) for call in build_calls()}
    sent = {(frame["method"], *sorted(frame["params"])) for frame in requests_in(recording)}
    assert sent <= ours or recording.stem in NOT_OURS


def test_nothing_of_the_machine_is_in_a_recording(recording):
    text = recording.read_text("utf-8") + recording.with_suffix(".txt").read_text("utf-8")
    uuids = set(re.findall(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", text))
    strange = {each for each in uuids if not each.startswith("019a0000-0000-7000-8000-0000000000")}
    assert strange <= {NIL_TURN, THREAD_OF_NOBODY, TURN_OF_NOBODY}
    assert set(re.findall(r"https?://([^/\"\\]*)", text)) <= HOSTS
    # The shell of the server's commands is where it is on every machine.
    paths = re.findall(r"(?<![\w./:])/[\w.-]+/", re.sub(r"https?://\S+", "", text))
    assert set(paths) <= {"/rig/", "/bin/"}
    assert set(re.findall(r"20\d\d-\d\d-\d\d", text)) <= {"2027-01-15"}


def test_each_behaviour_is_recorded_on_each_version():
    found = {(path.parent.name, path.stem) for path in PATHS}
    assert found == {(version, name) for version in VERSIONS for name in BEHAVIOURS}
    stories = {(path.parent.name, path.stem) for path in RECORDINGS.glob("*/*.txt")}
    assert stories == found


def test_the_recordings_stay_small():
    size = sum(path.stat().st_size for path in RECORDINGS.rglob("*") if path.is_file())
    assert size < SIZE_BYTES_MAX


def test_all_that_reads_is_used_by_a_recording():
    read = [each for path in PATHS for each in replayed(path).read]
    heard = {
        line.frame["method"]
        for path in PATHS
        for line in lines_of(path)
        if line.direction == "<" and "method" in line.frame
    }
    assert READERS.keys() - heard == UNRECORDED.keys()
    meant = {each.meaning for each in read if isinstance(each, Understood)}
    assert set(Meaning) - meant == NEVER_REFUSED_SO


def test_all_that_reads_a_result_is_replayed():
    readers = {
        each
        for name, each in inspect.getmembers(results, inspect.isfunction)
        if name.startswith("read_") and each.__module__ == results.__name__
    }
    used = {
        reader
        for path in PATHS
        for frame in requests_in(path)
        for reader in readers_of(Request(**frame))
    }
    assert used == readers
