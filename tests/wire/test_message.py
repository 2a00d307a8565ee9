import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codexdrv.errors import MalformedFrame
from codexdrv.wire.message import (
    REFUSAL_MESSAGE_BYTES_MAX,
    Notification,
    Refusal,
    Request,
    Response,
    decode,
    encode,
)


# What orjson reads back as it wrote it: no lone surrogates, no integers beyond 64 bits.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
INTEGERS = st.integers(-(2**63), 2**64 - 1)
IDS = INTEGERS | TEXTS
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
PARAMS = st.dictionaries(TEXTS, JSON, max_size=4)
MESSAGES = st.one_of(
    st.builds(Request, IDS, TEXTS, PARAMS),
    st.builds(Notification, TEXTS, PARAMS),
    st.builds(Response, IDS, JSON),
    st.builds(Refusal, IDS, INTEGERS, TEXTS, JSON),
)


def wire(body):
    return json.dumps(body).encode()


def assert_same(message, expected):
    # Tuples of two types may be equal, and so are `1` and `True`.
    assert type(message) is type(expected)
    assert repr(message) == repr(expected)


def refusal_of(frame):
    with pytest.raises(MalformedFrame) as caught:
        decode(frame)
    return caught.value


@settings(deadline=None)
@given(MESSAGES)
def test_what_was_encoded_is_decoded_to_the_same(message):
    assert_same(decode(encode(message)), message)


@settings(deadline=None)
@given(MESSAGES)
def test_the_wire_has_no_jsonrpc_member_and_no_line_break(message):
    frame = encode(message)
    assert "jsonrpc" not in orjson.loads(frame)
    assert b"\n" not in frame


@pytest.mark.field_report("agmsg#299")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"id": 1, "method": "m", "params": {"a": 1}}, Request(1, "m", {"a": 1})),
        ({"id": "1", "method": "m", "params": {}}, Request("1", "m", {})),
        ({"id": "", "method": "m"}, Request("", "m", {})),
        ({"id": 0, "method": "m", "params": None}, Request(0, "m", {})),
        ({"method": "n", "params": {"b": []}}, Notification("n", {"b": []})),
        ({"method": "n"}, Notification("n", {})),
        ({"method": "n", "params": None}, Notification("n", {})),
        ({"id": 7, "result": {"c": None}}, Response(7, {"c": None})),
        ({"id": 7, "result": None}, Response(7, None)),
        ({"id": "x", "error": {"code": -32600, "message": "no"}}, Refusal("x", -32600, "no", None)),
        (
            {"id": 7, "error": {"code": 1, "message": "", "data": {"reason": "r"}}},
            Refusal(7, 1, "", {"reason": "r"}),
        ),
    ],
)
def test_each_shape_has_its_message(body, expected):
    assert_same(decode(wire(body)), expected)


@pytest.mark.parametrize(
    "body",
    [
        {"id": 1, "method": "m", "params": {}},
        {"method": "m", "params": {}},
        {"id": 1, "result": {}},
        {"id": 1, "error": {"code": 1, "message": "m"}},
    ],
)
def test_members_that_nobody_knows_are_ignored(body):
    extras = {"emittedAtMs": 5, "jsonrpc": "2.0", "trace": None}
    assert_same(decode(wire(body | extras)), decode(wire(body)))


def test_empty_params_of_a_request_are_written_and_those_of_a_notification_are_not():
    assert encode(Request(1, "thread/list", {})) == b'{"id":1,"method":"thread/list","params":{}}'
    assert encode(Notification("initialized", {})) == b'{"method":"initialized"}'


def test_a_refusal_without_data_is_written_without_data():
    assert encode(Refusal(1, -1, "no", None)) == b'{"id":1,"error":{"code":-1,"message":"no"}}'


@pytest.mark.parametrize("rest", [{"method": "m"}, {"result": 1}, {"error": {}}])
@pytest.mark.parametrize("bad_id", [True, False, None, 1.0, 1.5, [], {}, 2**64])
def test_only_integers_and_strings_are_ids(bad_id, rest):
    refusal_of(wire({"id": bad_id} | rest))


def test_a_boolean_is_no_id():
    assert "id" in refusal_of(b'{"id":true,"result":{}}').message


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": 1},
        {"params": {}},
        {"id": 1, "params": {}},
        {"result": {}},
        {"error": {"code": 1, "message": "m"}},
        {"method": None},
        {"method": 1, "id": 1},
        {"method": "m", "params": []},
        {"method": "m", "params": "text"},
        {"method": "m", "params": False},
        {"method": "m", "id": 1, "params": 0},
        {"method": "m", "id": 1, "result": {}},
        {"method": "m", "error": {"code": 1, "message": "m"}},
        {"id": 1, "result": {}, "error": {"code": 1, "message": "m"}},
        {"id": 1, "error": None},
        {"id": 1, "error": "no"},
        {"id": 1, "error": {}},
        {"id": 1, "error": {"code": 1}},
        {"id": 1, "error": {"message": "m"}},
        {"id": 1, "error": {"code": True, "message": "m"}},
        {"id": 1, "error": {"code": 1.0, "message": "m"}},
        {"id": 1, "error": {"code": 1, "message": None}},
        [],
        [{"method": "m"}],
        "text",
        1,
        None,
    ],
)
def test_an_object_that_is_no_message_is_malformed(body):
    refusal_of(wire(body))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b" ",
        b"secret",
        b'{"method":"secret"',
        b'{"method":"secret"}{}',
        b'\xef\xbb\xbf{"method":"secret"}',
        b'{"method":"secret\xff"}',
        b'{"method":"\\ud800"}',
        b'{"method":"secret","params":{"a":NaN}}',
        b'{"method":"secret","params":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}",
        b"[" * 100_000,
    ],
)
def test_bytes_that_are_no_json_are_malformed(frame):
    refusal_of(frame)


@pytest.mark.parametrize(
    "frame",
    [
        b"x" * 100_000,
        b'{"method":"' + b"x" * 100_000,
        b'["' + b"x" * 100_000 + b'"]',
        b'{"id":1.5,"result":"' + b"x" * 100_000 + b'"}',
        b'{"method":["' + b"x" * 100_000 + b'"]}',
        b'{"id":1,"error":"' + b"x" * 100_000 + b'"}',
    ],
)
def test_the_sentence_is_short_and_neither_it_nor_its_chain_holds_the_frame(frame):
    error = refusal_of(frame)
    assert len(error.message) < 200
    assert "xx" not in error.message
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize("letter", ["a", "é", "日", "🙂"])
def test_a_long_refusal_is_cut_to_whole_letters_under_the_cap(letter):
    text = "x" + letter * REFUSAL_MESSAGE_BYTES_MAX
    message = decode(wire({"id": 1, "error": {"code": 1, "message": text}})).message
    assert text.startswith(message)
    assert 0 <= REFUSAL_MESSAGE_BYTES_MAX - len(message.encode()) < len(letter.encode())


def test_a_refusal_at_the_cap_is_kept_whole():
    text = "é" * (REFUSAL_MESSAGE_BYTES_MAX // 2)
    assert decode(wire({"id": 1, "error": {"code": 1, "message": text}})).message == text


def test_what_json_cannot_hold_is_a_type_error():
    with pytest.raises(TypeError):
        encode(Request(1, "m", {"text": "\ud800"}))
