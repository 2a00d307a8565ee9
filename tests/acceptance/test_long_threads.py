"""A thread may be longer than the memory of whoever serves it: it is never asked for as a whole."""

import json

import pytest

from codexdrv.demo.script import Many
from tests.acceptance.kit import Message, Rig
from tests.acceptance.machine import Machine
from tests.acceptance.proxy import Proxy
from tests.acceptance.scenes import FIRST


TURNS = 8
ITEMS = 50
"""In each turn; a page of history has as many, or two turns."""


@pytest.mark.field_report("t3code#7075")
def test_of_a_long_thread_no_more_than_the_newest_page_is_asked_for(rig: Rig, machine: Machine):
    rig.model.script["many"] = Many(ITEMS)
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)
    for _ in range(TURNS):
        truth.wait_for_turn(truth.start_turn(thread, "many"))
    truth.wait_for_turn(truth.start_turn(thread, FIRST.text, client_id=FIRST.client_id))
    whole = truth.call("thread/read", threadId=thread, includeTurns=True)
    rig.server.stop()
    rig.server.start()
    asked: list[Message] = []

    def listen(message: Message) -> Message:
        asked.append(message)
        return message

    with Proxy(rig.root / "proxy.sock", rig.socket_path, listen) as proxy:
        machine.go_through(proxy.path)
        machine.start()
        machine.deliver("m1", thread, "hello")
        machine.wait_for_outcome("m1")
        assert proxy.said_bytes < len(json.dumps(whole)) / 2
    (resume,) = [each["params"] for each in asked if each["method"] == "thread/resume"]
    assert resume == {"threadId": thread, "excludeTurns": True}
    pages = [each["params"] for each in asked if each["method"].endswith("/list")]
    assert pages
    assert all(page["limit"] <= ITEMS for page in pages)
    assert not any(each.get("params", {}).get("includeTurns") for each in asked)
