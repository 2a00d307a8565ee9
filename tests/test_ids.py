import string
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codexdrv.errors import BadInput
from codexdrv.ids import (
    DELIVERY_ID_CHARACTERS_MAX,
    NIL_TURN,
    mint_delivery_id,
    parse_delivery_id,
    parse_thread_id,
)


# The same examples every time, however slow the machine.
STEADY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
THREAD = "01a22d0b-8d92-7622-a61b-221d9b94b56e"
LETTERS = string.ascii_letters + string.digits + "._:@/-"
CHANCE = st.binary(min_size=10, max_size=10)
TIMES_MS = st.integers(0, 2**48 - 1)


def test_a_thread_id_is_a_uuid():
    assert parse_thread_id(THREAD) == THREAD


def test_a_thread_id_in_capitals_is_the_same_thread():
    assert parse_thread_id(THREAD.upper()) == THREAD


@pytest.mark.parametrize(
    "text",
    [
        "",
        "main",
        THREAD[:-1],
        THREAD + "0",
        THREAD + "\n",
        " " + THREAD,
        THREAD.replace("-", ""),
        "{" + THREAD + "}",
        "urn:uuid:" + THREAD,
        THREAD.replace("a", "g"),
        THREAD.replace("0", "\N{FULLWIDTH DIGIT ZERO}"),
        THREAD.replace("-", "\N{EN DASH}"),
    ],
)
def test_anything_else_is_no_thread_id(text):
    with pytest.raises(BadInput, match="is not a thread id") as caught:
        parse_thread_id(text)
    assert "codexdrv threads" in caught.value.hint


@pytest.mark.parametrize("letter", LETTERS)
def test_each_allowed_letter_makes_a_delivery_id(letter):
    assert parse_delivery_id(letter) == letter


@STEADY
@given(st.characters().filter(lambda letter: letter not in LETTERS), st.integers(0, 2))
def test_one_letter_that_is_not_allowed_spoils_a_delivery_id(letter, place):
    with pytest.raises(BadInput, match="is not a delivery id"):
        parse_delivery_id("ab"[:place] + letter + "ab"[place:])


@STEADY
@given(st.text(LETTERS, min_size=1, max_size=DELIVERY_ID_CHARACTERS_MAX))
def test_an_allowed_delivery_id_is_kept_as_it_is(text):
    assert parse_delivery_id(text) == text


@pytest.mark.parametrize("length", [1, 199, 200])
def test_a_delivery_id_has_1_to_200_characters(length):
    assert len(parse_delivery_id("x" * length)) == length


@pytest.mark.parametrize("length", [0, 201, 10_000])
def test_no_other_length_is_a_delivery_id_and_the_sentence_stays_short(length):
    with pytest.raises(BadInput, match="is not a delivery id: 1 to 200 of") as caught:
        parse_delivery_id("x" * length)
    assert len(caught.value.message) < 200


def test_a_source_stands_in_front_of_the_id():
    assert parse_delivery_id("<1@host>".strip("<>"), source="mail") == "mail/1@host"


@pytest.mark.parametrize(("source", "length"), [("mail", 195), ("x" * 100, 99)])
def test_source_and_id_share_the_200_characters(source, length):
    assert len(parse_delivery_id("x" * length, source=source)) == 200
    with pytest.raises(BadInput, match="is not a delivery id"):
        parse_delivery_id("x" * (length + 1), source=source)


def test_a_source_needs_an_id():
    with pytest.raises(BadInput, match="is not a delivery id"):
        parse_delivery_id("", source="mail")


@pytest.mark.parametrize("source", ["", "a/b", "/", "a b", "a\n", "ä", "x" * 101])
def test_a_source_has_no_slash_and_at_most_100_letters(source):
    with pytest.raises(BadInput, match="is not a source") as caught:
        parse_delivery_id("1", source=source)
    assert " / " not in caught.value.message


@STEADY
@given(TIMES_MS, CHANCE)
def test_a_minted_id_is_a_uuid_of_version_7(now_ms, chance):
    minted = mint_delivery_id(now_ms, chance)
    read = uuid.UUID(minted)
    assert str(read) == minted
    assert (read.version, read.variant) == (7, uuid.RFC_4122)
    assert parse_delivery_id(minted) == minted


@STEADY
@given(TIMES_MS, CHANCE)
def test_a_minted_id_holds_the_time_and_74_bits_of_chance(now_ms, chance):
    number = uuid.UUID(mint_delivery_id(now_ms, chance)).int
    free = (1 << 80) - 1 & ~(0xF << 76) & ~(0x3 << 62)
    assert number >> 80 == now_ms
    assert number & free == int.from_bytes(chance, "big") & free


@STEADY
@given(st.integers(0, 2**48 - 2), CHANCE, CHANCE)
def test_minted_ids_sort_by_time(now_ms, chance, other):
    assert mint_delivery_id(now_ms, chance) < mint_delivery_id(now_ms + 1, other)


def test_the_turn_that_never_is_has_the_nil_uuid():
    assert uuid.UUID(NIL_TURN).int == 0
