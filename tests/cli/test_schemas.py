"""Every object that a command prints fits its schema in `schemas/`; `threads` is in acceptance."""

import inspect
import json

import pytest
from jsonschema import Draft202012Validator, ValidationError

from codexdrv import errors
from codexdrv.cli.main import COMMANDS, named_module
from codexdrv.doctor.finding import State
from codexdrv.errors import CodexdrvError
from codexdrv.journal.dispatch import Dispatch, Mark, Peer, Step, encode_dispatch
from codexdrv.journal.journal import Writer
from codexdrv.protocol.events import ThreadStatus
from codexdrv.protocol.questions import POSTURES, Decision, posture_of
from codexdrv.rules.lifecycle import News, Outcome
from codexdrv.rules.ownership import Fact, Phase
from codexdrv.rules.routing import Action
from codexdrv.rules.thread import Subscription
from codexdrv.snapshot import FILE_NAME, FORMAT
from tests.fakes.orders import NOW_MS, THREAD, TURN, admit_in, make_order
from tests.fakes.pictures import ALONE, QUESTION, make_picture
from tests.public_shapes import PRINTED, WRITTEN, check, load_schemas


PICTURE = make_picture(questions=[QUESTION])


@pytest.fixture
def full_desk(desk):
    """One delivery in each phase."""
    with desk.journal() as journal:
        for phase in Phase:
            admit_in(journal, phase, f"m-{phase}")
    return desk


def objects(schema):
    """Every part of a schema that says something of objects with known members."""
    match schema:
        case dict():
            if "properties" in schema:
                yield schema
            for each in schema.values():
                yield from objects(each)
        case list():
            for each in schema:
                yield from objects(each)


# The schemas


@pytest.mark.parametrize("name", load_schemas())
def test_a_schema_is_one(name):
    Draft202012Validator.check_schema(load_schemas()[name])


@pytest.mark.parametrize("name", load_schemas())
def test_an_object_has_all_its_members_each_described_and_no_other(name):
    for each in objects(load_schemas()[name]):
        assert each["additionalProperties"] is False
        assert each["required"] == list(each["properties"])
        assert each["description"]
        assert all("description" in it or "$ref" in it for it in each["properties"].values())


def test_every_schema_is_of_something_that_is_printed_or_written():
    printed = {name for names in PRINTED.values() for name in names}
    assert printed | {*WRITTEN, "error"} == load_schemas().keys()


def test_every_command_that_prints_json_has_its_schema():
    sources = {each.name: inspect.getsource(named_module(each.name)) for each in COMMANDS}
    assert {name for name, source in sources.items() if '"--json"' in source} == PRINTED.keys()


def test_the_words_are_those_of_the_code():
    schemas = load_schemas()
    delivery = schemas["delivery"]["properties"]
    explained = schemas["explained-delivery"]
    fact, attempt = (explained["$defs"][name]["properties"] for name in ("fact", "dispatch"))
    thread = schemas["status-file"]["$defs"]["thread"]["properties"]
    assert delivery["phase"]["enum"] == [*Phase]
    assert delivery["outcome"]["enum"] == fact["outcome"]["enum"] == [*Outcome, None]
    assert fact["fact"]["enum"] == [*Fact]
    assert attempt["trail"]["items"]["properties"]["action"]["enum"] == [*Action]
    assert thread["status"]["enum"] == [*ThreadStatus]
    assert thread["subscription"]["enum"] == [*Subscription]
    assert schemas["thread"]["properties"]["status"]["enum"] == [*ThreadStatus]
    question = schemas["question"]["properties"]
    kinds = dict.fromkeys(posture_of(method).kind for method in [*POSTURES, "another"])
    assert question["kind"]["enum"] == [*kinds]
    assert schemas["status-file"]["properties"]["format"]["const"] == FORMAT
    config = schemas["status-file"]["$defs"]["config"]["properties"]
    assert [*config] == schemas["machine"]["properties"]["changed"]["items"]["enum"]
    assert question["decisions"]["items"]["enum"] == [*Decision]
    finding = schemas["doctor"]["$defs"]["finding"]["properties"]
    assert finding["state"]["enum"] == [*State]


def test_the_codes_are_those_of_the_error_tree():
    tree = [
        each
        for _, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, CodexdrvError)
    ]
    error = load_schemas()["error"]["properties"]["error"]["properties"]
    assert set(error["code"]["enum"]) == {each.code for each in tree}


def test_an_explained_delivery_is_a_delivery_with_facts():
    schemas = load_schemas()
    delivery, explained = (
        schemas[name]["properties"] for name in ("delivery", "explained-delivery")
    )
    assert [*explained] == [*delivery, "facts"]


@pytest.mark.parametrize("name", load_schemas())
def test_a_schema_refuses_what_is_not_its_object(name):
    for body in ({}, [], None, {"error": {"code": "bug"}}):
        with pytest.raises(ValidationError):
            check(name, body)


# What is printed


def test_deliver_prints_a_delivery(desk):
    words = ("deliver", "--target", "ops", "--source", "mail", "--id", "1", "hello", "--json")
    check("delivery", desk.run(*words).body)
    check("delivery", duplicate := desk.run(*words).body)
    assert duplicate["duplicate"]
    check("delivery", desk.run("deliver", "--thread", THREAD, "hello", "--json").body)
    waited = desk.run("deliver", *words[1:], "--wait", "surfaced", "--timeout", "0")
    assert waited.code == 3
    check("delivery", waited.body)


def test_list_prints_a_delivery_a_line(full_desk):
    bodies = full_desk.run("list", "--json").bodies
    assert {body["phase"] for body in bodies} == set(Phase)
    for body in bodies:
        check("delivery", body)


def test_cancel_and_resolve_print_the_delivery(full_desk):
    check("delivery", full_desk.run("cancel", "m-queued", "--json").body)
    words = ("resolve", "m-uncertain", "--as", "absent", "--why", "I looked", "--json")
    check("delivery", full_desk.run(*words).body)


@pytest.mark.parametrize("phase", Phase)
def test_status_prints_a_delivery_and_explains_it(full_desk, phase):
    check("delivery", full_desk.run("status", f"m-{phase}", "--json").body)
    check("explained-delivery", full_desk.run("status", f"m-{phase}", "--explain", "--json").body)


def test_status_explains_an_attempt_with_all_that_it_notes(desk):
    trail = tuple(Step(str(action), "because", NOW_MS) for action in Action)
    mark = Mark(TURN, "/home/me/rollout.jsonl", 7)
    attempt = Dispatch("steer", TURN, 1, 1, 1, Peer(4242, 99, "boot"), mark, trail)
    with desk.journal() as journal:
        order = journal.admit(make_order()).delivery.order
        writer = Writer(journal.begin_life((1, None, None), "test", now_ms=NOW_MS), 1)
        for dispatch in (
            attempt,
            attempt._replace(peer=None, steered=None, mark=Mark(None, None, 0)),
        ):
            going = News(Fact.DISPATCHED, attempt=1, dispatch=encode_dispatch(dispatch))
            journal.record(order.id, going, writer=writer, now_ms=NOW_MS)
            journal.record(order.id, News(Fact.ABSENT), writer=writer, now_ms=NOW_MS)
    body = desk.run("status", order.id, "--explain", "--json").body
    assert [fact["fact"] for fact in body["facts"]] == ["dispatched", "absent"] * 2
    check("explained-delivery", body)


@pytest.mark.parametrize("is_connected", [True, False])
def test_status_prints_the_machine(full_desk, is_connected):
    check("machine", full_desk.run("status", "--json").body)
    full_desk.hang_up_bell()
    check("machine", full_desk.run("status", "--json").body)
    picture = PICTURE if is_connected else PICTURE | {"server": ALONE}
    check("status-file", picture)
    (full_desk.state / FILE_NAME).write_text(json.dumps(picture))
    body = full_desk.run("status", "--json").body
    assert body["server"]["connected"] is is_connected
    check("machine", body)


def test_status_prints_the_machine_that_has_nothing_to_do(desk):
    check("machine", desk.run("status", "--json").body)


def test_doctor_prints_what_every_check_has_found(full_desk):
    body = full_desk.run("doctor", "--json").body
    check("doctor", body)
    names = load_schemas()["doctor"]["$defs"]["finding"]["properties"]["name"]["enum"]
    assert list(dict.fromkeys(each["name"] for each in body["checks"])) == names


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("deliver", "--thread", "nonsense", "hello"), "bad_input"),
        (("deliver", "--target", "nobody", "hello"), "not_found"),
        (("deliver", "--thread", THREAD, "--id", "m-queued", "something else"), "conflict"),
        (("status", "m-lost"), "not_found"),
        (("threads",), "no_server"),
        (("attention",), "no_supervisor"),
        (("cancel", "m-pending"), "too_late"),
        (("resolve", "m-surfaced", "--as", "absent", "--why", "no"), "not_resolvable"),
        (("--config", "/none.toml", "list"), "configuration"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_command_that_does_nothing_prints_an_error(full_desk, words, code):
    ran = full_desk.run(*words, "--json")
    assert ran.code not in {0, 2}
    assert ran.body["error"]["code"] == code
    check("error", ran.body)
