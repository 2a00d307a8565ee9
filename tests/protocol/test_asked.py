"""What is asked is shown whole enough to decide on, and nothing of it can do harm to a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codexdrv.errors import BadInput
from codexdrv.protocol.asked import (
    HEAD_CHARACTERS,
    TAIL_CHARACTERS,
    Place,
    Settled,
    check_said,
    is_settled,
    place_of,
    questions_of,
    read_files,
    required_of,
    settles,
    shown,
    summarize,
)
from codexdrv.protocol.questions import POSTURES, Decision, Said, offered
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
        (COMMAND, {"command": "touch x", "cwd": "/w"}, "run: touch x, in /w"),
        (COMMAND, {"command": "rm x", "reason": "it is old"}, "run: rm x, because it is old"),
        (
            COMMAND,
            {"kind": "writeStdin", "command": "yes"},
            "type into a command that runs: yes",
        ),
        (
            COMMAND,
            {"networkApprovalContext": {"host": "example.org", "protocol": "https"}},
            "reach https://example.org",
        ),
        (
            COMMAND,
            {"command": "x", "additionalPermissions": {"network": {"enabled": True}}},
            'run: x, with more permissions: {"network":{"enabled":true}}',
        ),
        (FILES, {"grantRoot": None}, "change files; it does not say which"),
        (
            FILES,
            {"grantRoot": "/etc"},
            "change files; it does not say which, and from then on anything under /etc",
        ),
        (
            PERMISSIONS,
            {"permissions": {"network": {"enabled": True}, "fileSystem": None}, "cwd": "/w"},
            'permissions: {"network":{"enabled":true}}, in /w',
        ),
        (
            INPUT,
            {"questions": [{"id": "a", "question": "Which?", "options": [{"label": "x"}]}]},
            "a: Which? (x)",
        ),
        (
            ELICITATION,
            {
                "serverName": "maker",
                "message": "Name?",
                "requestedSchema": {"properties": {"name": {}}},
            },
            "maker: Name?, wants name",
        ),
        (
            ELICITATION,
            {
                "serverName": "maker",
                "message": "Run?",
                "_meta": {"tool_params": {"path": "/etc"}},
            },
            'maker: Run?, with {"path":"/etc"}',
        ),
        (
            ELICITATION,
            {"serverName": "maker", "message": "Log in", "mode": "url", "url": "https://x"},
            "maker: Log in, open https://x",
        ),
        (TOOL, {"tool": "look", "arguments": {"at": 1}}, 'look {"at":1}'),
        (
            "execCommandApproval",
            {"command": ["echo", "a b"], "cwd": "/w"},
            "run: echo 'a b', in /w",
        ),
        ("applyPatchApproval", {"fileChanges": {"/w/x": {}}}, "change /w/x"),
        ("account/chatgptAuthTokens/refresh", {}, ""),
        ("question/of/tomorrow", {"command": "x"}, ""),
    ],
)
def test_a_question_says_what_is_asked(method, params, said):
    assert summarize(ask(method, **params)) == said


def test_the_files_of_a_change_are_those_that_its_item_named():
    item = {"id": "i1", "type": "fileChange", "changes": [{"path": "/w/x"}, {"path": "/w/y"}]}
    identity, files = read_files(Notification("item/started", {"threadId": "t1", "item": item}))
    assert (identity, summarize(ask(FILES), files)) == ("i1", "change /w/x, /w/y")
    assert read_files(Notification("item/completed", {"item": item})) is None
    assert read_files(Notification("item/started", {"item": item | {"type": "other"}})) is None


# What a terminal gets


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ls\x1b[2K\rrm", "ls\\x1b[2K\\rrm"),
        ("a\nb", "a\\nb"),
        ("a\\nb", "a\\\\nb"),
        ("a\u202eb\u2066", "a\\u202eb\\u2066"),
        ("a\u00a0b\u200b", "a\\xa0b\\u200b"),
        ("größer 猫", "größer 猫"),
        ("\x9b0m\x00", "\\x9b0m\\x00"),
    ],
)
def test_what_does_not_print_is_written_out(text, said):
    assert shown(text) == said


def test_a_long_text_shows_its_end_too_and_how_much_is_missing():
    text = "a" * HEAD_CHARACTERS + "b" * 5 + "c" * TAIL_CHARACTERS
    assert shown(text) == f"{'a' * HEAD_CHARACTERS} [… 5 characters …] {'c' * TAIL_CHARACTERS}"
    assert shown(text[5:]) == text[5:]


def test_a_list_without_end_is_cut():
    labels = [{"label": f"l{number}"} for number in range(1000)]
    said = summarize(ask(INPUT, questions=[{"id": "a", "question": "?", "options": labels}] * 99))
    assert said.endswith("l9 | and 990 more)")


def test_what_nests_too_deep_is_not_shown():
    assert summarize(ask(TOOL, tool="look", arguments=deep())) == "look (too deep to show)"


@given(st.sampled_from([*POSTURES, "question/of/tomorrow"]), any_params)
def test_a_question_that_cannot_be_read_is_still_one(method, params):
    request = Request(0, method, params)
    said = summarize(request)
    assert said.isprintable()
    offered(request)
    place_of(request)
    questions_of(request)
    required_of(request)


@given(
    st.sampled_from(["serverRequest/resolved", "turn/completed", "item/started", "thread/closed"]),
    any_params,
)
def test_news_that_cannot_be_read_settles_nothing(method, params):
    news = Notification(method, params)
    read_files(news)
    settled = settles(news)
    assert settled is None or settled.thread == params["threadId"]


# What an operator says


def check(decision, said, method=INPUT, /, **params):
    check_said(ask(method, **params), decision, said)


QUESTIONS = [
    {"id": "a", "question": "A?", "isOther": False, "options": [{"label": "x"}, {"label": "y"}]},
    {"id": "b", "question": "B?"},
]


def test_each_question_wants_its_reply():
    assert questions_of(ask(INPUT, questions=QUESTIONS)) == ("a", "b")
    check(Decision.ACCEPT, Said((("a", "x"), ("b", "anything"))), questions=QUESTIONS)
    check(Decision.DECLINE, Said(), questions=QUESTIONS)


@pytest.mark.parametrize(
    ("replies", "problem"),
    [
        ((), "a reply to each of these, and to no other: a, b"),
        ((("a", "x"),), "to each"),
        ((("a", "x"), ("b", "y"), ("c", "z")), "no other"),
        ((("a", "z"), ("b", "y")), "one of: x, y"),
    ],
)
def test_a_reply_that_was_not_asked_for_is_refused(replies, problem):
    with pytest.raises(BadInput, match=problem):
        check(Decision.ACCEPT, Said(replies), questions=QUESTIONS)


@pytest.mark.parametrize(
    ("method", "decision", "said"),
    [
        (COMMAND, Decision.ACCEPT, Said((("a", "x"),))),
        (COMMAND, Decision.ACCEPT, Said(content={})),
        (INPUT, Decision.DECLINE, Said((("a", "x"),))),
        (ELICITATION, Decision.CANCEL, Said(content={})),
        (ELICITATION, Decision.ACCEPT, Said((("a", "x"),))),
    ],
)
def test_words_that_go_nowhere_are_refused(method, decision, said):
    with pytest.raises(BadInput, match="goes with accept"):
        check(decision, said, method)


def test_content_has_what_is_required():
    schema = {"required": ["name"]}
    assert required_of(ask(ELICITATION, requestedSchema=schema)) == ("name",)
    check(Decision.ACCEPT, Said(content={"name": 1}), ELICITATION, requestedSchema=schema)
    check(Decision.DECLINE, Said(), ELICITATION, requestedSchema=schema)
    check(Decision.ACCEPT, Said(), ELICITATION)
    for content in (None, {}):
        with pytest.raises(BadInput, match="wants content with: name"):
            check(Decision.ACCEPT, Said(content=content), ELICITATION, requestedSchema=schema)


# When it is settled


def news(method, **params):
    return settles(Notification(method, {"threadId": "t1"} | params))


def test_the_server_says_which_question_is_settled():
    settled = news("serverRequest/resolved", requestId=0)
    assert settled == Settled("t1", 0)
    assert is_settled(ask(COMMAND), settled)
    assert not is_settled(ask(COMMAND, 1), settled)
    assert not is_settled(ask(COMMAND, "0"), settled)
    assert not is_settled(ask(COMMAND, threadId="t2"), settled)


@pytest.mark.parametrize("method", POSTURES)
def test_where_the_server_says_so_nothing_else_settles(method):
    request = ask(method)
    for settled in (Settled("t1", turn="u1"), Settled("t1", item="i1")):
        assert is_settled(request, settled) is not POSTURES[method].is_resolved
    assert is_settled(request, Settled("t1"))


def test_a_tool_call_ends_with_its_item_or_its_turn():
    call = Request(0, TOOL, {"threadId": "t1", "turnId": "u1", "callId": "c1"})
    assert is_settled(call, news("item/completed", item={"id": "c1"}))
    assert is_settled(call, news("turn/completed", turn={"id": "u1"}))
    assert not is_settled(call, news("item/completed", item={"id": "c2"}))
    assert not is_settled(call, news("turn/completed", turn={"id": "u2"}))
    assert is_settled(call, news("thread/closed"))


def test_what_names_no_turn_ends_with_the_one_that_runs():
    clock = Request(0, "currentTime/read", {"threadId": "t1"})
    assert is_settled(clock, Settled("t1", turn="u9"))
    assert not is_settled(clock, Settled("t1", item="i9"))


def test_the_first_api_names_its_thread_otherwise():
    request = Request(0, "execCommandApproval", {"conversationId": "t1", "callId": "c1"})
    assert place_of(request) == Place("t1", None, "c1")
