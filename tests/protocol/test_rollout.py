import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codexdrv.protocol.events import UserMessage
from codexdrv.protocol.rollout import ModelInput, read_record_line, read_traces


# The same examples every time, however slow the machine.
STEADY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
THREAD = "01a22d0b-ec98-7c62-8fc5-0bc1aa10b0a7"
TURN = "01a22d0b-ecaa-7b81-9993-ce8d2e40bf12"


def event(payload):
    return {
        "timestamp": "2026-11-30T15:21:25.995Z",
        "ordinal": 8,
        "type": "event_msg",
        "payload": payload,
    }


def item_completed(item):
    # As 0.163.0 and 0.171.0 write it.
    return event(
        {
            "type": "item_completed",
            "thread_id": THREAD,
            "turn_id": TURN,
            "item": item,
            "started_at_ms": 1796052085995,
            "completed_at_ms": 1796052085995,
        }
    )


def paginated(**changes):
    said = {
        "type": "UserMessage",
        "id": "01a22d0b-ecea-7e40-81f4-2df3c8d3cbc1",
        "client_id": "m1",
        "content": [{"type": "text", "text": "hello", "text_elements": []}],
    }
    return item_completed(said | changes)


def legacy(**changes):
    said = {"type": "user_message", "client_id": "m1", "message": "hello", "images": []}
    return event(said | changes)


def without(row, *path):
    row = json.loads(json.dumps(row))
    holder = row
    for name in path[:-1]:
        holder = holder[name]
    del holder[path[-1]]
    return row


RESPONSE_ITEM = {
    "timestamp": "2026-11-30T15:21:25.994Z",
    "ordinal": 7,
    "type": "response_item",
    "payload": {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "hello"}],
        "internal_chat_message_metadata_passthrough": {"turn_id": TURN},
        "client_id": "m1",
    },
}
AGENT_ITEM = item_completed(
    {"type": "AgentMessage", "id": "m0", "content": [{"type": "Text", "text": "client_id"}]}
)
COMPACTED = {
    "timestamp": "2026-11-30T15:21:27.000Z",
    "type": "compacted",
    "payload": {"message": "", "replacement_history": [paginated(), legacy()]},
}


def read(row):
    return read_record_line(json.dumps(row).encode())


def test_a_paginated_thread_records_turn_id_and_text():
    assert read(paginated()) == UserMessage(TURN, "m1", "hello")


def test_a_legacy_thread_records_id_and_text_but_no_turn():
    assert read(legacy()) == UserMessage("", "m1", "hello")


def test_a_turn_that_a_legacy_thread_names_is_read():
    assert read(legacy(turn_id=TURN)) == UserMessage(TURN, "m1", "hello")


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_end_of_the_line_does_not_matter(end):
    line = json.dumps(paginated()).encode() + end
    assert read_record_line(line) == UserMessage(TURN, "m1", "hello")


@pytest.mark.parametrize("row", [paginated(), legacy()], ids=["paginated", "legacy"])
def test_a_line_that_was_cut_anywhere_is_no_evidence(row):
    line = json.dumps(row).encode()
    assert {read_record_line(line[:length]) for length in range(len(line))} == {None}


@STEADY
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_equal(text):
    parts = [{"type": "text", "text": text[:3]}, {"type": "text", "text": text[3:]}]
    assert read(paginated(content=parts)) == UserMessage(TURN, "m1", text)
    assert read(legacy(message=text)) == UserMessage("", "m1", text)


def test_parts_that_are_no_text_are_left_out():
    parts = [{"type": "image", "url": "u"}, None, {"text": 7}, {"type": "text", "text": "hello"}]
    assert read(paginated(content=parts)) == UserMessage(TURN, "m1", "hello")


def test_a_turn_that_is_not_named_is_empty():
    assert read(without(paginated(), "payload", "turn_id")) == UserMessage("", "m1", "hello")


@pytest.mark.parametrize(
    "row",
    [
        RESPONSE_ITEM,
        AGENT_ITEM,
        COMPACTED,
        paginated() | {"type": "response_item"},
        paginated() | {"type": "compacted"},
        paginated() | {"payload": None},
        paginated() | {"payload": [{"client_id": "m1"}]},
        without(paginated(), "type"),
        without(paginated(), "payload", "item"),
        without(paginated(), "payload", "item", "content"),
        item_completed("client_id"),
        paginated(type="userMessage"),
        paginated(content="hello"),
        legacy(type="agent_message"),
        without(legacy(), "payload", "message"),
        legacy(message=["hello"]),
        [paginated()],
        "client_id",
        {"client_id": "m1"},
    ],
)
def test_only_an_event_at_the_top_that_is_a_user_message_counts(row):
    assert read(row) is None


@pytest.mark.parametrize("client_id", [None, 7, ["m1"]])
def test_a_message_that_names_no_client_id_is_none_of_ours(client_id):
    assert read(paginated(client_id=client_id)) is None
    assert read(legacy(client_id=client_id)) is None


def test_a_message_without_a_client_id_is_none_of_ours():
    assert read(without(paginated(), "payload", "item", "client_id")) is None
    assert read(without(legacy(), "payload", "client_id")) is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"client_id",
        b"\xff client_id",
        b'{"client_id":',
        b'{"client_id":1}{"client_id":1}',
        b'\xef\xbb\xbf{"client_id":1}',
        b"client_id" * 10_000,
        b'"client_id"' + b"[" * 100_000,
    ],
)
def test_a_line_that_is_no_json_object_is_no_evidence(line):
    assert read_record_line(line) is None


@STEADY
@given(st.binary(max_size=40))
def test_no_bytes_are_an_error(noise):
    assert read_record_line(b'{"client_id":' + noise) is None
    assert read_record_line(noise) is None


def traces(*rows):
    return read_traces(b"".join(json.dumps(row).encode() for row in rows))


MODEL_INPUT = without(RESPONSE_ITEM, "payload", "client_id")
SAID = UserMessage(TURN, "m1", "hello")
SEEN = ModelInput(TURN, "hello")


def model_input(**changes):
    return MODEL_INPUT | {"payload": MODEL_INPUT["payload"] | changes}


def test_each_half_of_a_pair_is_read():
    assert traces(MODEL_INPUT) == [SEEN]
    assert traces(paginated()) == [SAID]
    assert traces(legacy()) == [UserMessage("", "m1", "hello")]


def test_a_message_of_another_client_is_read_too_with_its_id_or_without():
    assert traces(paginated(client_id="theirs")) == [UserMessage(TURN, "theirs", "hello")]
    nameless = without(paginated(), "payload", "item", "client_id")
    assert traces(nameless) == [UserMessage(TURN, None, "hello")]
    assert traces(without(legacy(), "payload", "client_id")) == [UserMessage("", None, "hello")]


def test_the_parts_of_an_input_are_joined_alike_in_both_lines_and_pictures_left_out():
    texts = [{"type": "input_text", "text": text} for text in ("hel", "", "lo")]
    picture = {"type": "input_image", "image_url": "data:"}
    assert traces(model_input(content=[picture, *texts])) == [SEEN]
    parts = [{"type": "text", "text": text} for text in ("hel", "", "lo")]
    assert traces(paginated(content=[{"type": "image", "image_url": "data:"}, *parts])) == [SAID]


@pytest.mark.parametrize("more", [None, {}, {"turn_id": None}, {"turn_id": 7}, "turn_id"])
def test_a_model_input_that_names_no_turn_has_none(more):
    row = model_input(internal_chat_message_metadata_passthrough=more)
    assert traces(row) == [ModelInput(None, "hello")]


@pytest.mark.parametrize(
    "row",
    [
        AGENT_ITEM,
        COMPACTED,
        COMPACTED | {"payload": {"replacement_history": [MODEL_INPUT, MODEL_INPUT["payload"]]}},
        MODEL_INPUT | {"type": "compacted"},
        MODEL_INPUT | {"type": "event_msg"},
        model_input(role="assistant", phase="user"),
        model_input(role="developer", author={"role": "user"}),
        model_input(type="function_call_output"),
        model_input(content="hello"),
        without(MODEL_INPUT, "payload", "content"),
        paginated() | {"payload": "UserMessage"},
        ["user"],
        "user",
    ],
)
def test_what_is_no_half_of_a_pair_leaves_no_trace(row):
    assert traces(row) == []


NEXT = legacy(client_id="m2", message="next") | {"timestamp": "2026-11-30T15:22:00.000Z"}


@pytest.mark.parametrize("row", [MODEL_INPUT, paginated()], ids=["model_input", "event"])
def test_a_line_that_was_cut_anywhere_hides_nothing_that_was_written_behind_it(row):
    text, behind = json.dumps(row, separators=(",", ":")), json.dumps(NEXT, separators=(",", ":"))
    then = [UserMessage("", "m2", "next")]
    for size in range(len(text)):
        assert read_traces(f"{text[:size]}{behind}\n".encode()) == then
    whole = read_traces(text.encode())
    assert len(whole) == 1
    for size in range(len(behind)):
        assert read_traces(f"{text}{behind[:size]}\n".encode()) == whole
    assert read_traces(f"{text}{behind}\n".encode()) == whole + then


def test_a_text_that_looks_like_a_line_is_a_text_also_in_a_line_that_was_cut():
    line = json.dumps(paginated(), separators=(",", ":"))
    text = json.dumps(legacy(message=line), separators=(",", ":"))
    for size in range(len(text)):
        assert read_traces(text[:size].encode()) == []
    assert read_traces(text.encode()) == [UserMessage("", "m1", line)]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b'"user"',
        b'"user"' + b"[" * 100_000,
        b'{"timestamp":"user"' * 100_000,
        b'"user"' + b'{"timestamp":[' * 10_000,
        b'\xff{"timestamp":"\xff","user"',
    ],
)
def test_noise_leaves_no_trace(line):
    assert read_traces(line) == []


@STEADY
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_leaves_equal_traces(text):
    parts = [{"type": "input_text", "text": text}]
    assert traces(model_input(content=parts)) == [ModelInput(TURN, text)]
    # As the servers write it, and glued to what came before.
    row = json.dumps(legacy(message=text), ensure_ascii=False, separators=(",", ":"))
    assert read_traces(f'{{"timestamp":"2027{row}'.encode()) == [UserMessage("", "m1", text)]
