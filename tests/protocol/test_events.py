import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codexdrv.errors import MalformedMessage
from codexdrv.protocol.events import (
    READERS,
    ItemCompleted,
    ItemKind,
    ItemStarted,
    StatusChanged,
    ThreadClosed,
    ThreadMoved,
    ThreadStatus,
    TurnEnded,
    TurnStarted,
    TurnStatus,
    Unrecognized,
    UserMessage,
    Warned,
    read_status,
    read_turn_status,
    read_user_message,
    translate,
)
from codexdrv.wire.message import Notification


# The same examples every time, however slow the machine.
STEADY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
THREAD = "01a22d0b-8d92-7622-a61b-221d9b94b56e"
TURN = "01a22d0b-8dae-7691-9aa2-17daabd7247c"

# As 0.163.0 sent them; members that we do not read are cut short.
TURN_SHAPE = {"id": TURN, "rootTurnId": TURN, "items": [], "itemsView": "notLoaded", "error": None}
SAID = {
    "type": "userMessage",
    "id": "01a22d0b-8df9-7700-9901-9b770f684d68",
    "clientId": "m1",
    "content": [{"type": "text", "text": "hello", "text_elements": []}],
}
ANSWERED = {"type": "agentMessage", "id": "m0", "text": "echo: hello", "phase": None}
COMPACTED = {"type": "contextCompaction", "id": "01a22d0b-90a3-75b2-9311-b7c0a8dea0f0"}
REVIEWED = {"type": "enteredReviewMode", "id": "01a22d0b-90e7-7f03-9821-496f0d89d3ea", "review": ""}


def item(shape):
    return {"item": shape, "threadId": THREAD, "turnId": TURN, "completedAtMs": 1}


def status(word, **more):
    return {"threadId": THREAD, "status": {"type": word, **more}}


def failure(*, will_retry):
    error = {"message": "Reconnecting... 1/5", "codexErrorInfo": None}
    return {"error": error, "willRetry": will_retry, "threadId": THREAD, "turnId": TURN}


KNOWN = [
    (
        "thread/started",
        {"thread": {"id": THREAD, "status": {"type": "idle"}, "turns": []}},
        StatusChanged(THREAD, ThreadStatus.IDLE, waiting=False),
    ),
    (
        "thread/started",
        {"thread": {"id": THREAD, **status("active", activeFlags=["waitingOnApproval"])}},
        StatusChanged(THREAD, ThreadStatus.ACTIVE, waiting=True),
    ),
    (
        "thread/status/changed",
        status("active", activeFlags=[]),
        StatusChanged(THREAD, ThreadStatus.ACTIVE, waiting=False),
    ),
    (
        "thread/status/changed",
        status("active", activeFlags=["waitingOnApproval"]),
        StatusChanged(THREAD, ThreadStatus.ACTIVE, waiting=True),
    ),
    (
        "thread/status/changed",
        status("active", activeFlags=["thinking", "waitingOnUserInput"]),
        StatusChanged(THREAD, ThreadStatus.ACTIVE, waiting=True),
    ),
    (
        "thread/status/changed",
        status("idle"),
        StatusChanged(THREAD, ThreadStatus.IDLE, waiting=False),
    ),
    (
        "thread/status/changed",
        status("systemError"),
        StatusChanged(THREAD, ThreadStatus.SYSTEM_ERROR, waiting=False),
    ),
    (
        "thread/status/changed",
        status("notLoaded"),
        StatusChanged(THREAD, ThreadStatus.NOT_LOADED, waiting=False),
    ),
    ("thread/closed", {"threadId": THREAD}, ThreadClosed(THREAD)),
    ("thread/archived", {"threadId": THREAD}, ThreadMoved(THREAD)),
    ("thread/unarchived", {"threadId": THREAD}, ThreadMoved(THREAD)),
    ("thread/deleted", {"threadId": THREAD}, ThreadMoved(THREAD)),
    ("thread/reverted", {"threadId": THREAD}, ThreadMoved(THREAD)),
    (
        "turn/started",
        {"threadId": THREAD, "turn": TURN_SHAPE | {"status": "inProgress"}},
        TurnStarted(THREAD, TURN),
    ),
    *(
        (
            "turn/completed",
            {"threadId": THREAD, "turn": TURN_SHAPE | {"status": word}},
            TurnEnded(THREAD, TURN, ended),
        )
        for word, ended in [
            ("completed", TurnStatus.COMPLETED),
            ("failed", TurnStatus.FAILED),
            ("interrupted", TurnStatus.INTERRUPTED),
        ]
    ),
    ("item/started", item(SAID), ItemStarted(THREAD, TURN, ItemKind.USER_MESSAGE)),
    ("item/started", item(ANSWERED), ItemStarted(THREAD, TURN, ItemKind.AGENT_MESSAGE)),
    ("item/started", item(COMPACTED), ItemStarted(THREAD, TURN, ItemKind.CONTEXT_COMPACTION)),
    ("item/started", item(REVIEWED), ItemStarted(THREAD, TURN, ItemKind.ENTERED_REVIEW)),
    (
        "item/completed",
        item(SAID),
        ItemCompleted(THREAD, TURN, ItemKind.USER_MESSAGE, "hello", "m1"),
    ),
    (
        "item/completed",
        item(SAID | {"clientId": None}),
        ItemCompleted(THREAD, TURN, ItemKind.USER_MESSAGE, "hello", None),
    ),
    (
        "item/completed",
        item(ANSWERED),
        ItemCompleted(THREAD, TURN, ItemKind.AGENT_MESSAGE, "echo: hello", None),
    ),
    (
        "item/completed",
        item(COMPACTED),
        ItemCompleted(THREAD, TURN, ItemKind.CONTEXT_COMPACTION, "", None),
    ),
    (
        "item/completed",
        item({"type": "exitedReviewMode", "id": "x", "review": "fine"}),
        ItemCompleted(THREAD, TURN, ItemKind.EXITED_REVIEW, "", None),
    ),
    ("error", failure(will_retry=False), TurnEnded(THREAD, TURN, TurnStatus.FAILED)),
    ("warning", {"threadId": THREAD, "message": "Heads up"}, Warned(THREAD, "Heads up")),
    ("warning", {"threadId": None, "message": "Heads up"}, Warned(None, "Heads up")),
]

# Where it must have what: method, good params, the path in them, and whether it is a word.
TEXT, OBJECT, LIST = ("text", "object", "list")
MUST_HAVE = [
    ("thread/started", KNOWN[0][1], ("thread",), OBJECT),
    ("thread/started", KNOWN[0][1], ("thread", "id"), TEXT),
    ("thread/status/changed", status("idle"), ("threadId",), TEXT),
    ("thread/closed", {"threadId": THREAD}, ("threadId",), TEXT),
    ("thread/archived", {"threadId": THREAD}, ("threadId",), TEXT),
    ("thread/unarchived", {"threadId": THREAD}, ("threadId",), TEXT),
    ("thread/deleted", {"threadId": THREAD}, ("threadId",), TEXT),
    ("thread/reverted", {"threadId": THREAD}, ("threadId",), TEXT),
    *(
        (method, {"threadId": THREAD, "turn": TURN_SHAPE}, path, want)
        for method in ("turn/started", "turn/completed")
        for path, want in [(("threadId",), TEXT), (("turn",), OBJECT), (("turn", "id"), TEXT)]
    ),
    *(
        (method, item(SAID), path, want)
        for method in ("item/started", "item/completed")
        for path, want in [(("threadId",), TEXT), (("turnId",), TEXT), (("item",), OBJECT)]
    ),
    ("item/completed", item(SAID), ("item", "content"), LIST),
    ("error", failure(will_retry=False), ("threadId",), TEXT),
]
MISSING = object()
WRONG = {
    TEXT: [MISSING, None, 7, True, [THREAD], {"id": THREAD}],
    OBJECT: [MISSING, None, 7, "text", [TURN_SHAPE]],
    LIST: [MISSING, None, 7, "text", {"type": "text", "text": "hello"}],
}


def spoiled(params, path, value):
    params = copy.deepcopy(params)
    *above, last = path
    holder = params
    for name in above:
        holder = holder[name]
    if value is MISSING:
        del holder[last]
    else:
        holder[last] = value
    return params


def event_of(method, params):
    return translate(Notification(method, params))


@pytest.mark.parametrize(("method", "params", "event"), KNOWN)
def test_each_known_notification_has_its_event(method, params, event):
    found = event_of(method, params)
    # Tuples of two types are equal when their fields are.
    assert type(found) is type(event)
    assert found == event


def test_each_reader_is_tried():
    assert {method for method, _, _ in KNOWN} == READERS.keys()


@pytest.mark.parametrize(
    ("method", "params", "path", "value"),
    [
        pytest.param(method, params, path, value, id=f"{method} {'.'.join(path)} {number}")
        for method, params, path, want in MUST_HAVE
        for number, value in enumerate(WRONG[want])
    ],
)
def test_a_known_notification_without_what_it_must_have_is_malformed(method, params, path, value):
    with pytest.raises(MalformedMessage):
        event_of(method, spoiled(params, path, value))


@pytest.mark.parametrize("turn", [None, 7, {"id": TURN}])
def test_an_error_that_names_its_turn_by_no_string_is_malformed(turn):
    with pytest.raises(MalformedMessage):
        event_of("error", failure(will_retry=False) | {"turnId": turn})


def test_what_must_be_there_is_asked_of_every_notification_but_the_warning():
    assert {method for method, *_ in MUST_HAVE} == READERS.keys() - {"warning"}


@pytest.mark.parametrize("params", [{}, {"message": None}, {"message": "", "threadId": 7}])
def test_a_warning_without_words_or_thread_is_a_warning_all_the_same(params):
    assert event_of("warning", params) == Warned(None, "")


@pytest.mark.parametrize(
    "method",
    [
        "account/rateLimits/updated",
        "configWarning",
        "deprecationNotice",
        "item/agentMessage/delta",
        "serverRequest/resolved",
        "thread/goal/cleared",
        "thread/tokenUsage/updated",
        "thread/started/",
        "Turn/Started",
        "codex/of/tomorrow",
        "",
    ],
)
def test_a_notification_that_nobody_knows_is_unrecognized_whatever_it_holds(method):
    for params in ({}, {"threadId": 7}, item(SAID)):
        assert event_of(method, params) == Unrecognized(method)


@pytest.mark.parametrize(("method", "params", "event"), KNOWN)
def test_members_that_nobody_knows_change_nothing(method, params, event):
    def with_more(value):
        if isinstance(value, list):
            return [with_more(part) for part in value]
        if isinstance(value, dict):
            return {name: with_more(part) for name, part in value.items()} | {"tomorrow": [{}]}
        return value

    assert event_of(method, with_more(params)) == event


@pytest.mark.parametrize(
    "word", ["commandExecution", "reasoning", "sleep", "UserMessage", "", None, 7]
)
def test_an_item_that_nobody_knows_is_another_one(word):
    shape = SAID | {"type": word}
    assert event_of("item/started", item(shape)).kind is ItemKind.OTHER
    assert event_of("item/completed", item(shape)).kind is ItemKind.OTHER
    assert event_of("item/completed", item(shape)).text == ""


@pytest.mark.parametrize("word", ["paused", "Idle", "", None, 7, [], {}])
def test_a_status_word_that_nobody_knows_is_unknown(word):
    assert event_of("thread/status/changed", status(word)).status is ThreadStatus.UNKNOWN
    turn = {"threadId": THREAD, "turn": TURN_SHAPE | {"status": word}}
    assert event_of("turn/completed", turn).status is TurnStatus.OTHER


@pytest.mark.parametrize("value", [None, "idle", 7, [], {}])
def test_a_status_that_is_no_object_is_unknown(value):
    assert read_status(value) is ThreadStatus.UNKNOWN
    assert event_of("thread/status/changed", {"threadId": THREAD, "status": value}) == (
        StatusChanged(THREAD, ThreadStatus.UNKNOWN, waiting=False)
    )


@pytest.mark.parametrize("flags", [None, 7, True, "waitingOnApproval", {"waitingOn": 1}, [None, 7]])
def test_flags_that_nobody_knows_say_that_nothing_is_waited_for(flags):
    assert not event_of("thread/status/changed", status("active", activeFlags=flags)).waiting


def test_a_turn_end_without_a_status_invents_no_success():
    params = {"threadId": THREAD, "turn": TURN_SHAPE}
    assert event_of("turn/completed", params).status is TurnStatus.OTHER


@pytest.mark.field_report("centaur#1363", "kanna#109")
@pytest.mark.parametrize("will_retry", [True, None, 0, "false"])
def test_an_error_that_will_be_retried_is_progress(will_retry):
    assert event_of("error", failure(will_retry=will_retry)) == Unrecognized("error")


def test_an_error_that_does_not_say_whether_it_is_retried_ends_nothing():
    params = failure(will_retry=False)
    del params["willRetry"]
    assert event_of("error", params) == Unrecognized("error")


def test_an_error_of_no_turn_ends_none():
    params = failure(will_retry=False)
    del params["turnId"]
    assert event_of("error", params) == Unrecognized("error")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "\r\nb\0"}], "a\r\nb\0"),
        ([{"type": "image", "url": "u"}, {"type": "text", "text": "a"}], "a"),
        ([None, 7, "b", {"text": 7}, {"type": "text", "text": "a"}], "a"),
    ],
)
def test_the_text_of_a_message_is_all_its_text_parts(content, text):
    shape = SAID | {"content": content}
    assert event_of("item/completed", item(shape)).text == text
    assert read_user_message(shape, TURN) == UserMessage(TURN, "m1", text)


@pytest.mark.parametrize("client_id", [None, 7, ["m1"]])
def test_a_client_id_that_is_no_string_is_none_of_ours(client_id):
    shape = SAID | {"clientId": client_id}
    assert event_of("item/completed", item(shape)).client_id is None
    assert read_user_message(shape, TURN).client_id is None


def test_an_empty_client_id_is_kept():
    assert event_of("item/completed", item(SAID | {"clientId": ""})).client_id == ""


def test_an_agent_message_without_text_is_empty():
    assert event_of("item/completed", item({"type": "agentMessage", "text": None})).text == ""


def test_only_a_user_message_of_history_is_one():
    assert read_user_message(ANSWERED, TURN) is None
    assert read_user_message({}, TURN) is None


@pytest.mark.parametrize("shape", [None, 7, "userMessage", [SAID]])
def test_an_item_of_history_that_is_missing_proves_no_absence(shape):
    with pytest.raises(MalformedMessage):
        read_user_message(shape, TURN)


def test_a_user_message_of_history_without_content_is_malformed():
    with pytest.raises(MalformedMessage):
        read_user_message({"type": "userMessage", "clientId": "m1"}, TURN)


@pytest.mark.parametrize("word", list(TurnStatus))
def test_each_turn_status_is_read(word):
    assert read_turn_status(str(word)) is word


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([THREAD, "idle"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
THING = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON,
        "type": JSON | st.sampled_from(list(ItemKind)),
        "status": JSON,
        "content": JSON,
        "clientId": JSON,
        "text": JSON,
        "activeFlags": JSON,
    },
)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "threadId": JSON,
        "turnId": JSON,
        "thread": THING | JSON,
        "turn": THING | JSON,
        "item": THING | JSON,
        "status": THING | JSON,
        "willRetry": JSON,
        "message": JSON,
    },
)


@settings(STEADY, max_examples=300)
@given(st.sampled_from(sorted(READERS)), PARAMS)
def test_whatever_a_known_notification_holds_it_is_an_event_or_malformed(method, params):
    try:
        event = event_of(method, params)
    except MalformedMessage:
        return
    assert getattr(event, "thread", THREAD) is None or isinstance(event[0], str)
