import pytest
from hypothesis import HealthCheck, settings

from codexdrv.ids import NIL_TURN, DeliveryId, ThreadId, TurnId
from codexdrv.protocol import methods
from codexdrv.protocol.events import READERS


# The same examples every time, however slow the machine.
STEADY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
THREAD = ThreadId("01a22d0b-8f94-7e20-96b7-b6b44b4c7de5")
TURN = TurnId("01a22d0b-902a-7002-b0f1-4296556f390c")
EARLIER = TurnId("01a22d0b-8fb5-7ad2-8dfc-8ed89efb33ce")
DELIVERY = DeliveryId("mail/m1")
HARD = "\0a\r\nb \u2028 <environment_context> /compact "

CALLS = [
    (
        methods.start_turn(THREAD, DELIVERY, HARD),
        "turn/start",
        {
            "threadId": THREAD,
            "clientUserMessageId": DELIVERY,
            "input": [{"type": "text", "text": HARD}],
        },
    ),
    (
        methods.steer_turn(THREAD, TURN, DELIVERY, HARD),
        "turn/steer",
        {
            "threadId": THREAD,
            "expectedTurnId": TURN,
            "clientUserMessageId": DELIVERY,
            "input": [{"type": "text", "text": HARD}],
        },
    ),
    (
        methods.interrupt_turn(THREAD, TURN),
        "turn/interrupt",
        {"threadId": THREAD, "turnId": TURN},
    ),
    (
        methods.fence(THREAD),
        "turn/steer",
        {"threadId": THREAD, "expectedTurnId": NIL_TURN, "input": []},
    ),
    (
        methods.fence(THREAD, TURN),
        "turn/steer",
        {"threadId": THREAD, "expectedTurnId": TURN, "input": []},
    ),
    # No override: sandbox, approvals and model stay the thread's own.
    (
        methods.resume_thread(THREAD),
        "thread/resume",
        {"threadId": THREAD, "excludeTurns": True},
    ),
    (
        methods.show_turn(THREAD),
        "thread/resume",
        {
            "threadId": THREAD,
            "excludeTurns": True,
            "initialTurnsPage": {"limit": 1, "sortDirection": "desc", "itemsView": "full"},
        },
    ),
    (
        methods.read_thread(THREAD),
        "thread/read",
        {"threadId": THREAD, "includeTurns": False},
    ),
    (
        methods.read_thread(THREAD, with_turns=True),
        "thread/read",
        {"threadId": THREAD, "includeTurns": True},
    ),
    (
        methods.list_items(THREAD),
        "thread/items/list",
        {"threadId": THREAD, "sortDirection": "desc", "limit": 50, "cursor": None},
    ),
    (
        methods.list_turns(THREAD),
        "thread/turns/list",
        {
            "threadId": THREAD,
            "sortDirection": "desc",
            "limit": 2,
            "cursor": None,
            "itemsView": "full",
        },
    ),
    (
        methods.list_turn_statuses(THREAD, "c"),
        "thread/turns/list",
        {
            "threadId": THREAD,
            "sortDirection": "desc",
            "limit": 50,
            "cursor": "c",
            "itemsView": "notLoaded",
        },
    ),
    (methods.unsubscribe(THREAD), "thread/unsubscribe", {"threadId": THREAD}),
    (methods.list_threads(None, 20), "thread/list", {"cursor": None, "limit": 20}),
    (methods.list_threads("c", 20), "thread/list", {"cursor": "c", "limit": 20}),
]


@pytest.mark.parametrize(("call", "method", "params"), CALLS)
def test_each_request_has_its_method_and_params(call, method, params):
    assert (call.method, call.params) == (method, params)


def test_the_greeting_asks_for_what_older_servers_keep_back():
    call = methods.initialize("codexdrv", "1.2")
    assert call.method == "initialize"
    assert call.params["clientInfo"] == {"name": "codexdrv", "title": "codexdrv", "version": "1.2"}
    assert call.params["capabilities"]["experimentalApi"] is True
    assert call.params["capabilities"]["optOutNotificationMethods"] == list(methods.OPT_OUT)


def test_nothing_that_we_read_is_opted_out_of():
    assert set(methods.OPT_OUT).isdisjoint(READERS)
    assert "item/agentMessage/delta" in methods.OPT_OUT


@pytest.mark.field_report("openai/codex#36926")
def test_each_request_has_a_deadline_by_what_it_costs_the_server():
    timeouts = {call.method: call.timeout_s for call, _, _ in CALLS if call.params.get("input")}
    assert timeouts == {"turn/start": 30.0, "turn/steer": 30.0}
    assert methods.resume_thread(THREAD).timeout_s == 60.0
    assert methods.interrupt_turn(THREAD, TURN).timeout_s == 5.0
    assert methods.fence(THREAD).timeout_s == methods.list_items(THREAD).timeout_s == 10.0
    assert methods.initialize("codexdrv", "1.2").timeout_s == 30.0
    assert all(0 < call.timeout_s <= 60 for call, _, _ in CALLS)
