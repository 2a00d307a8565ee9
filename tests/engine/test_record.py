import json
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codexdrv.engine.record import (
    RecordWatch,
    find_records,
    record_size,
    search_records,
)
from codexdrv.ids import DeliveryId, TurnId
from codexdrv.journal.dispatch import Mark
from codexdrv.rules.evidence import Record, Sighting
from tests.acceptance.binaries import VERSIONS
from tests.fakes.threads import FakeThread, FakeTurn, user_message


M1 = DeliveryId("m1")
TURN = TurnId("019a0000-0000-7000-8000-0000000000cc")
OTHER_TURN = TurnId("019a0000-0000-7000-8000-0000000000dd")
ROLLOUTS = Path(__file__).parents[2] / "fixtures" / "rollouts"
NAME = "rollout-2027-01-15T08-00-00-019a0000-0000-7000-8000-000000000001"
# The same examples every time, however slow the machine.
STEADY = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def thread(tmp_path):
    return FakeThread("t", tmp_path / "rollout.jsonl")


def add(thread, client_id, text="hello", turn=TURN):
    thread.record(FakeTurn(turn), user_message(client_id, text))


def found(*, equal=()):
    return Record(True, tuple(Sighting(TURN, each) for each in equal))


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
    assert (
        search_records(records, M1, "before the revert").sightings == found(equal=[True]).sightings
    )
    assert search_records(records, M1, "another").sightings == found(equal=[False]).sightings
    assert find_records(str(new.path), "u") == (str(new.path),)
    old.path.unlink()
    left = search_records(find_records(str(new.path), "t"), M1, "before the revert")
    assert (left.is_readable, left.sightings) == (True, ())


def test_records_of_which_one_cannot_be_read_say_no_certain_no(tmp_path):
    day = tmp_path / "sessions" / "2026" / "11" / "29"
    day.mkdir(parents=True)
    missing = day / "rollout-2026-11-29T10-00-00-t.jsonl"
    missing.mkdir()
    assert not search_records(find_records(str(missing), "t"), M1, "hello").is_readable
    assert not search_records([], M1, "hello").is_readable


# What every version wrote: fixtures/README.md says how.


def turn(number):
    return TurnId(f"019a0000-0000-7000-8000-{number:012}")


def real(version, name):
    return (ROLLOUTS / version / f"{name}.jsonl").read_bytes()


def is_legacy(version):
    return version == VERSIONS[0]


def seen_in(version, *turns):
    """The sightings of ours; a legacy record names no turn."""
    return tuple(Sighting(None if is_legacy(version) else each, True) for each in turns)


@pytest.fixture
def record(tmp_path):
    day = tmp_path / "home" / "sessions" / "2027" / "01" / "15"
    day.mkdir(parents=True)
    return day / f"{NAME}.jsonl"


def look(record, *, text="hello", size=0):
    return RecordWatch(M1, text, Mark(None, str(record), size)).read(str(record))


ONE_TURN = ["start", "steer", "compaction", "archived", "reverted"]
"""In which ours is said once; elsewhere in this list whatever comes before and after it."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ONE_TURN)
def test_each_version_shows_it_once_with_its_turn(record, version, name):
    record.write_bytes(real(version, name))
    shown = look(record)
    assert shown == Record(True, shown.sightings)
    (sighting,) = shown.sightings
    assert sighting.is_equal
    assert (sighting.turn is None) == is_legacy(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_shows_it_twice_where_it_was_said_twice(record, version):
    record.write_bytes(real(version, "twice"))
    first, second = look(record).sightings
    assert first.is_equal
    assert second.is_equal
    assert (first.turn != second.turn) or is_legacy(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_text_of_others_is_neither_ours_nor_a_ghost(record, version):
    record.write_bytes(real(version, "twins"))
    assert look(record) == Record(True, seen_in(version, turn(3)))
    assert RecordWatch(DeliveryId("m9"), "hello", Mark(None, str(record), 0)).read(
        str(record)
    ) == Record(True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_picture_beside_the_same_text_is_no_ghost(record, version):
    record.write_bytes(real(version, "image"))
    assert look(record) == Record(True)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_shows_another_text_under_our_id(record, version):
    record.write_bytes(real(version, "other-text"))
    (sighting,) = look(record).sightings
    assert not sighting.is_equal


@pytest.mark.parametrize("version", VERSIONS)
def test_a_legacy_thread_shows_it_without_a_turn_on_each_version(record, version):
    record.write_bytes(real(version, "legacy"))
    assert look(record) == Record(True, (Sighting(None, True),))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_ghost_is_told_with_its_turn_also_when_another_says_the_same_later(record, version):
    record.write_bytes(real(version, "ghost"))
    assert look(record) == Record(True, ghosts=(turn(3),))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_ghost_that_lacks_its_newline_is_one_also_when_the_server_goes_on_behind_it(
    record, version
):
    record.write_bytes(real(version, "unended"))
    assert look(record) == Record(True, ghosts=(turn(3),))


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_revert_begins_a_file_that_is_read_too_and_the_noted_one_keeps_what_it_lost(
    record, version
):
    newer = record.with_name(f"{NAME}_019a0000-0000-7000-8000-000000000099.jsonl")
    record.write_bytes(real(version, "reverted"))
    newer.write_bytes(real(version, "reverted.2"))
    mark = Mark(None, str(record), 0)
    (sighting,) = RecordWatch(M1, "hello", mark).read(str(record)).sightings
    moved = Record(True, (sighting,), is_noted=False)
    assert RecordWatch(M1, "hello", mark).read(str(newer)) == moved
    # What came after it is in the newer file alone.
    (after,) = RecordWatch(DeliveryId("u2"), "after", mark).read(str(newer)).sightings
    assert after.is_equal
    assert RecordWatch(DeliveryId("u2"), "after", mark).read(str(record)) == Record(True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["start", "twins", "unended"])
def test_a_cut_anywhere_shows_what_is_whole_and_reading_on_shows_the_rest(record, version, name):
    rows = real(version, name).splitlines(keepends=True)
    first = next(number for number, row in enumerate(rows) if b'"text":"hello"' in row)
    text = b"".join(rows[first : first + 3])
    record.touch()
    watch = watch_from_here(record)
    for size in range(len(text)):
        append(record, text[size : size + 1])
        expected = told(text[: size + 1])
        assert watch.read(str(record)) == expected
        assert look(record) == expected


@pytest.mark.parametrize("name", ["start", "steer"])
def test_a_line_that_was_cut_anywhere_does_not_hide_those_that_are_written_behind_it(record, name):
    # As 0.144.5 goes on after a kill.
    rows = real(VERSIONS[0], name).splitlines(keepends=True)
    (ours,) = (number for number, row in enumerate(rows) if b'"client_id":"m1"' in row)
    pair = b"".join(rows[ours - 1 : ours + 1])
    torn = rows[ours - 1]
    ghost_too = Record(True, (Sighting(None, True),), (turn(3),))
    for size in range(len(torn) - 1):
        assert look_at(record, torn[:size] + pair) == Record(True, (Sighting(None, True),))
    assert look_at(record, torn[:-1] + pair) == ghost_too


def look_at(record, text):
    record.write_bytes(text)
    return look(record)


def told(text):
    """What a text shows of ours, found in another way: each object that is whole, in order."""
    sightings, ghosts = [], []
    for row in objects_in(text.decode()):
        payload = row["payload"]
        item = payload.get("item", payload)
        text = item.get("message") or "".join(part["text"] for part in item.get("content", ()))
        if item.get("role") == "user" and text == "hello":
            ghosts.append(payload["internal_chat_message_metadata_passthrough"]["turn_id"])
        elif item["type"] in {"user_message", "UserMessage"}:
            ghosts = ghosts[:-1] if text == "hello" else ghosts
            mine = [Sighting(payload.get("turn_id"), text == "hello")]
            sightings += mine if item.get("client_id") == "m1" else []
    return Record(True, tuple(sightings), tuple(ghosts))


def objects_in(text):
    position = 0
    while position < len(text):
        try:
            row, position = json.JSONDecoder().raw_decode(text, position)
        except json.JSONDecodeError:
            return
        yield row
        position += text[position : position + 1] == "\n"


# Made up lines, for what no server was seen to do.


def model_input(turn_id, text):
    return line_of(
        "response_item",
        type="message",
        role="user",
        content=[{"type": "input_text", "text": text}],
        internal_chat_message_metadata_passthrough={"turn_id": turn_id},
    )


def paginated(turn_id, client_id, text):
    content = [{"type": "text", "text": text}]
    item = {"type": "UserMessage", "client_id": client_id, "content": content}
    return line_of("event_msg", type="item_completed", turn_id=turn_id, item=item)


def legacy(client_id, text):
    return line_of("event_msg", type="user_message", client_id=client_id, message=text)


def agent(text):
    return line_of("event_msg", type="agent_message", message=text)


def line_of(kind, **payload):
    row = {"timestamp": "2027-01-15T08:00:00Z", "type": kind, "payload": payload}
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def said(turn_id, client_id, text):
    return model_input(turn_id, text) + paginated(turn_id, client_id, text)


def append(record, text):
    with record.open("ab") as file:
        file.write(text)


def watch_from_here(record, *, text="hello"):
    return RecordWatch(M1, text, Mark(None, str(record), record_size(str(record))))


SHOWN = Record(True, (Sighting(TURN, True),))


def test_what_is_older_than_the_mark_does_not_count(record):
    append(record, said(TURN, "m1", "hello"))
    watch = watch_from_here(record)
    assert watch.read(str(record)) == Record(True)
    append(record, said(OTHER_TURN, "m1", "hello"))
    assert watch.read(str(record)) == Record(True, (Sighting(OTHER_TURN, True),))


def test_a_mark_within_a_line_that_was_just_written_hides_nothing_behind_it(record):
    older = said(TURN, "u1", "hello")
    for size in range(len(older) + 1):
        record.write_bytes(older[:size])
        watch = watch_from_here(record)
        append(record, older[size:] + said(TURN, "m1", "hello"))
        assert watch.read(str(record)) == SHOWN


def test_what_was_seen_stays_seen_and_is_not_counted_again(record):
    watch = watch_from_here(record)
    append(record, said(TURN, "m1", "hello"))
    assert [watch.read(str(record)) for _ in range(3)] == [SHOWN] * 3
    append(record, said(TURN, "m1", "hello!"))
    expected = (*SHOWN.sightings, Sighting(TURN, False))
    assert watch.read(str(record)) == Record(True, expected)


def test_a_ghost_is_one_until_its_event_is_written(record):
    watch = watch_from_here(record)
    append(record, model_input(TURN, "hello"))
    assert watch.read(str(record)) == Record(True, ghosts=(TURN,))
    append(record, paginated(TURN, "u1", "hello"))
    assert watch.read(str(record)) == Record(True)


def test_an_event_of_another_turn_or_text_is_not_the_ghosts_own(record):
    watch = watch_from_here(record)
    append(record, model_input(TURN, "hello"))
    append(record, paginated(OTHER_TURN, "u1", "hello") + paginated(TURN, "u1", "hello!"))
    append(record, legacy("u1", "hello!"))
    assert watch.read(str(record)) == Record(True, ghosts=(TURN,))


def test_ghosts_are_counted(record):
    watch = watch_from_here(record)
    append(record, model_input(TURN, "hello") * 3 + paginated(TURN, None, "hello"))
    append(record, model_input(None, "hello"))
    assert watch.read(str(record)) == Record(True, ghosts=(TURN, TURN, None))
    append(record, legacy(None, "hello"))
    assert watch.read(str(record)) == Record(True, ghosts=(TURN, TURN))
    append(record, model_input(None, "hello") + paginated(OTHER_TURN, "u1", "hello"))
    assert watch.read(str(record)) == Record(True, ghosts=(TURN, TURN))


@pytest.mark.parametrize("text", ["e\u0301", "\ufeffhello", "hello ", "a\r\nb", "\0", "\u2028"])
def test_texts_are_equal_by_code_points_only(record, text):
    append(record, said(TURN, "m1", text))
    assert look(record, text=text) == SHOWN
    near = {"e\u0301": "\u00e9", "a\r\nb": "a\nb"}.get(text, text.strip("\ufeff \0\u2028"))
    assert look(record, text=near) == Record(True, (Sighting(TURN, False),))


def test_a_compacted_line_that_repeats_a_text_or_an_id_does_not_count(record):
    rows = [json.loads(row) for row in said(TURN, "m1", "hello").splitlines()]
    history = [*rows, *(row["payload"] for row in rows)]
    append(record, line_of("compacted", type="message", role="user", replacement_history=history))
    append(record, line_of("compacted", message="hello", replacement_history=history))
    assert look(record) == Record(True)


def test_an_archived_record_is_still_the_one_that_was_noted(record):
    archive = record.parents[4] / "archived_sessions"
    archive.mkdir()
    watch = watch_from_here(record)
    append(record, said(TURN, "m1", "hello"))
    archived = record.rename(archive / record.name)
    assert watch.read(str(archived)) == SHOWN
    # Also when the server's answer is older than the move.
    assert watch.read(str(record)) == SHOWN
    assert watch.read(None) == SHOWN
    archived.rename(record)
    assert watch.read(str(archived)) == SHOWN
    # And one that was in the archive when it was noted.
    noted_there = RecordWatch(M1, "hello", Mark(None, str(archived), 0))
    assert noted_there.read(str(record)) == SHOWN


def test_after_a_revert_both_files_are_read_to_the_end(record):
    watch = watch_from_here(record)
    newer = record.with_name(f"{NAME}_2.jsonl")
    append(record, model_input(TURN, "hello"))
    append(newer, said(OTHER_TURN, "u1", "hello"))
    assert watch.read(str(newer)) == Record(True, ghosts=(TURN,), is_noted=False)
    append(newer, said(OTHER_TURN, "m1", "hello"))
    expected = (Sighting(OTHER_TURN, True),)
    assert watch.read(str(newer)) == Record(True, expected, (TURN,), is_noted=False)
    # Known since, and not forgotten when the server is asked no more.
    assert watch.read(None).sightings == expected


def test_what_a_newer_file_repeats_was_not_said_twice(record):
    newer = record.with_name(f"{NAME}_2.jsonl")
    watch = watch_from_here(record)
    for file in (record, newer):
        append(file, said(TURN, "m1", "hello"))
    assert watch.read(str(newer)).sightings == SHOWN.sightings
    append(newer, said(OTHER_TURN, "m1", "hello"))
    assert len(watch.read(str(newer)).sightings) == 2


def test_where_no_file_was_known_at_the_dispatch_the_one_of_now_is_read_from_its_start(record):
    append(record, said(TURN, "m1", "hello"))
    for mark in (None, Mark(None, None, 0)):
        watch = RecordWatch(M1, "hello", mark)
        assert watch.read(None) == Record(False)
        assert watch.read(str(record)) == SHOWN
        assert not watch.read(str(record.with_name("rollout-2.jsonl"))).is_noted


def test_a_thread_that_was_never_used_has_no_file_and_that_is_a_no(record):
    watch = watch_from_here(record)
    assert watch.read(str(record)) == Record(True)
    assert watch.read(None) == Record(True)
    append(record, said(TURN, "m1", "hello"))
    assert watch.read(str(record)) == SHOWN


def test_a_file_that_is_gone_says_nothing_and_what_it_said_stays_said(record):
    append(record, agent("before"))
    watch = watch_from_here(record)
    record.unlink()
    assert watch.read(str(record)) == Record(False)
    append(record, agent("before") + said(TURN, "m1", "hello"))
    assert watch.read(str(record)) == SHOWN
    record.unlink()
    assert watch.read(str(record)) == SHOWN._replace(is_readable=False)


def test_a_file_that_came_and_went_says_nothing_whatever_little_was_in_it(record):
    watch = watch_from_here(record)
    for text in (b"", b'{"timestamp":'):
        record.write_bytes(text)
        assert watch.read(str(record)) == Record(True)
        record.unlink()
        assert watch.read(str(record)) == Record(False)


@pytest.mark.parametrize("existed", [False, True])
def test_a_file_that_was_compressed_says_nothing(record, existed):
    if existed:
        append(record, agent("before"))
    watch = watch_from_here(record)
    if existed:
        record.unlink()
    record.with_name(f"{record.name}.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    assert watch.read(str(record)) == Record(False)


def test_what_is_no_regular_file_says_nothing_and_does_not_block(record):
    watch = watch_from_here(record)
    record.mkdir()
    assert watch.read(str(record)) == Record(False)
    record.rmdir()
    os.mkfifo(record)
    assert watch.read(str(record)) == Record(False)
    record.unlink()
    record.symlink_to("/dev/null")
    assert watch.read(str(record)) == Record(False)
    record.unlink()
    record.parent.rmdir()
    record.parent.write_text("a file where the day was")
    assert watch.read(str(record)) == Record(False)


def test_a_file_that_is_shorter_than_it_was_says_nothing_even_when_it_has_grown_again(record):
    append(record, agent("before") * 3)
    watch = watch_from_here(record)
    append(record, model_input(TURN, "hello"))
    assert watch.read(str(record)) == Record(True, ghosts=(TURN,))
    whole = record.read_bytes()
    record.write_bytes(whole[: len(whole) - 20])
    unsure = Record(False, ghosts=(TURN,))
    assert watch.read(str(record)) == unsure
    append(record, agent("after") * 9)
    assert watch.read(str(record)) == unsure
    record.write_bytes(whole[:50])
    assert look(record, size=51) == Record(False)


def test_a_copy_that_took_its_place_is_read_on_and_another_file_is_not(record):
    append(record, agent("before"))
    watch = watch_from_here(record)
    assert watch.read(str(record)) == Record(True)
    copy = record.with_name("copy")
    shutil.copy(record, copy)
    append(copy, said(TURN, "m1", "hello"))
    copy.replace(record)
    assert watch.read(str(record)) == SHOWN
    copy.write_bytes(agent("other" * 200) + said(TURN, "m1", "hello"))
    copy.replace(record)
    assert watch.read(str(record)) == SHOWN._replace(is_readable=False)


def bytes_read():
    rows = dict(row.split(": ") for row in Path("/proc/self/io").read_text().splitlines())
    return int(rows["rchar"])


def test_a_look_reads_what_is_new_and_keeps_little(record):
    filler = agent("x" * 1000) * 16_000
    append(record, filler)
    watch = watch_from_here(record)
    record.write_bytes(filler + filler + said(TURN, "m1", "hello") + filler)
    before = bytes_read()
    tracemalloc.start()
    assert watch.read(str(record)) == SHOWN
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bytes_read() - before < 2.1 * len(filler)
    assert peak < len(filler) / 4
    append(record, said(OTHER_TURN, "m1", "hello"))
    before = bytes_read()
    assert len(watch.read(str(record)).sightings) == 2
    assert bytes_read() - before < 50_000


TRACES = st.lists(
    st.one_of(
        st.builds(model_input, st.sampled_from([TURN, OTHER_TURN]), st.sampled_from("ab")),
        st.builds(
            paginated,
            st.sampled_from([TURN, OTHER_TURN]),
            st.sampled_from(["m1", "u1", None]),
            st.sampled_from("ab"),
        ),
        st.builds(legacy, st.sampled_from(["m1", "u1", None]), st.sampled_from("ab")),
        st.builds(agent, st.sampled_from("ab")),
    ),
    max_size=12,
).map(b"".join)


@STEADY
@given(TRACES, st.lists(st.integers(0, 3000), max_size=6))
def test_looks_in_between_change_nothing_wherever_they_fall(tmp_path, text, sizes):
    record = tmp_path / "rollout.jsonl"
    record.write_bytes(b"")
    watch = RecordWatch(M1, "a", Mark(None, str(record), 0))
    for size in sorted(sizes):
        record.write_bytes(text[:size])
        so_far = watch.read(str(record))
        assert so_far.is_readable
        assert so_far == RecordWatch(M1, "a", Mark(None, str(record), 0)).read(str(record))
    record.write_bytes(text)
    last = watch.read(str(record))
    assert last == RecordWatch(M1, "a", Mark(None, str(record), 0)).read(str(record))
    assert len(last.sightings) == text.count(b'"client_id":"m1"')
