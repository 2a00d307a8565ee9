"""Behaviour by version: each test is a row of docs/compatibility.md, its docstring the title.

The cells are what was seen; `make compatibility` records them, any other run compares.
"""

import pytest

from codexdrv.cli.message import TEXT_SCALARS_MAX
from codexdrv.demo.script import Hold
from tests.acceptance.binaries import by_version
from tests.acceptance.cells import Cell
from tests.acceptance.kit import WAIT_S, Rig
from tests.acceptance.machine import Machine
from tests.acceptance.proxy import Once
from tests.acceptance.scenes import (
    BUSY,
    COMPACT,
    REFUSES_WHILE_DRAINING,
    REVIEW,
    held_turn,
    second_server,
    used_thread,
    wait_for_steer,
)
from tests.acceptance.ways import (
    goes,
    is_answered_before_an_approval,
    meets_boundary,
    meets_refusal,
    races_with_boundary,
)


HAS_WRITER_LOCK = {"0.144.5": False, "0.163.0": True}
"""Without one two servers write one thread, and its history forks."""


def test_idle(rig: Rig, machine: Machine, cell: Cell):
    """The thread is idle."""
    thread = used_thread(rig, rig.truth())
    goes(machine, cell, thread)


def test_busy_steer(rig: Rig, machine: Machine, cell: Cell, version: str):
    """A turn runs: `steer`."""
    truth = rig.truth()
    thread = used_thread(rig, truth)
    turn = held_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "also", "--when-busy", "steer")
    wait_for_steer(rig, machine, "m1", held=BUSY.text, version=version)
    rig.model.release(BUSY.text)
    cell.ends("m1", busy=turn)


def test_busy_wait(rig: Rig, machine: Machine, cell: Cell):
    """A turn runs: `wait`."""
    truth = rig.truth()
    thread = used_thread(rig, truth)
    turn = held_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "later", "--when-busy", "wait")
    cell.holds("m1", "busy")
    rig.model.release(BUSY.text)
    cell.ends("m1", busy=turn)


def test_busy_interrupt(rig: Rig, machine: Machine, cell: Cell):
    """A turn runs: `interrupt`."""
    truth = rig.truth()
    thread = used_thread(rig, truth)
    turn = held_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "instead", "--when-busy", "interrupt")
    cell.ends("m1", busy=turn)
    cell.remark(f"that turn: {truth.wait_for_turn(turn)['status']}")


@pytest.mark.field_report("openai/codex#36866", "t3code#5795")
def test_burst_of_two(rig: Rig, machine: Machine, cell: Cell, version: str):
    """Two come at once, the thread is idle."""
    rig.model.script["one"] = Hold("free")
    thread = used_thread(rig, rig.truth())
    machine.deliver("m1", thread, "one")
    machine.deliver("m2", thread, "two")
    machine.start()
    wait_for_steer(rig, machine, "m2", held="one", version=version)
    rig.model.release("one")
    cell.ends("m1")
    cell.ends("m2")
    turns = {machine.standing(delivery).turn for delivery in ("m1", "m2")}
    cell.remark("in one turn" if len(turns) == 1 else "in a turn each")


def test_during_compaction(rig: Rig, machine: Machine, cell: Cell):
    """The thread is being compacted."""
    meets_boundary(rig, machine, cell, COMPACT)


def test_during_review(rig: Rig, machine: Machine, cell: Cell):
    """A review runs."""
    meets_boundary(rig, machine, cell, REVIEW)


@pytest.mark.field_report("hapi#1038")
def test_race_with_compaction(rig: Rig, machine: Machine, cell: Cell, version: str):
    """A compaction begins between our question and our `turn/start` (made so by a proxy)."""
    races_with_boundary(rig, machine, cell, boundary=COMPACT, version=version)


def test_race_with_review(rig: Rig, machine: Machine, cell: Cell, version: str):
    """A review begins between our question and our `turn/start` (made so by a proxy)."""
    races_with_boundary(rig, machine, cell, boundary=REVIEW, version=version)


def test_draining(rig: Rig, machine: Machine, cell: Cell, version: str):
    """The server got SIGTERM and finishes a turn; then it is started again."""
    truth = rig.truth()
    thread = used_thread(rig, truth)
    turn = held_turn(rig, truth, thread)
    machine.start()
    rig.server.terminate()
    machine.deliver("m1", thread, "also")
    if by_version(REFUSES_WHILE_DRAINING, version):
        cell.holds("m1", "draining")
    else:
        cell.is_answered("m1")
    rig.model.release(BUSY.text)
    assert rig.server.wait(WAIT_S) == 0
    rig.server.start()
    cell.ends("m1", busy=turn)


def test_approval_pending(rig: Rig, machine: Machine, cell: Cell):
    """A turn waits for an approval, which is then given."""
    truth, request = is_answered_before_an_approval(rig, machine, cell)
    truth.answer(request, {"decision": "accept"})
    cell.ends("m1", busy=request["params"]["turnId"])


@pytest.mark.field_report("openai/codex#40805", "octos#2049")
def test_interrupted_steer(rig: Rig, machine: Machine, cell: Cell):
    """A steer is answered, and the turn interrupted before it takes it."""
    truth, request = is_answered_before_an_approval(rig, machine, cell)
    place = {key: request["params"][key] for key in ("threadId", "turnId")}
    truth.call("turn/interrupt", **place)
    cell.ends("m1")


def test_killed(rig: Rig, machine: Machine, cell: Cell):
    """A steer is answered, and the server killed before it is in the thread."""
    is_answered_before_an_approval(rig, machine, cell)
    rig.server.kill()
    rig.server.start()
    cell.ends("m1")


@pytest.mark.field_report("codex-a2a#238")
def test_unloaded(rig: Rig, machine: Machine, cell: Cell):
    """The server was restarted, and has not loaded the thread."""
    thread = used_thread(rig, rig.truth())
    rig.server.stop()
    rig.server.start()
    assert rig.truth().loaded_threads() == []
    goes(machine, cell, thread)


def test_never_used(rig: Rig, machine: Machine, cell: Cell):
    """The thread never had a turn."""
    thread = rig.truth().start_thread(rig.cwd)
    goes(machine, cell, thread)


def test_never_used_before_a_restart(rig: Rig, machine: Machine, cell: Cell):
    """The thread never had a turn, and the server was restarted."""
    thread = rig.truth().start_thread(rig.cwd)
    rig.server.stop()
    rig.server.start()
    goes(machine, cell, thread)


def test_too_large(rig: Rig, machine: Machine, cell: Cell):
    """The text is over the server's limit (put into the journal past `deliver`, which refuses)."""
    thread = used_thread(rig, rig.truth())
    machine.start()
    machine.admit("m1", thread, "x" * (TEXT_SCALARS_MAX + 1))
    cell.ends("m1")


@pytest.mark.field_report("ccteam#189", "agmsg#906", "agmsg#1236")
def test_two_servers(rig: Rig, machine: Machine, cell: Cell, version: str):
    """A second server on the home has the thread loaded; then it ends."""
    with second_server(rig) as theirs:
        thread = used_thread(rig, theirs)
        machine.start()
        machine.deliver("m1", thread, "hello")
        if by_version(HAS_WRITER_LOCK, version):
            cell.holds("m1", "active_writer")
        else:
            machine.wait_for_outcome("m1")
    cell.ends("m1")


def test_foreign_turn(rig: Rig, machine: Machine, cell: Cell, version: str):
    """A second server on the home runs a turn in the thread; then it ends."""
    with second_server(rig) as theirs:
        thread = used_thread(rig, theirs)
        turn = held_turn(rig, theirs, thread)
        machine.start()
        machine.deliver("m1", thread, "hello")
        if by_version(HAS_WRITER_LOCK, version):
            cell.holds("m1", "active_writer")
        else:
            machine.wait_for_outcome("m1")
        rig.model.release(BUSY.text)
        theirs.wait_for_turn(turn)
    cell.ends("m1", busy=turn)


def test_foreign_and_never_used(rig: Rig, machine: Machine, cell: Cell):
    """A second server on the home has started the thread; it never had a turn."""
    with second_server(rig) as theirs:
        thread = theirs.start_thread(rig.cwd)
        goes(machine, cell, thread)


@pytest.mark.field_report("openai/codex#46878")
def test_overload(rig: Rig, machine: Machine, cell: Cell):
    """The server is overloaded (a proxy answers the first `turn/start` with -32001)."""
    answer = {"error": {"code": -32001, "message": "Server overloaded; retry later."}}
    overloaded = Once("turn/start", lambda request: {"id": request["id"], **answer})
    meets_refusal(rig, machine, cell, meddle=overloaded, reason="overloaded")


def test_unknown_method(rig: Rig, machine: Machine, cell: Cell):
    """The server does not know the request (a proxy misspells the first `turn/start`)."""
    misspelt = Once("turn/start", lambda request: request | {"method": "turn/begin"})
    meets_refusal(rig, machine, cell, meddle=misspelt, reason="not_supported")


def test_archived(rig: Rig, machine: Machine, cell: Cell):
    """The thread is archived, and later unarchived."""
    truth = rig.truth()
    thread = used_thread(rig, truth)
    truth.call("thread/archive", threadId=thread)
    machine.start()
    machine.deliver("m1", thread, "hello")
    cell.holds("m1", "archived")
    truth.call("thread/unarchive", threadId=thread)
    cell.ends("m1")


def test_deleted(rig: Rig, machine: Machine, cell: Cell):
    """The thread is deleted."""
    truth = rig.truth()
    thread = used_thread(rig, truth)
    truth.call("thread/delete", threadId=thread)
    goes(machine, cell, thread)


def test_ephemeral(rig: Rig, machine: Machine, cell: Cell):
    """The thread is ephemeral."""
    thread = rig.truth().call("thread/start", cwd=str(rig.cwd), ephemeral=True)["thread"]["id"]
    goes(machine, cell, thread)
