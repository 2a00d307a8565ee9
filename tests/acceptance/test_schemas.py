"""What is printed and written beside a real server fits its schema in `schemas/`."""

import json
import time

import pytest

from codexdrv.demo.script import Hold
from codexdrv.snapshot import FILE_NAME
from tests.acceptance.kit import Rig
from tests.acceptance.machine import POLL_S, Machine
from tests.acceptance.scenes import used_thread
from tests.public_shapes import check


pytestmark = pytest.mark.one_version


def wait_until_drawn(machine: Machine, thread: str) -> None:
    """Wait for the next status file; the test's timeout ends it."""
    while thread not in json.loads((machine.state / FILE_NAME).read_text())["threads"]:
        time.sleep(POLL_S)


def test_threads_prints_a_thread_a_line(rig: Rig, machine: Machine):
    truth = rig.truth()
    threads = {used_thread(rig, truth), truth.start_thread(rig.cwd)}
    bodies = machine.run("threads", "--json").bodies
    assert {body["id"] for body in bodies} <= threads
    assert bodies
    for body in bodies:
        check("thread", body)


def test_a_busy_machine_fits_its_schemas(rig: Rig, machine: Machine):
    rig.model.script["hello"] = Hold("hi")
    thread = used_thread(rig, rig.truth())
    machine.start()
    check("delivery", machine.deliver("m1", thread, "hello", "--wait", "surfaced"))
    machine.deliver("m2", thread, "later", "--when-busy", "wait")
    machine.wait_for_phase("m2", "queued", reason="busy")
    wait_until_drawn(machine, thread)
    body = machine.run("status", "--json").body
    assert [*body["threads"]] == [thread]
    check("machine", body)
    check("status-file", json.loads((machine.state / FILE_NAME).read_text()))
    rig.model.release("hello")
    machine.wait_for_outcome("m1", "m2")
    for delivery in ("m1", "m2"):
        check("explained-delivery", machine.run("status", delivery, "--explain", "--json").body)
