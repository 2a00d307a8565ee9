"""A question says in one line what it asks: whole enough to decide on, safe to show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codexdrv.protocol.asked import (
    Place,
    can_be_named,
    is_shown_by_item,
    place_of,
    questions_of,
    read_end,
    required_of,
    settles,
)
from codexdrv.protocol.printable import CUT, PARTS_MAX, WHOLE_CHARACTERS
from codexdrv.protocol.questions import POSTURES, offered
from codexdrv.protocol.summaries import read_files, read_turn_files, summarize
from codexdrv.wire.message import Notification, Request


PLACE = {"threadId": "t1", "turnId": "u1", "itemId": "i1"}
COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
PERMISSIONS = "item/permissions/requestApproval"
INPUT = "item/tool/requestUserInput"
ELICITATION = "mcpServer/elicitation/request"
TOOL = "item/tool/call"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
MEMBERS = (
    *("_meta", "arguments", "command", "cwd", "fileChanges", "grantRoot", "item", "kind"),
    *("message", "mode", "networkApprovalContext", "permissions", "questions", "reason"),
    *("requestId", "requestedSchema", "threadId", "tool", "turn", "turnId", "url"),
)
any_params = st.dictionaries(st.sampled_from(MEMBERS), json_values)


def ask(method, number=0, /, **params):
    return Request(number, method, PLACE | params)


def deep(levels=2000):
    value = []
    for _ in range(levels):
        value = [value]
    return value


# What is asked


@pytest.mark.parametrize(
    ("method", "params", "said"),
    [
        (COMMAND, {"command": "touch x", "cwd": "/w"}, "run “touch x”, in “/w”"),
        (COMMAND, {"command": "rm x", "reason": "it is old"}, "run “rm x”, because “it is old”"),
        (
            COMMAND,
            {"kind": "writeStdin", "command": "yes"},
            "type into a command that runs “yes”",
        ),
        (
            COMMAND,
            {"networkApprovalContext": {"host": "example.org", "protocol": "https"}},
            "reach “example.org” by “https”",
        ),
        (
            COMMAND,
            {"command": "x", "additionalPermissions": {"network": {"enabled": True}}},
            'run “x”, with more permissions: “{"network":{"enabled":true}}”',
        ),
        (FILES, {"grantRoot": None}, "change files; it does not say which"),
        (
            FILES,
            {"grantRoot": "/etc"},
            "change files; it does not say which, and from then on anything under “/etc”",
        ),
        (
            PERMISSIONS,
            {"permissions": {"network": {"enabled": True}, "fileSystem": None}, "cwd": "/w"},
            'permissions: “{"network":{"enabled":true}}”, in “/w”',
        ),
        (
            INPUT,
            {"questions": [{"id": "a", "question": "Which?", "options": [{"label": "x"}]}]},
            "“a”: “Which?” (“x”)",
        ),
        (
            ELICITATION,
            {
                "serverName": "maker",
                "message": "Name?",
                "requestedSchema": {"properties": {"name": {}}},
            },
            "“maker” says “Name?”, wants “name”",
        ),
        (
            ELICITATION,
            {
                "serverName": "maker",
                "message": "Run?",
                "_meta": {"tool_params": {"path": "/etc"}},
            },
            '“maker” says “Run?”, with “{"path":"/etc"}”',
        ),
        (
            ELICITATION,
            {"serverName": "maker", "message": "Log in", "mode": "url", "url": "https://x"},
            "“maker” says “Log in”, open “https://x”",
        ),
        (TOOL, {"tool": "look", "arguments": {"at": 1}}, '“look” with “{"at":1}”'),
        (
            "execCommandApproval",
            {"command": ["echo", "a b"], "cwd": "/w"},
            "run “echo 'a b'”, in “/w”",
        ),
        ("applyPatchApproval", {"fileChanges": {"/w/x": {}}}, "change “/w/x”"),
        ("account/chatgptAuthTokens/refresh", {}, ""),
        ("question/of/tomorrow", {"command": "x"}, ""),
    ],
)
def test_a_question_says_what_is_asked(method, params, said):
    assert summarize(ask(method, **params)) == said


def test_the_files_of_a_change_are_those_that_its_item_named():
    item = {"id": "i1", "type": "fileChange", "changes": [{"path": "/w/x"}, {"path": "/w/y"}]}
    identity, files = read_files(Notification("item/started", {"threadId": "t1", "item": item}))
    assert (identity, summarize(ask(FILES), files)) == ("i1", "change “/w/x”, “/w/y”")
    assert read_files(Notification("item/completed", {"item": item})) is None
    assert read_files(Notification("item/started", {"item": item | {"type": "other"}})) is None


def test_the_files_of_a_change_that_say_no_path_are_counted():
    item = {"id": "i1", "type": "fileChange", "changes": [{}, {"path": deep()}, None]}
    assert read_files(Notification("item/started", {"item": item})) == ("i1", "“?”, “?”")


def test_the_files_of_a_change_are_in_the_turn_that_runs():
    change = {"id": "i1", "type": "fileChange", "changes": [{"path": "/w/x"}]}
    items = [{"id": "i0", "type": "userMessage"}, change, None, change | {"id": 7}]
    shown = {"initialTurnsPage": {"data": [{"items": items}, {"items": None}, 7]}}
    assert read_turn_files(shown) == {"i1": "“/w/x”"}


@pytest.mark.parametrize(
    "shown", [None, [], {}, {"initialTurnsPage": None}, {"initialTurnsPage": {"data": {}}}]
)
def test_an_answer_that_shows_no_turn_names_no_files(shown):
    assert read_turn_files(shown) == {}


def test_there_is_an_end_to_what_is_said():
    asked = [{"id": f"q{number}", "question": "?"} for number in range(1000)]
    assert summarize(ask(INPUT, questions=asked)).count("“?”") == PARTS_MAX


BLANKS = " " * 10_000


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (COMMAND, {"command": f"ls {BLANKS}; rm -rf ~;{BLANKS}"}),
        (COMMAND, {"command": "ls", "reason": BLANKS}),
        (COMMAND, {"command": "\x1b" * 3_500}),
        (PERMISSIONS, {"permissions": {"fileSystem": {"write": [f"/{BLANKS}", "/etc"]}}}),
        ("applyPatchApproval", {"fileChanges": {f"/{each}": {} for each in range(PARTS_MAX + 1)}}),
        (ELICITATION, {"message": "x", "_meta": {"tool_params": {"x": deep()}}}),
    ],
)
def test_what_is_left_out_is_said(method, params):
    said = summarize(ask(method, **params))
    assert CUT in said
    assert len(said) < WHOLE_CHARACTERS + 50


def test_nobody_but_us_says_that_something_is_left_out():
    assert CUT not in summarize(ask(COMMAND, command=f"ls {CUT} 3 more", reason=CUT, cwd=CUT))


@pytest.mark.parametrize("method", [*POSTURES, "question/of/tomorrow"])
def test_no_depth_breaks_it(method):
    """A model can nest arguments as deep as the server passes them on."""
    request = Request(0, method, dict.fromkeys(MEMBERS, deep()))
    assert summarize(request).isprintable()
    offered(request)
    assert place_of(request) == Place(None, None, None)
    is_shown_by_item(request)


@given(st.sampled_from([*POSTURES, "question/of/tomorrow"]), any_params)
def test_a_question_that_cannot_be_read_is_still_one(method, params):
    request = Request(0, method, params)
    said = summarize(request)
    assert said.isprintable()
    offered(request)
    place_of(request)
    questions_of(request)
    required_of(request)
    can_be_named(request)
    is_shown_by_item(request)


@given(
    st.sampled_from(["serverRequest/resolved", "turn/completed", "item/started", "thread/closed"]),
    any_params,
)
def test_news_that_cannot_be_read_settles_nothing(method, params):
    news = Notification(method, params)
    read_files(news)
    read_end(news)
    settled = settles(news)
    assert settled is None or settled.thread == params["threadId"]
