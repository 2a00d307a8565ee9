"""`codexdrv supervise --once`: dispatch what waits, then leave."""

import pytest

from codexdrv.demo.script import Hold
from tests.acceptance.kit import Rig, Said
from tests.acceptance.machine import Machine
from tests.acceptance.scenes import BUSY, FIRST, agreed, held_turn, used_thread


def test_what_waits_is_delivered_in_order_and_that_was_all(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread, other = used_thread(rig, truth), used_thread(rig, truth)
    machine.deliver("m1", thread, "one")
    # A steer of a turn's last milliseconds is stored, and no model is asked (WIRE-FACTS).
    machine.deliver("m2", thread, "two", "--when-busy", "wait")
    machine.deliver("m3", other, "three")
    done = machine.run("supervise", "--once")
    assert done.code == 0, done.err
    assert "LEFT" not in done.err
    assert all(machine.standing(name).stored for name in ("m1", "m2", "m3"))
    assert agreed(rig, thread) == [FIRST, Said("m1", "one"), Said("m2", "two")]
    assert agreed(rig, other) == [FIRST, Said("m3", "three")]


@pytest.mark.one_version
def test_with_nothing_to_do_it_leaves_at_once(rig: Rig, machine: Machine):
    done = machine.run("supervise", "--once")
    assert (done.code, done.out) == (0, "")


@pytest.mark.one_version
def test_what_is_held_up_is_left_and_shown_with_its_reason(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread, other = used_thread(rig, truth), used_thread(rig, truth)
    held_turn(rig, truth, thread)
    machine.deliver("m1", thread, "later", "--when-busy", "wait")
    machine.deliver("m2", other, "now")
    done = machine.run("supervise", "--once", "--timeout", "1")
    assert done.code == 3
    (left,) = [line for line in done.err.splitlines() if line.startswith("LEFT")]
    assert left == "LEFT  m1 is queued: a turn runs and the message is to wait for its end."
    assert machine.standing("m2").stored
    # The next one finds it as it was left.
    rig.model.release(BUSY.text)
    assert machine.run("supervise", "--once").code == 0
    assert agreed(rig, thread) == [FIRST, BUSY, Said("m1", "later")]


@pytest.mark.one_version
def test_what_is_held_up_is_waited_for_as_long_as_asked(rig: Rig, machine: Machine):
    truth = rig.truth()
    thread = used_thread(rig, truth)
    held_turn(rig, truth, thread)
    machine.deliver("m1", thread, "later", "--when-busy", "wait")
    with machine.running("supervise", "--once", "--timeout", "none") as once:
        machine.wait_for_phase("m1", "queued", reason="busy")
        rig.model.release(BUSY.text)
        assert once.wait().code == 0
    assert agreed(rig, thread) == [FIRST, BUSY, Said("m1", "later")]


@pytest.mark.one_version
def test_without_a_server_it_leaves_at_once_and_says_why(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    rig.server.stop()
    machine.deliver("m1", thread, "hello")
    done = machine.run("supervise", "--once", "--timeout", "none")
    assert done.code == 3
    assert f"LEFT  m1 is queued: No server listens at {rig.socket_path}" in done.err


@pytest.mark.one_version
def test_without_a_server_and_with_nothing_to_do_all_is_well(rig: Rig, machine: Machine):
    rig.server.stop()
    assert machine.run("supervise", "--once").code == 0


@pytest.mark.one_version
def test_beside_a_resident_supervisor_it_does_nothing(rig: Rig, machine: Machine):
    machine.start()
    done = machine.run("supervise", "--once")
    assert done.code == 75
    assert "another supervisor" in done.err.lower()


@pytest.mark.parametrize("listen", ["unix", "stdio"])
def test_a_server_of_our_own_finishes_the_turns_that_it_began(
    rig: Rig, machine: Machine, listen: str
):
    thread = used_thread(rig, rig.truth())
    rig.server.stop()
    rig.model.script["work"] = Hold("done")
    machine.deliver("m1", thread, "work")
    machine.own_server(listen=listen, stop_grace_s=0)
    with machine.running("supervise", "--once", "--timeout", "10") as once:
        machine.wait_for("m1", lambda found: found.stored)
        rig.model.wait_for_prompt("work")
        rig.model.release("work")
        assert once.wait().code == 0
    assert machine.standing("m1").outcome == "completed"
    assert rig.rollout(thread) == [FIRST, Said("m1", "work")]


@pytest.mark.one_version
def test_a_timeout_without_once_is_a_usage_error(machine: Machine):
    done = machine.run("supervise", "--timeout", "5")
    assert done.code == 2
    assert "--timeout is for --once" in done.err


@pytest.mark.one_version
def test_a_server_of_another_home_is_no_server(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    machine.deliver("m1", thread, "hello")
    other = rig.root / "other"
    other.mkdir()
    text = machine.config.read_text().replace(str(rig.home), str(other))
    machine.config.write_text(text)
    done = machine.run("supervise", "--once", "--timeout", "none")
    assert done.code == 3
    assert f"serves {rig.home}, not {other}" in done.err
