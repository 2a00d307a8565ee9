import contextlib
import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codexdrv.errors import MalformedMessage
from codexdrv.ids import DeliveryId, ThreadId, TurnId
from codexdrv.protocol import results
from codexdrv.protocol.events import ThreadStatus, TurnStatus, UserMessage
from codexdrv.protocol.results import Greeting, Page, ThreadView


# The same examples every time, however slow the machine.
STEADY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
THREAD = ThreadId("01a22d0b-8f94-7e20-96b7-b6b44b4c7de5")
TURN = TurnId("01a22d0b-902a-7002-b0f1-4296556f390c")
EARLIER = TurnId("01a22d0b-8fb5-7ad2-8dfc-8ed89efb33ce")
DELIVERY = DeliveryId("mail/m1")
HARD = "\0a\r\nb \u2028 <environment_context> /compact "

# As 0.163.0 answered; members that we do not read are cut short.
RUNNING_TURN = {
    "id": TURN,
    "rootTurnId": TURN,
    "items": [],
    "itemsView": "notLoaded",
    "status": "inProgress",
    "error": None,
}
SHAPE = {
    "id": THREAD,
    "preview": "hello",
    "ephemeral": False,
    "historyMode": "paginated",
    "status": {"type": "active", "activeFlags": []},
    "path": "/home/me/.codex/sessions/2026/11/30/rollout.jsonl",
    "cwd": "/work",
    "turns": [],
}
VIEW = ThreadView(THREAD, ThreadStatus.ACTIVE, SHAPE["path"], "/work", "hello")


def said(client_id, text):
    content = [{"type": "text", "text": text, "text_elements": []}]
    return {"type": "userMessage", "id": "x", "clientId": client_id, "content": content}


ANSWER = {"type": "agentMessage", "id": "m0", "text": "echo: hello", "phase": None}
# One turn with a steer inside, and the one before.
ITEMS = {
    "data": [
        {"turnId": TURN, "item": said("s1", "steered"), "startedAtMs": 4, "completedAtMs": 4},
        {"turnId": TURN, "item": ANSWER, "startedAtMs": 3, "completedAtMs": 3},
        {"turnId": TURN, "item": said("m2", "busy"), "startedAtMs": 2, "completedAtMs": 2},
        {"turnId": EARLIER, "item": said(None, "hello"), "startedAtMs": 1, "completedAtMs": 1},
    ],
    "nextCursor": None,
    "backwardsCursor": "{}",
}
TURNS = {
    "data": [
        RUNNING_TURN
        | {"items": [said("m2", "busy"), ANSWER, said("s1", "steered")], "itemsView": "full"},
        RUNNING_TURN | {"id": EARLIER, "items": [said(None, "hello")], "status": "completed"},
    ],
    "nextCursor": None,
}
ALL_TURNS = {"thread": SHAPE | {"turns": TURNS["data"][::-1]}, "readState": None}
PAGE = Page(
    (
        UserMessage(TURN, "s1", "steered"),
        UserMessage(TURN, "m2", "busy"),
        UserMessage(EARLIER, None, "hello"),
    ),
    TURN,
    (TURN, EARLIER),
)
GREETING = {"userAgent": "codexdrv/0.163.0 (Debian)", "codexHome": "/home/me/.codex"}

READS = [
    (results.read_greeting, GREETING, Greeting("codexdrv/0.163.0 (Debian)", "/home/me/.codex")),
    (results.read_started_turn, {"turn": RUNNING_TURN}, TURN),
    (results.read_started_turn, {"turnId": TURN}, TURN),
    (results.read_thread_view, {"thread": SHAPE, "model": "scripted"}, VIEW),
    (results.read_thread_list, {"data": [SHAPE], "nextCursor": "c"}, ([VIEW], "c")),
    (results.read_thread_list, {"data": [], "nextCursor": None}, ([], None)),
    (results.read_items, ITEMS, PAGE),
    (results.read_items, {"data": []}, Page((), None)),
    (results.read_turns, TURNS, PAGE),
    (results.read_turns, {"data": []}, Page((), None)),
    (results.read_all_turns, ALL_TURNS, PAGE),
    (results.read_all_turns, {"thread": SHAPE}, Page((), None)),
    (
        results.read_turn_statuses,
        TURNS,
        ({TURN: TurnStatus.IN_PROGRESS, EARLIER: TurnStatus.COMPLETED}, None),
    ),
]


def spoiled(result, path, value):
    result = copy.deepcopy(result)
    *above, last = path
    holder = result
    for name in above:
        holder = holder[name]
    holder[last] = value
    return result


@pytest.mark.parametrize(("read", "result", "expected"), READS)
def test_each_answer_is_read(read, result, expected):
    assert read(result) == expected


def test_items_and_turns_tell_the_same_newest_first():
    assert results.read_items(ITEMS) == results.read_turns(TURNS)
    assert results.read_turns(TURNS) == results.read_all_turns(ALL_TURNS)


@pytest.mark.parametrize(("read", "result", "expected"), READS)
def test_members_that_nobody_knows_change_nothing(read, result, expected):
    def with_more(value):
        if isinstance(value, list):
            return [with_more(part) for part in value]
        if isinstance(value, dict):
            return {name: with_more(part) for name, part in value.items()} | {"tomorrow": [{}]}
        return value

    assert read(with_more(result)) == expected


@pytest.mark.parametrize("read", dict.fromkeys(read for read, _, _ in READS))
@pytest.mark.parametrize("result", [None, True, 7, "text", [], [{}], {}])
def test_an_answer_that_is_not_the_object_it_must_be_is_malformed(read, result):
    with pytest.raises(MalformedMessage):
        read(result)


@pytest.mark.parametrize(
    ("read", "result", "path"),
    [
        (results.read_greeting, GREETING, ("userAgent",)),
        (results.read_started_turn, {"turn": RUNNING_TURN}, ("turn",)),
        (results.read_started_turn, {"turn": RUNNING_TURN}, ("turn", "id")),
        (results.read_started_turn, {"turnId": TURN}, ("turnId",)),
        (results.read_thread_view, {"thread": SHAPE}, ("thread",)),
        (results.read_thread_view, {"thread": SHAPE}, ("thread", "id")),
        (results.read_thread_list, {"data": [SHAPE]}, ("data",)),
        (results.read_thread_list, {"data": [SHAPE]}, ("data", 0)),
        (results.read_thread_list, {"data": [SHAPE]}, ("data", 0, "id")),
        (results.read_items, ITEMS, ("data",)),
        (results.read_items, ITEMS, ("data", 1)),
        (results.read_items, ITEMS, ("data", 1, "turnId")),
        (results.read_items, ITEMS, ("data", 1, "item")),
        (results.read_items, ITEMS, ("data", 0, "item", "content")),
        (results.read_turns, TURNS, ("data",)),
        (results.read_turns, TURNS, ("data", 1)),
        (results.read_turns, TURNS, ("data", 1, "id")),
        (results.read_turns, TURNS, ("data", 0, "items")),
        (results.read_turns, TURNS, ("data", 0, "items", 1)),
        (results.read_turns, TURNS, ("data", 0, "items", 2, "content")),
        (results.read_all_turns, ALL_TURNS, ("thread",)),
        (results.read_all_turns, ALL_TURNS, ("thread", "turns")),
        (results.read_all_turns, ALL_TURNS, ("thread", "turns", 0, "items", 0)),
        (results.read_turn_statuses, TURNS, ("data",)),
        (results.read_turn_statuses, TURNS, ("data", 0)),
        (results.read_turn_statuses, TURNS, ("data", 0, "id")),
    ],
)
@pytest.mark.parametrize("value", [None, True, 7])
def test_an_answer_without_what_we_need_is_malformed(read, result, path, value):
    with pytest.raises(MalformedMessage):
        read(spoiled(result, path, value))


@pytest.mark.parametrize("home", [None, 7])
def test_a_server_need_not_say_where_its_home_is(home):
    assert results.read_greeting(GREETING | {"codexHome": home}).codex_home is None


@pytest.mark.parametrize("changes", [{"path": None}, {"ephemeral": True}, {"path": 7}])
def test_a_thread_that_keeps_no_record_has_no_path(changes):
    assert results.read_thread_view({"thread": SHAPE | changes}).path is None


def test_a_thread_that_waits_for_an_answer_says_so():
    waiting = {"status": {"type": "active", "activeFlags": ["waitingOnApproval"]}}
    assert results.read_thread_view({"thread": SHAPE | waiting}).waiting
    assert not results.read_thread_view({"thread": SHAPE}).waiting


def test_a_thread_of_which_little_is_told_is_a_thread():
    view = results.read_thread_view({"thread": {"id": THREAD}})
    assert view == ThreadView(THREAD, ThreadStatus.UNKNOWN, None, "", "")


@pytest.mark.parametrize("cursor", [None, 7, {}])
def test_a_cursor_that_is_no_string_ends_the_list(cursor):
    assert results.read_thread_list({"data": [], "nextCursor": cursor}) == ([], None)


def test_a_turn_whose_status_nobody_knows_is_another_one():
    found, cursor = results.read_turn_statuses(
        {"data": [{"id": TURN, "status": "paused"}, {"id": EARLIER}], "nextCursor": "c"}
    )
    assert found == {TURN: TurnStatus.OTHER, EARLIER: TurnStatus.OTHER}
    assert cursor == "c"


MEMBERS = (
    *("data", "thread", "turns", "items", "item", "content", "turn"),
    *("id", "turnId", "type", "status", "clientId", "text", "userAgent"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(MEMBERS, inner),
        )
    ),
    max_leaves=20,
)


@settings(STEADY, max_examples=300)
@given(st.sampled_from([read for read, _, _ in READS]), JSON)
def test_whatever_an_answer_holds_it_is_read_or_malformed(read, result):
    with contextlib.suppress(MalformedMessage):
        assert read(result) is not None
