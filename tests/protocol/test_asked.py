"""Where a question belongs, what may be said to it, and what settles it."""

import pytest

from codexdrv.errors import BadInput
from codexdrv.protocol.asked import (
    NAME_CHARACTERS_MAX,
    End,
    Place,
    Settled,
    can_be_named,
    check_said,
    is_settled,
    is_shown_by_item,
    place_of,
    questions_of,
    read_end,
    required_of,
    settles,
)
from codexdrv.protocol.printable import PARTS_MAX
from codexdrv.protocol.questions import POSTURES, Decision, Said
from codexdrv.wire.message import Notification, Request


PLACE = {"threadId": "t1", "turnId": "u1", "itemId": "i1"}
COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
INPUT = "item/tool/requestUserInput"
ELICITATION = "mcpServer/elicitation/request"
TOOL = "item/tool/call"


def ask(method, number=0, /, **params):
    return Request(number, method, PLACE | params)


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
        ((), "a reply to each of these, and to no other: “a”, “b”"),
        ((("a", "x"),), "to each"),
        ((("a", "x"), ("b", "y"), ("c", "z")), "no other"),
        ((("a", "z"), ("b", "y")), "one of: “x”, “y”"),
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
    with pytest.raises(BadInput, match="goes with"):
        check(decision, said, method)


def test_content_has_what_is_required():
    schema = {"required": ["name"]}
    assert required_of(ask(ELICITATION, requestedSchema=schema)) == ("name",)
    check(Decision.ACCEPT, Said(content={"name": 1}), ELICITATION, requestedSchema=schema)
    check(Decision.DECLINE, Said(), ELICITATION, requestedSchema=schema)
    check(Decision.ACCEPT, Said(), ELICITATION)
    for content in (None, {}):
        with pytest.raises(BadInput, match="wants content with: “name”"):
            check(Decision.ACCEPT, Said(content=content), ELICITATION, requestedSchema=schema)


def test_a_page_that_is_to_be_opened_wants_no_content():
    page = {"mode": "url", "url": "https://x"}
    check(Decision.ACCEPT, Said(), ELICITATION, **page)
    for content in ({}, {"name": 1}):
        with pytest.raises(BadInput, match="no content"):
            check(Decision.ACCEPT, Said(content=content), ELICITATION, **page)


@pytest.mark.parametrize(
    ("names", "can_be"),
    [
        (["a"], True),
        (["it's $(x)"], True),
        (["x" * NAME_CHARACTERS_MAX], True),
        (["x" * (NAME_CHARACTERS_MAX + 1)], False),
        # It is as long as it is shown.
        (["\x1b" * (NAME_CHARACTERS_MAX // 6 + 1)], False),
        ([f"n{number}" for number in range(PARTS_MAX)], True),
        ([f"n{number}" for number in range(PARTS_MAX + 1)], False),
    ],
)
def test_a_command_line_holds_so_many_names_and_so_long_ones(names, can_be):
    assert can_be_named(ask(INPUT, questions=[{"id": name} for name in names])) is can_be
    assert can_be_named(ask(ELICITATION, requestedSchema={"required": names})) is can_be


@pytest.mark.parametrize("name", ["", "a=b"])
def test_a_reply_goes_to_a_name_that_ends_at_its_sign(name):
    assert not can_be_named(ask(INPUT, questions=[{"id": name}]))
    assert can_be_named(ask(ELICITATION, requestedSchema={"required": [name]}))


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


# What is shown of an answer


@pytest.mark.parametrize(
    ("method", "params", "is_shown"),
    [
        (COMMAND, {}, True),
        (COMMAND, {"kind": "command"}, True),
        (COMMAND, {"kind": "writeStdin"}, False),
        (COMMAND, {"approvalId": "a1"}, False),
        (COMMAND, {"networkApprovalContext": {"host": "x", "protocol": "https"}}, False),
        (FILES, {}, True),
        (ELICITATION, {}, False),
        (INPUT, {}, False),
    ],
)
def test_a_command_or_a_change_as_a_whole_shows_how_it_was_answered(method, params, is_shown):
    assert is_shown_by_item(ask(method, **params)) is is_shown


def test_an_item_and_a_turn_say_how_they_have_ended():
    declined = {"id": "i1", "status": "declined"}
    assert read_end(Notification("item/completed", {"item": declined})) == End("i1", "declined")
    cut = {"id": "u1", "status": "interrupted"}
    assert read_end(Notification("turn/completed", {"turn": cut})) == End("u1", "interrupted")
    assert read_end(Notification("item/started", {"item": declined})) is None
    assert read_end(Notification("item/completed", {"item": {"id": "i1"}})) is None
