"""The status file: a picture is believed for a while, anything else is no picture."""

import pytest

from codexdrv.snapshot import FILE_NAME, FORMAT, STALE_AFTER_MS, Snapshot, load_snapshot


NOW_MS = 1_800_000_000_000


def test_a_picture_is_read_whole(tmp_path):
    (tmp_path / FILE_NAME).write_text('{"written_at_ms": 5, "server": {"user_agent": "grün"}}')
    body = {"written_at_ms": 5, "server": {"user_agent": "grün"}}
    assert load_snapshot(str(tmp_path)) == Snapshot(5, body)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"7", b"{}", b'{"written_at_ms": "5"}', b"\xff\xfe", b"\0"],
)
def test_what_is_no_picture_counts_as_none(tmp_path, content):
    (tmp_path / FILE_NAME).write_bytes(content)
    assert load_snapshot(str(tmp_path)) is None


def test_no_file_is_no_picture(tmp_path):
    assert load_snapshot(str(tmp_path)) is None
    (tmp_path / FILE_NAME).mkdir()
    assert load_snapshot(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("age_ms", "is_stale"),
    [(0, False), (STALE_AFTER_MS, False), (STALE_AFTER_MS + 1, True), (-3_600_000, False)],
)
def test_a_picture_is_stale_after_fifteen_seconds(age_ms, is_stale):
    assert STALE_AFTER_MS == 15_000
    assert Snapshot(NOW_MS - age_ms, {}).is_stale(NOW_MS) is is_stale


@pytest.mark.parametrize(
    ("body", "who"),
    [
        ({"version": "0.1.0", "format": FORMAT}, None),
        ({"version": "0.0.9", "format": FORMAT}, "codexdrv 0.0.9"),
        ({}, "codexdrv None"),
        (
            {"version": "0.1.0"},
            f"another codexdrv 0.1.0 (its status file has format 1, not {FORMAT})",
        ),
        (
            {"version": "0.1.0", "format": 99},
            f"another codexdrv 0.1.0 (its status file has format 99, not {FORMAT})",
        ),
    ],
)
def test_a_picture_of_another_version_or_format_is_a_strangers(body, who):
    assert Snapshot(NOW_MS, body).stranger("0.1.0") == who


def test_the_ages_of_questions_are_read_from_any_picture():
    questions = [{"id": "a", "since_ms": 5}, {"id": "b"}, {"since_ms": 6}, "nonsense"]
    assert Snapshot(0, {"questions": questions}).asked_since == {"a": 5}
    assert Snapshot(0, {}).asked_since == {}
    assert not Snapshot(0, {}).has_ended
