import json
import os

import pytest

from codexdrv.engine.record import (
    UNREADABLE,
    RecordReading,
    find_records,
    record_size,
    search_record,
    search_records,
)
from codexdrv.ids import DeliveryId, TurnId
from codexdrv.protocol.events import UserMessage
from tests.fakes.threads import FakeThread, FakeTurn, user_message


M1 = DeliveryId("m1")
TURN = TurnId("019a0000-0000-7000-8000-0000000000cc")


@pytest.fixture
def thread(tmp_path):
    return FakeThread("t", tmp_path / "rollout.jsonl")


def add(thread, client_id, text="hello", turn=TURN):
    thread.record(FakeTurn(turn), user_message(client_id, text))


def found(*texts):
    return RecordReading(True, tuple(UserMessage(TURN, M1, text) for text in texts))


def search(thread, start=0, delivery=M1):
    return search_record(str(thread.path), delivery, start=start)


def test_the_line_with_our_id_is_found_with_its_turn_and_text(thread):
    add(thread, None, "before")
    add(thread, "m1", "hello\nworld")
    add(thread, "m2", "after")
    assert search(thread) == found("hello\nworld")


def test_an_id_twice_is_found_twice(thread):
    add(thread, "m1", "one")
    add(thread, "m1", "two")
    assert search(thread) == found("one", "two")


@pytest.mark.parametrize("name", ["m1x", "xm1", "M1", "m"])
def test_another_id_is_not_ours(thread, name):
    add(thread, name)
    assert search(thread) == found()


def test_an_id_in_somebodys_text_is_not_ours(thread):
    add(thread, "m2", 'the "m1" of it')
    add(thread, "m2", "m1")
    add(thread, "m2", '{"type":"event_msg","payload":{"client_id":"m1"}}')
    assert search(thread) == found()


def test_a_compacted_line_that_repeats_our_input_is_not_ours(thread):
    line = {"client_id": "m1", "type": "user_message", "message": "hello"}
    thread.path.write_text(json.dumps({"type": "compacted", "payload": {"history": [line]}}) + "\n")
    assert search(thread) == found()


def test_only_lines_after_the_mark_count(thread):
    add(thread, "m1", "an earlier attempt")
    mark = record_size(str(thread.path))
    assert search(thread, mark) == found()
    add(thread, "m1", "this one")
    assert search(thread, mark) == found("this one")


def test_a_line_that_is_cut_is_no_evidence_and_those_before_it_are(thread):
    add(thread, "m1", "whole")
    add(thread, "m1", "cut")
    os.truncate(thread.path, thread.path.stat().st_size - 20)
    assert search(thread) == found("whole")


def test_a_last_line_without_its_newline_counts_if_it_is_whole(thread):
    add(thread, "m1", "whole")
    os.truncate(thread.path, thread.path.stat().st_size - 1)
    assert search(thread) == found("whole")


def test_a_line_of_a_legacy_thread_counts(thread):
    payload = {"type": "user_message", "client_id": "m1", "message": "hello", "turn_id": TURN}
    thread.path.write_text(json.dumps({"type": "event_msg", "payload": payload}) + "\n")
    assert search(thread) == found()._replace(found=(UserMessage(TURN, "m1", "hello"),))


def test_large_lines_around_it_do_not_matter(thread):
    add(thread, None, "x" * 1_000_000)
    add(thread, "m1", "y" * 1_000_000)
    add(thread, None, "z" * 1_000_000)
    assert search(thread) == found("y" * 1_000_000)


def test_nothing_after_the_mark_is_an_answer(thread):
    add(thread, "m1")
    assert search(thread, record_size(str(thread.path))) == found()


def test_an_empty_file_is_an_answer(thread):
    thread.path.touch()
    assert search(thread) == found()


def test_a_file_that_is_shorter_than_its_mark_is_another_one_and_says_nothing(thread):
    add(thread, "m1")
    assert search(thread, record_size(str(thread.path)) + 1) == UNREADABLE


def test_a_record_that_cannot_be_read_says_nothing(thread):
    assert search(thread) == UNREADABLE
    assert search_record(None, M1, start=0) == UNREADABLE
    thread.path.mkdir()
    assert search(thread) == UNREADABLE


def test_a_record_that_is_not_there_has_no_size(thread):
    assert record_size(None) == 0
    assert record_size(str(thread.path)) == 0
    add(thread, "m1")
    assert record_size(str(thread.path)) == thread.path.stat().st_size


def test_every_record_of_a_thread_is_searched_whatever_day_a_revert_began_a_new_one(tmp_path):
    days = [tmp_path / "sessions" / "2026" / "11" / day for day in ("29", "30")]
    names = ["rollout-2026-11-29T10-00-00-t.jsonl", "rollout-2026-11-30T10-00-00-t.jsonl"]
    old, new = (
        FakeThread("t", day / name)
        for day, name in zip(days, names, strict=True)
        if not day.mkdir(parents=True)
    )
    add(old, "m1", "before the revert")
    add(new, "m2", "after it")
    records = find_records(str(new.path), "t")
    assert set(records) == {str(old.path), str(new.path)}
    assert search_records(records, M1) == found("before the revert")
    assert find_records(str(new.path), "u") == (str(new.path),)
    old.path.unlink()
    assert search_records(find_records(str(new.path), "t"), M1) == found()


def test_records_of_which_one_cannot_be_read_say_no_certain_no(tmp_path):
    day = tmp_path / "sessions" / "2026" / "11" / "29"
    day.mkdir(parents=True)
    missing = day / "rollout-2026-11-29T10-00-00-t.jsonl"
    assert not search_records(find_records(str(missing), "t"), M1).is_readable
