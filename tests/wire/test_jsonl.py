import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codexdrv.errors import MalformedFrame
from codexdrv.wire.framing import MESSAGE_BYTES_MAX
from codexdrv.wire.jsonl import HEAD_BYTES, JsonlFraming
from codexdrv.wire.message import Notification, decode, encode


READ_BYTES = 65_536
SMALL_CAP = 3 * READ_BYTES

TRANSCRIPT = (
    b'{"id":1,"result":{}}\n'
    b"\n"
    b'{"method":"crlf"}\r\n'
    b"\r\n"
    b" \t\n" + '{"method":"é日"}'.encode() + b"\n"
    b' {"a" :\r2}\r\n'
    b"not JSON\n"
    b"\n\n"
    b"{}\n"
)
TRANSCRIBED = [
    b'{"id":1,"result":{}}',
    b'{"method":"crlf"}',
    '{"method":"é日"}'.encode(),
    b' {"a" :\r2}',
    b"not JSON",
    b"{}",
]

DRAINED_CAP = 8
DRAINED = b'{"a":1}\r\n' + b"x" * 30 + b'\r\n{"b":2}\n'
KEPT = [b'{"a":1}', b'{"b":2}']
GAP = b"x" * (DRAINED_CAP + 1)

# No lone surrogates: they cannot be encoded.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def feed(framing, data, size=READ_BYTES):
    """Bring data in reads; return all messages."""
    messages = []
    for start in range(0, len(data), size):
        messages += framing.receive_data(data[start : start + size])
    return messages


def pieces_of(data, cuts):
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


# Lines into messages


@pytest.mark.parametrize("cut", range(len(TRANSCRIPT) + 1))
def test_a_cut_anywhere_gives_the_same_messages(cut):
    framing = JsonlFraming()
    first = framing.receive_data(TRANSCRIPT[:cut])
    assert first + framing.receive_data(TRANSCRIPT[cut:]) == TRANSCRIBED
    assert framing.take_gaps() == []
    framing.receive_eof()


def test_byte_by_byte_gives_the_same_messages():
    framing = JsonlFraming()
    assert feed(framing, TRANSCRIPT, size=1) == TRANSCRIBED
    framing.receive_eof()


def test_a_message_is_returned_with_its_line_break_and_not_before():
    framing = JsonlFraming()
    assert framing.receive_data(b"{}\r") == []
    assert framing.receive_data(b"") == []
    assert framing.receive_data(b"\n") == [b"{}"]
    assert framing.receive_data(b"") == []


def test_messages_are_bytes_whether_they_came_whole_or_in_pieces():
    framing = JsonlFraming()
    messages = framing.receive_data(b"1\n2") + framing.receive_data(b"\n3\n")
    assert messages == [b"1", b"2", b"3"]
    assert {type(message) for message in messages} == {bytes}


def test_a_message_stays_what_it_was_when_more_comes():
    framing = JsonlFraming()
    framing.receive_data(b"fir")
    [first] = framing.receive_data(b"st\n")
    framing.receive_data(b"second")
    assert first == b"first"


def test_only_one_carriage_return_belongs_to_the_line_break():
    assert JsonlFraming().receive_data(b"{}\r\r\n") == [b"{}\r"]


# The cap


@pytest.mark.parametrize("line_break", [b"\n", b"\r\n"])
@pytest.mark.parametrize("size", [SMALL_CAP - 1, SMALL_CAP, SMALL_CAP + 1])
def test_the_cap_is_the_largest_line(size, line_break):
    framing = JsonlFraming(message_bytes_max=SMALL_CAP)
    cr_bytes = len(line_break) - 1
    line = b"x" * (size - cr_bytes)
    fits = size <= SMALL_CAP
    messages = feed(framing, line + line_break + b"{}\n")
    assert messages == ([line, b"{}"] if fits else [b"{}"])
    assert len(framing.take_gaps()) == (not fits)


def test_the_real_cap_is_the_largest_line():
    framing = JsonlFraming()
    for size in (MESSAGE_BYTES_MAX - 1, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX + 1):
        messages = feed(framing, b"x" * size + b"\n{}\n")
        expected = [size, 2] if size <= MESSAGE_BYTES_MAX else [2]
        assert [len(message) for message in messages] == expected
    assert len(framing.take_gaps()) == 1


@pytest.mark.parametrize("cut", range(len(DRAINED) + 1))
def test_a_line_over_the_cap_is_dropped_wherever_it_is_cut(cut):
    framing = JsonlFraming(message_bytes_max=DRAINED_CAP)
    messages = framing.receive_data(DRAINED[:cut])
    gaps = framing.take_gaps()
    messages += framing.receive_data(DRAINED[cut:])
    assert messages == KEPT
    assert gaps + framing.take_gaps() == [GAP]
    framing.receive_eof()


def test_a_line_over_the_cap_is_dropped_byte_by_byte():
    framing = JsonlFraming(message_bytes_max=DRAINED_CAP)
    assert feed(framing, DRAINED, size=1) == KEPT
    assert len(framing.take_gaps()) == 1


def test_a_line_counts_as_a_gap_from_the_byte_that_passes_the_cap_and_once():
    framing = JsonlFraming(message_bytes_max=4)
    assert framing.receive_data(b"{}\n1234") == [b"{}"]
    assert framing.take_gaps() == []
    assert framing.receive_data(b"5") == []
    assert len(framing.take_gaps()) == 1
    assert framing.receive_data(b"6789012345") == []
    assert framing.receive_data(b"\n[]\n") == [b"[]"]
    assert framing.take_gaps() == []


def test_every_line_over_the_cap_counts_until_it_is_asked_for():
    framing = JsonlFraming(message_bytes_max=4)
    assert framing.receive_data(b"12345\n1234\n123456\n\n12345678") == [b"1234"]
    assert len(framing.take_gaps()) == 3
    assert framing.take_gaps() == []


def test_a_gap_shows_how_its_line_began_and_no_more():
    framing = JsonlFraming(message_bytes_max=SMALL_CAP)
    feed(framing, b'{"id":7,"result":' + b"x" * SMALL_CAP + b"\n", size=5)
    assert framing.take_gaps() == [b'{"id":7,"result":' + b"x" * (HEAD_BYTES - 17)]


def test_what_is_dropped_is_not_kept():
    framing = JsonlFraming(message_bytes_max=SMALL_CAP)
    feed(framing, b"x" * (3 * SMALL_CAP))
    assert framing._begun == b""


# The end


def test_an_end_between_lines_is_clean():
    framing = JsonlFraming()
    framing.receive_data(b"{}\n")
    assert not framing.is_closed
    framing.receive_eof()
    assert framing.is_closed


@pytest.mark.parametrize("data", [b"", b"\n", b"\r", b"{}\r\n \t"])
def test_an_end_behind_a_blank_is_clean(data):
    framing = JsonlFraming()
    framing.receive_data(data)
    framing.receive_eof()


@pytest.mark.parametrize("data", [b"{", b"{}", b"{}\r", b"{}\n{}", b"more than the cap"])
def test_an_end_inside_a_line_is_malformed_and_an_end(data):
    framing = JsonlFraming(message_bytes_max=4)
    framing.receive_data(data)
    with pytest.raises(MalformedFrame):
        framing.receive_eof()
    assert framing.is_closed


# Messages into lines


def test_each_message_goes_out_once_as_a_line():
    framing = JsonlFraming()
    assert framing.data_to_send() == b""
    framing.send_message(b'{"a":1}')
    framing.send_message(b'{"b":2}')
    assert framing.data_to_send() == b'{"a":1}\n{"b":2}\n'
    assert framing.data_to_send() == b""


def test_a_message_with_a_line_break_is_a_bug_and_queues_nothing():
    framing = JsonlFraming()
    with pytest.raises(AssertionError):
        framing.send_message(b"{\n}")
    assert framing.data_to_send() == b""


def test_a_ping_and_a_close_queue_nothing_and_close_nothing():
    framing = JsonlFraming()
    framing.send_ping()
    framing.send_close()
    assert framing.data_to_send() == b""
    assert not framing.is_closed
    assert framing.receive_data(b"{}\n") == [b"{}"]


# What no example shows


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=6), st.lists(st.integers(0, 10_000), max_size=8))
def test_what_one_framing_sends_the_other_receives_however_it_is_cut(texts, cuts):
    sender, receiver = JsonlFraming(), JsonlFraming()
    sent = [Notification("said", {"text": text}) for text in texts]
    for message in sent:
        sender.send_message(encode(message))
    received = []
    for piece in pieces_of(sender.data_to_send(), cuts):
        received += receiver.receive_data(piece)
    assert [decode(frame) for frame in received] == sent
    receiver.receive_eof()


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([b"x", b"xyz", b" ", b"\r", b"\n"]), max_size=40).map(b"".join),
    st.lists(st.integers(0, 10_000), max_size=8),
)
def test_any_stream_gives_what_its_lines_say(data, cuts):
    framing = JsonlFraming(message_bytes_max=5)
    messages = []
    for piece in pieces_of(data, cuts):
        messages += framing.receive_data(piece)
    *lines, rest = data.split(b"\n")
    fitting = [line.removesuffix(b"\r") for line in lines if len(line) <= 5]
    assert messages == [line for line in fitting if line.strip()]
    assert framing.take_gaps() == [line[:6] for line in [*lines, rest] if len(line) > 5]


def bytes_searched(line_bytes):
    """Bring one line in small reads; count the bytes that any method of bytes was called on."""
    framing = JsonlFraming()
    searched = 0

    def count(_frame, event, called):
        nonlocal searched
        owner = getattr(called, "__self__", None)
        if event == "c_call" and isinstance(owner, bytes | bytearray):
            searched += len(owner)

    reads = [b"x" * 64] * (line_bytes // 64) + [b"\n"]
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for data in reads:
            framing.receive_data(data)
    finally:
        sys.setprofile(before)
    return searched


def test_a_line_is_searched_once_however_many_reads_it_takes():
    once = 65_536
    # One search, and three looks at the edges of the whole line that count at its full length; a
    # search from the start at each read would count 512 times.
    assert once <= bytes_searched(once) <= 5 * once
    assert bytes_searched(4 * once) <= 4 * bytes_searched(once)
