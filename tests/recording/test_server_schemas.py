"""What we send and need exists in each version's own schema, or stands in a table of exceptions."""

import json

import pytest
from jsonschema import Draft7Validator

from codexdrv.protocol.events import READERS, ItemKind, ThreadStatus, TurnStatus
from codexdrv.protocol.methods import OPT_OUT
from tests.acceptance.binaries import VERSIONS
from tests.recording.record import RECORDINGS, SCHEMAS, load_schemas
from tests.recording.server_schemas import PROSE, without_prose
from tests.recording.used import build_calls, find_needed, find_used, sent_members


CALLS = build_calls()

OLD = {"0.144.5"}
ALL = set(VERSIONS)
MISSING = {
    # A row is the item itself, and the method is "not supported yet" for every thread anyway.
    ("thread/items/list", "data[].item"): OLD,
    ("thread/items/list", "data[].item.clientId"): OLD,
    ("thread/items/list", "data[].item.content"): OLD,
    ("thread/items/list", "data[].item.content[].text"): OLD,
    ("thread/items/list", "data[].item.type"): OLD,
    ("thread/items/list", "data[].turnId"): OLD,
    # It has `thread/rollback`, which tells nobody.
    ("thread/reverted", ""): OLD,
    ("thread/reverted", "threadId"): OLD,
    # One reader for `turn/start`, which answers a turn, and `turn/steer`, which answers its id.
    ("turn/steer", "turn"): ALL,
}
"""(method, member) → the versions without; a member "" is the method itself."""

OPTIONAL_ELSEWHERE = {
    # A user message always has it; other items with a member of this name need not.
    ("item/completed", "item.content"),
}
"""What a reader insists on only where it is promised."""

JSON_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    dict: "object",
    list: "array",
    type(None): "null",
}
OURS_ALONE = {ThreadStatus.UNKNOWN, TurnStatus.OTHER, ItemKind.OTHER}
"""Our word for a word that we do not know."""


@pytest.fixture(scope="module")
def used():
    return find_used(RECORDINGS)


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture
def requests(version):
    return load_schemas(version).requests


@pytest.fixture
def notifications(version):
    return load_schemas(version).notifications


def members_of_requests(requests):
    return {
        (method, path)
        for method, entry in requests.items()
        for path in ("", *entry["params"], *entry["result"])
    }


def members_of_news(notifications):
    read = notifications["read"]
    return {(method, path) for method, entry in read.items() for path in ("", *entry)}


def test_what_we_send_and_read_exists(version, requests, notifications, used):
    wanted = {(call.method, each.path) for call in CALLS for each in sent_members(call)}
    wanted |= {(call.method, "") for call in CALLS} | {(method, "") for method in READERS}
    wanted |= {(method, path) for read in used for method in read for path in read[method]}
    there = members_of_requests(requests) | members_of_news(notifications)
    assert wanted - there == {each for each, without in MISSING.items() if version in without}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.method)
def test_a_call_names_what_is_required_with_values_of_the_type(requests, call):
    params = requests[call.method]["params"]
    required = {path for path, each in params.items() if each["required"] and "." not in path}
    assert required <= call.params.keys()
    for path, value in sent_members(call):
        assert JSON_TYPES[type(value)] in params[path]["type"].split("|"), path
        if isinstance(value, str):
            assert value in params[path].get("enum", [value]), path


def test_what_we_cannot_do_without_is_promised(notifications):
    read = notifications["read"]
    needed = {(method, path) for method, paths in find_needed(RECORDINGS).items() for path in paths}
    optional = {
        (method, path)
        for method, path in needed
        if method in read and not read[method][path]["required"]
    }
    assert optional == OPTIONAL_ELSEWHERE


def test_each_news_that_we_opt_out_of_exists(notifications):
    assert notifications["opt_out"] == list(OPT_OUT)


@pytest.mark.parametrize(
    ("words", "method", "path"),
    [
        (ThreadStatus, "thread/status/changed", "status.type"),
        (TurnStatus, "turn/completed", "turn.status"),
        (ItemKind, "item/completed", "item.type"),
    ],
)
def test_the_words_that_decide_are_the_servers(notifications, words, method, path):
    known = notifications["read"][method][path]["enum"]
    assert set(words) - OURS_ALONE <= set(known)


def test_an_open_question_has_a_flag_that_we_recognise(notifications):
    flags = notifications["read"]["thread/status/changed"]["status.activeFlags"]["enum"]
    assert flags
    assert all(flag.startswith("waitingOn") for flag in flags)


@pytest.fixture
def questions(version):
    return json.loads((SCHEMAS / version / "questions.json").read_text("utf-8"))


def test_the_result_of_each_question_has_a_schema_that_stands_alone(questions):
    assert questions
    for schema in questions.values():
        assert schema["$schema"] == Draft7Validator.META_SCHEMA["$schema"].rstrip()
        Draft7Validator.check_schema(schema)
        defined = {f"#/definitions/{name}" for name in schema.get("definitions", ())}
        assert {value for key, value in members(schema) if key == "$ref"} == defined


def test_each_question_wants_a_result_with_members(questions):
    # Else a schema that was cut too short would let any answer pass.
    for schema in questions.values():
        assert not Draft7Validator(schema).is_valid({})


def test_a_schema_loses_its_prose_and_no_member_of_that_name():
    inner = {"type": "string", "title": "T"}
    schema = {
        "title": "T",
        "description": "D",
        "properties": {"title": inner, "description": {"type": "null"}},
        "definitions": {"description": {"oneOf": [inner, {"enum": ["title"]}]}},
    }
    assert without_prose(schema) == {
        "properties": {"title": {"type": "string"}, "description": {"type": "null"}},
        "definitions": {"description": {"oneOf": [{"type": "string"}, {"enum": ["title"]}]}},
    }


def test_no_prose_is_committed(questions):
    assert [
        key for key, value in members(questions) if key in PROSE and isinstance(value, str)
    ] == []


def members(value):
    """Yield every member of every object in a JSON value."""
    if isinstance(value, dict):
        yield from value.items()
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from members(each)
