"""What strangers wrote can do no harm to a terminal, and cannot pass for our own words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codexdrv.protocol.printable import (
    HEAD_CHARACTERS,
    PARTS_MAX,
    TAIL_CHARACTERS,
    compact,
    listed,
    quoted,
    shown,
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ls\x1b[2K\rrm", "ls\\x1b[2K\\rrm"),
        ("a\nb", "a\\nb"),
        ("a\\nb", "a\\\\nb"),
        ("a\u202eb\u2066", "a\\u202eb\\u2066"),
        ("a\u00a0b\u200b", "a\\xa0b\\u200b"),
        ("x” in “/safe", "x\\u201d in \\u201c/safe"),
        ("größer 猫", "größer 猫"),
        ("\x9b0m\x00", "\\x9b0m\\x00"),
    ],
)
def test_what_does_not_print_is_written_out(text, said):
    assert shown(text) == said


@given(st.text())
def test_no_text_leaves_its_quotes(text):
    said = quoted(text)
    assert said.isprintable()
    assert (said[0], said[-1]) == ("“", "”")
    assert not {*"“”"} & {*said[1:-1]}


def test_a_long_text_shows_its_end_too_and_how_much_is_missing():
    text = "a" * HEAD_CHARACTERS + "b" * 5 + "c" * TAIL_CHARACTERS
    head, tail = "a" * HEAD_CHARACTERS, "c" * TAIL_CHARACTERS
    assert quoted(text) == f"“{head}” (5 characters more) “{tail}”"
    assert quoted(text[5:]) == f"“{text[5:]}”"


def test_a_list_without_end_is_cut():
    assert listed(["a", "b"]) == "“a”, “b”"
    assert listed(["a"] * (PARTS_MAX + 90)).endswith("“a”, and 90 more")


def test_a_value_is_shown_as_json_unless_it_nests_too_deep():
    assert compact({"a": ["ü", None]}) == '“{"a":["ü",null]}”'
    value = []
    for _ in range(100_000):
        value = [value]
    assert compact(value) == "(too deep to show)"
