"""Which questions are open: each is listed once, as old as it is, until something settles it."""

import pytest
from structlog.testing import capture_logs

from codexdrv.engine.question import identify_question, question_object
from codexdrv.engine.questions import OPEN_MAX, KnownQuestions, OpenQuestions
from codexdrv.protocol.printable import PARTS_MAX
from codexdrv.protocol.questions import GIVES_UP_MS, Decision
from codexdrv.wire.message import Notification, Request
from tests.engine.kit import PEER
from tests.public_shapes import check


COMMAND = "item/commandExecution/requestApproval"
PLACE = {"threadId": "t1", "turnId": "u1", "itemId": "i1"}
NEXT_SERVER = PEER._replace(start_ticks=100)


class Clock:
    def __init__(self):
        self.now_ms = 1_000


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def known(clock):
    return KnownQuestions(now_ms=lambda: clock.now_ms)


@pytest.fixture
def questions(known):
    return OpenQuestions(known, PEER)


def request(number=0, method=COMMAND, **params):
    return Request(number, method, PLACE | {"command": "rm x"} | params)


def resolve(number, thread="t1"):
    return Notification("serverRequest/resolved", {"threadId": thread, "requestId": number})


def ids(questions):
    return [each.request.id for each in questions.all()]


def test_a_question_is_listed_with_all_that_an_operator_needs(questions):
    questions.ask(request())
    (found,) = questions.all()
    body = question_object(found)
    check("question", body)
    assert body == {
        "id": identify_question(request(), PEER),
        "method": COMMAND,
        "kind": "command",
        "thread": "t1",
        "turn": "u1",
        "since_ms": 1_000,
        "summary": "run “rm x”",
        "decisions": [*Decision],
        "questions": [],
        "required": [],
    }


NO = [Decision.DECLINE, Decision.CANCEL]


@pytest.mark.parametrize(
    ("method", "params", "decisions"),
    [
        (COMMAND, {"command": "ls " + " " * 10_000 + "; rm -rf ~;" + " " * 10_000}, NO),
        (COMMAND, {"command": "ls ✂ 3 characters more"}, [*Decision]),
        (
            "item/permissions/requestApproval",
            {"permissions": {"fileSystem": {"write": ["/x" * 9_000, "/etc"]}}},
            NO[:1],
        ),
        ("item/tool/requestUserInput", {"questions": [{"id": "x" * 999}]}, NO[:1]),
        ("mcpServer/elicitation/request", {"requestedSchema": {"required": ["x" * 999]}}, NO),
    ],
)
def test_nobody_says_yes_to_what_cannot_be_shown_whole(questions, method, params, decisions):
    questions.ask(request(method=method, **params))
    body = question_object(questions.all()[0])
    check("question", body)
    assert body["decisions"] == decisions
    assert body["questions"] == body["required"] == []


def test_a_yes_to_many_files_is_for_a_client_that_shows_them_all(questions):
    changes = [{"path": f"/w/{number}"} for number in range(PARTS_MAX + 1)]
    item = {"id": "i1", "type": "fileChange", "changes": changes}
    questions.hear(Notification("item/started", {"threadId": "t1", "item": item}))
    questions.ask(request(method="item/fileChange/requestApproval"))
    assert [*questions.all()[0].decisions] == NO


def test_the_server_settles_one_and_the_others_stay(questions):
    for number in (0, 1, "0"):
        questions.ask(request(number))
    questions.hear(resolve(0))
    assert ids(questions) == [1, "0"]
    questions.hear(resolve(0))
    questions.hear(resolve(1, thread="t2"))
    assert ids(questions) == [1, "0"]
    questions.hear(Notification("thread/closed", {"threadId": "t1"}))
    assert ids(questions) == []


def test_one_that_is_asked_again_is_the_same(questions, clock):
    questions.ask(request())
    clock.now_ms += 500
    questions.ask(request())
    assert [each.since_ms for each in questions.all()] == [1_000]


def test_on_a_new_connection_to_the_same_server_it_is_as_old_as_it_was(questions, known, clock):
    item = {"id": "i1", "type": "fileChange", "changes": [{"path": "/w/x"}]}
    questions.hear(Notification("item/started", {"threadId": "t1", "item": item}))
    asked = request(method="item/fileChange/requestApproval")
    questions.ask(asked)
    clock.now_ms += 60_000
    again = OpenQuestions(known, PEER)
    assert again.all() == []
    again.ask(asked)
    assert again.all() == questions.all()
    assert again.all()[0].since_ms == 1_000
    assert again.all()[0].summary == "change “/w/x”"


def test_another_server_s_question_is_another_one(questions, known, clock):
    questions.ask(request())
    clock.now_ms += 60_000
    again = OpenQuestions(known, NEXT_SERVER)
    again.ask(request())
    (before,), (after,) = questions.all(), again.all()
    assert after.id != before.id
    assert after.since_ms == 61_000
    assert again.find(before.id) is None


def test_a_settled_one_that_comes_again_begins_anew(questions, clock):
    questions.ask(request())
    questions.hear(resolve(0))
    clock.now_ms += 1
    questions.ask(request())
    assert [each.since_ms for each in questions.all()] == [1_001]


def test_what_the_server_stops_waiting_for_lapses(questions, clock):
    questions.ask(Request(0, "account/chatgptAuthTokens/refresh", {}))
    questions.ask(request(1))
    clock.now_ms += GIVES_UP_MS
    assert ids(questions) == [0, 1]
    clock.now_ms += 1
    assert ids(questions) == [1]


def test_the_oldest_come_first_and_there_is_an_end_to_them(questions, clock):
    questions.ask(request(7))
    clock.now_ms -= 1
    for number in range(100, 100 + OPEN_MAX):
        questions.ask(request(number))
    assert len(questions.all()) == OPEN_MAX
    assert ids(questions)[-1] == 7


def test_what_was_seen_is_forgotten_in_the_end(questions, known):
    for number in range(5 * OPEN_MAX):
        questions.ask(request(number))
        questions.forget()
    assert len(known._seen) == 2 * OPEN_MAX
    for number in range(5 * OPEN_MAX):
        item = {"id": f"i{number}", "type": "fileChange", "changes": []}
        questions.hear(Notification("item/started", {"item": item}))
    assert len(questions._files) == OPEN_MAX


def test_after_a_gap_only_what_is_asked_again_is_open(questions, clock):
    questions.ask(request(0))
    questions.ask(request(1))
    clock.now_ms += 9
    questions.forget()
    questions.ask(request(1))
    assert [(each.request.id, each.since_ms) for each in questions.all()] == [(1, 1_000)]


@pytest.mark.parametrize(
    ("server", "turn", "is_offered"),
    [
        (None, "u1", True),
        (None, None, False),
        (PEER, None, True),
    ],
)
def test_an_operator_may_answer_what_no_later_server_can_ask_alike(known, server, turn, is_offered):
    questions = OpenQuestions(known, server)
    questions.ask(request(turnId=turn))
    assert bool(questions.all()[0].decisions) is is_offered


def test_two_of_one_id_are_nobody_s(questions):
    questions.ask(request(0))
    (found,) = questions.all()
    assert questions.find(found.id) == found
    questions._open[int, 1] = found
    assert questions.find(found.id) is None


def test_each_question_is_logged_when_it_opens_and_when_it_ends_and_never_what_it_asks(clock):
    known = KnownQuestions(now_ms=lambda: clock.now_ms, is_logged=True)
    with capture_logs() as logged:
        OpenQuestions(known, PEER).ask(request())
        again = OpenQuestions(known, PEER)
        again.ask(request())
        clock.now_ms += 1_500
        again.hear(resolve(0))
    name = identify_question(request(), PEER)
    same = {"id": name, "method": COMMAND, "thread_id": "t1", "log_level": "info"}
    assert logged == [
        {"event": "question.opened"} | same,
        {
            "event": "question.closed",
            "how": "answered",
            "by": "serverRequest/resolved",
            "age_s": 1.5,
        }
        | same,
    ]


def end_item(status="declined", item="i1"):
    ended = {"id": item, "type": "commandExecution", "status": status}
    return Notification("item/completed", PLACE | {"item": ended})


def end_turn():
    return Notification("turn/completed", {"threadId": "t1", "turn": {"id": "u1"}})


@pytest.mark.parametrize("status", ["declined", "completed", "failed"])
def test_how_an_item_ends_that_was_asked_about_shows_in_the_log_what_was_decided(status):
    questions = OpenQuestions(KnownQuestions(is_logged=True), PEER)
    questions.ask(request())
    questions.hear(resolve(0))
    with capture_logs() as logged:
        questions.hear(end_item(item="i2"))
        questions.hear(end_item(status))
        questions.hear(end_item(status))
    (line,) = logged
    name = identify_question(request(), PEER)
    assert (line["event"], line["id"], line["item"]) == ("question.decided", name, status)


@pytest.mark.parametrize(
    ("news", "how"),
    [
        (end_turn(), "turn_ended"),
        (Notification("thread/closed", {"threadId": "t1"}), "thread_closed"),
    ],
)
def test_what_nobody_has_answered_is_logged_as_that(news, how):
    questions = OpenQuestions(KnownQuestions(is_logged=True), PEER)
    questions.ask(request(method="item/tool/call"))
    with capture_logs() as logged:
        questions.hear(news)
        questions.hear(end_item())
    assert [(line["event"], line["how"]) for line in logged] == [("question.closed", how)]


def test_what_an_item_does_not_show_is_not_logged_as_decided():
    # A part of a command; and what is no command at all.
    for number, asked in enumerate(({"approvalId": "a"}, {"method": "item/tool/requestUserInput"})):
        questions = OpenQuestions(KnownQuestions(is_logged=True), PEER)
        questions.ask(request(number, **asked))
        questions.hear(resolve(number))
        with capture_logs() as logged:
            questions.hear(end_item())
        assert logged == []


@pytest.mark.parametrize(("since_ms", "shown_ms"), [(500, 500), (10**15, None)])
def test_a_question_that_an_earlier_life_saw_is_as_old_as_it_was(clock, since_ms, shown_ms):
    """A clock that was set back since makes nothing younger than it is."""
    name = identify_question(request(), PEER)
    known = KnownQuestions(now_ms=lambda: clock.now_ms, asked_since={name: since_ms})
    questions = OpenQuestions(known, PEER)
    questions.ask(request())
    assert questions.all()[0].since_ms == (shown_ms or clock.now_ms)


def test_those_of_a_command_are_not_logged(questions):
    with capture_logs() as logged:
        for number in range(OPEN_MAX + 1):
            questions.ask(request(number))
        questions.hear(resolve(0))
        questions.hear(end_item())
    assert logged == []


def test_what_is_too_much_to_list_is_logged(clock):
    questions = OpenQuestions(KnownQuestions(is_logged=True), PEER)
    with capture_logs() as logged:
        for number in range(OPEN_MAX + 1):
            questions.ask(request(number))
    (passed_over,) = [line for line in logged if line["event"] == "question.not_listed"]
    assert passed_over["log_level"] == "warning"


async def test_whoever_waits_is_told_of_every_change(known):
    changes = []
    known.on_change = lambda: changes.append(1)
    questions = OpenQuestions(known, PEER)
    questions.ask(request())
    questions.ask(request())
    questions.hear(Notification("some/news", {}))
    questions.hear(resolve(0))
    assert len(changes) == 2


# The files of a change that began before anybody listened


CHANGE = "item/fileChange/requestApproval"


def test_files_that_are_learned_later_are_told_and_the_question_is_the_same(questions, clock):
    questions.ask(request(method=CHANGE))
    (before,) = questions.all()
    assert before.summary == "change files; it does not say which"
    clock.now_ms += 1_000
    questions.learn_files("t1", {"i1": "“/w/a”", "i2": "“/w/b”"})
    (after,) = questions.all()
    assert after == before._replace(summary="change “/w/a”")
    # Also on the next connection.
    assert questions._known.recall(before.id) == after


def test_files_that_were_learned_before_are_told_at_once(questions):
    questions.learn_files("t1", {"i1": "“/w/a”"})
    questions.ask(request(method=CHANGE))
    assert [each.summary for each in questions.all()] == ["change “/w/a”"]


def test_files_of_another_thread_or_item_are_not_those_of_the_question(questions):
    questions.ask(request(method=CHANGE))
    questions.learn_files("t2", {"i1": "“/w/a”"})
    questions.learn_files("t1", {"i2": "“/w/a”"})
    assert [each.summary for each in questions.all()] == ["change files; it does not say which"]


def test_more_files_than_are_shown_are_not_accepted(questions):
    questions.ask(request(method=CHANGE))
    assert Decision.ACCEPT in questions.all()[0].decisions
    questions.learn_files("t1", {"i1": "“/w/a”, ✂ and 9 more"})
    assert Decision.ACCEPT not in questions.all()[0].decisions


def test_files_are_lacking_until_each_change_has_some_or_something_else_is_asked(questions):
    # What it asks may still come.
    assert questions.lacks_files("t1")
    questions.ask(request(0))
    assert not questions.lacks_files("t1")
    assert questions.lacks_files("t2")
    questions.ask(request(1, method=CHANGE))
    assert questions.lacks_files("t1")
    questions.learn_files("t1", {"i1": "“/w/a”"})
    assert not questions.lacks_files("t1")
