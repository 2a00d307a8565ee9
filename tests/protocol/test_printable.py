"""What strangers wrote can do no harm to a terminal, and cannot pass for our own words."""

import itertools
import shutil
import subprocess
from unicodedata import category

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codexdrv.protocol.printable import (
    CUT,
    HEAD_CHARACTERS,
    PARTS_MAX,
    TAIL_CHARACTERS,
    WHOLE_CHARACTERS,
    compact,
    folded,
    limited,
    listed,
    quoted,
    shown,
    word,
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
        # These print, and nothing is seen of them.
        ("a\u3164\u2800b\ufe0f\U000e0100", "a\\u3164\\u2800b\\ufe0f\\U000e0100"),
        ("all of it ✂ 9 characters more", "all of it \\u2702 9 characters more"),
    ],
)
def test_what_does_not_print_is_written_out(text, said):
    assert shown(text) == said


@given(st.text())
def test_no_text_leaves_its_quotes(text):
    said = quoted(text)
    assert said.isprintable()
    assert (said[0], said[-1]) == ("“", "”")
    assert not {*"“”", CUT} & {*said[1:-1]}


def test_a_long_text_shows_its_end_too_and_how_much_is_missing():
    text = "a" * HEAD_CHARACTERS + "b" * 5 + "c" * TAIL_CHARACTERS
    head, tail = "a" * HEAD_CHARACTERS, "c" * TAIL_CHARACTERS
    assert quoted(text) == f"“{head}” ✂ 5 characters more ✂ “{tail}”"
    assert quoted(text[5:]) == f"“{text[5:]}”"


def test_a_list_without_end_is_cut():
    assert listed(["a", "b"]) == "“a”, “b”"
    assert listed(["a"] * (PARTS_MAX + 90)).endswith("“a”, ✂ and 90 more")


def test_a_value_is_shown_as_json_unless_it_nests_too_deep():
    assert compact({"a": ["ü", None]}) == '“{"a":["ü",null]}”'
    value = []
    for _ in range(100_000):
        value = [value]
    assert compact(value) == "✂ too deep to show"


def test_all_that_is_shown_at_once_has_an_end():
    assert limited("a" * WHOLE_CHARACTERS) == "a" * WHOLE_CHARACTERS
    assert limited("a" * WHOLE_CHARACTERS + "bc") == "a" * WHOLE_CHARACTERS + " ✂ 2 characters more"


@given(st.text() | st.text(st.sampled_from("ab 猫")), st.integers(min_value=2, max_value=40))
def test_a_line_is_broken_before_a_terminal_does_and_nothing_is_lost(text, columns):
    lines = folded(text, columns)
    assert "".join(lines) == text
    assert max(map(len, lines)) <= columns
    # In the midst of a word only where there was no other way.
    for line, following in itertools.pairwise(lines):
        assert following.startswith(" ") or " " not in line[1:]
        assert line


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("rm -rf /tmp/x", ["rm -rf", " /tmp/x"]),
        ("rm -rf /", ["rm -rf", " /"]),
        ("a b c d e f", ["a b c d", " e f"]),
        ("aaaaaaaaa b", ["aaaaaaa", "aa b"]),
        ("a bbbbbbbbbb", ["a", " bbbbbb", "bbbb"]),
        ("aaaaaaa b", ["aaaaaaa", " b"]),
        ("aaaaaa  b", ["aaaaaa ", " b"]),
        ("          ", ["       ", "   "]),
    ],
)
def test_a_line_is_broken_before_a_blank_and_a_long_word_in_its_midst(text, lines):
    assert folded(text, 7) == lines


def test_a_wide_letter_takes_two_columns():
    assert folded("猫猫猫a", 4) == ["猫猫", "猫a"]
    assert folded("", 4) == [""]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("which", "which"),
        ("a b", "'a b'"),
        ("$(rm x); `y` #", "'$(rm x); `y` #'"),
        ("it's", "'it'\"'\"'s'"),
        ("größe", "'größe'"),
        ("a\nb'\\c", "$'a\\x0ab\\x27\\x5cc'"),
        ("\x1b[2Jü\u202e", "$'\\x1b[2Jü\\xe2\\x80\\xae'"),
        ("/tmp/\udcfc", "$'/tmp/\\xfc'"),
        ("", "''"),
    ],
)
def test_a_word_for_a_shell_is_one_word_and_prints(text, said):
    assert word(text) == said


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
@example("'; touch x; '")
@example("$'\\x41'\n!!")
def test_a_shell_reads_a_word_as_it_was(text):
    bash = shutil.which("bash")
    assert bash is not None
    script = f"printf %s {word(text)}"
    assert not [each for each in script if category(each) in {"Cc", "Cf", "Zl", "Zp"}]
    ran = subprocess.run([bash, "-c", script], capture_output=True, check=True)
    assert ran.stdout.decode() == text
