"""The doctor on real machines: a healthy one is well, and what is wrong is found, and named."""

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from codexdrv.binary import bundled_binary
from tests.acceptance.binaries import by_version
from tests.acceptance.kit import Message, Rig
from tests.acceptance.machine import Machine, Ran
from tests.acceptance.mounts import network_disk, small_disk
from tests.acceptance.scenes import used_thread
from tests.public_shapes import check


def doctor(machine: Machine) -> tuple[Ran, dict[str, Message]]:
    """Run it; take the last finding of each check."""
    ran = machine.run("doctor", "--json")
    assert ran.err == ""
    check("doctor", ran.body)
    assert (ran.code == 0) == ran.body["healthy"]
    return ran, {each["name"]: each for each in ran.body["checks"]}


def wrong(findings: dict[str, Message]) -> list[str]:
    """Name what is wrong; all of it has a remedy."""
    bad = [each for each in findings.values() if each["state"] == "wrong"]
    assert all(each["remedy"] for each in bad)
    return [each["name"] for each in bad]


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_healthy_machine_is_well_with_and_without_a_supervisor(rig: Rig, machine: Machine):
    ran, before = doctor(machine)
    assert (ran.code, before["supervisor"]["state"]) == (0, "note")
    machine.start()
    ran, found = doctor(machine)
    assert (ran.code, wrong(found)) == (0, [])
    assert found["supervisor"]["state"] == "ok"
    version = rig.truth().server_info["userAgent"].partition("/")[2].partition(" ")[0]
    assert found["server"]["found"].startswith(f"codex {version}, pid {rig.server.pid}")
    assert found["home"]["found"] == f"{rig.home}, the one that the server serves"
    # The binary that is found is the bundled one, whichever serves.
    state = by_version({"0.144.5": "note", "0.163.0": "ok", "0.164.0": "note"}, version)
    assert found["server"]["state"] == state
    assert machine.run("doctor").out.endswith("\nall is well\n")


@pytest.mark.one_version
def test_a_server_that_was_killed_is_the_one_thing_that_is_wrong(rig: Rig, machine: Machine):
    machine.start()
    rig.server.kill()
    machine.wait_until_disconnected()
    ran, found = doctor(machine)
    assert (ran.code, wrong(found)) == (1, ["server"])
    assert f"codex app-server --listen unix://{rig.socket_path}" in found["server"]["remedy"]
    assert found["supervisor"]["state"] == "note"
    assert "without a server" in found["supervisor"]["found"]
    rig.server.start()
    assert doctor(machine)[0].code == 0


@pytest.mark.one_version
def test_a_server_that_was_stopped_is_named_and_does_not_stop_the_doctor(
    rig: Rig, machine: Machine
):
    with stopped(rig.server.pid):
        ran, found = doctor(machine)
    assert (ran.code, wrong(found)) == (1, ["server"])
    assert f"`kill -CONT {rig.server.pid}`" in found["server"]["remedy"]


@pytest.mark.one_version
def test_a_server_of_another_home_is_told_once(rig: Rig, machine: Machine):
    ours = rig.root / "ours"
    ours.mkdir(mode=0o700)
    machine.config.write_text(machine.config.read_text().replace(str(rig.home), str(ours)))
    ran, found = doctor(machine)
    assert (ran.code, wrong(found)) == (1, ["home"])
    assert found["home"]["found"] == f"The server at the socket serves {rig.home}, not {ours}."
    assert "codex_home" in found["home"]["remedy"]
    machine.start_unconnected()
    machine.wait_for_problem(found["home"]["found"])
    ran, found = doctor(machine)
    assert (wrong(found), found["supervisor"]["state"]) == (["home"], "note")


@pytest.mark.one_version
def test_deliveries_that_wait_for_nobody_are_wrong(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    machine.deliver("m1", thread, "hello")
    ran, found = doctor(machine)
    assert (ran.code, wrong(found)) == (1, ["supervisor"])
    assert "`codexdrv supervise`" in found["supervisor"]["remedy"]
    assert found["journal"]["found"].endswith("deliveries: 1 queued")
    machine.start()
    machine.wait_for_outcome("m1")
    assert doctor(machine)[0].code == 0


@pytest.mark.one_version
def test_a_server_of_our_own_is_well_and_comes_with_its_supervisor(rig: Rig, machine: Machine):
    rig.server.stop()
    machine.own_server()
    ran, found = doctor(machine)
    assert (ran.code, found["server"]["state"]) == (0, "note")
    assert found["binary"]["found"].startswith(f"codex 0.163.0, {bundled_binary()}")
    machine.start_unconnected()
    pid = machine.wait_for_server()
    ran, found = doctor(machine)
    assert (ran.code, found["server"]["found"]) == (0, f"codex 0.163.0, pid {pid}")
    assert f"up, pid {machine._running().pid}, life 1, connected" in found["supervisor"]["found"]


@pytest.mark.one_version
def test_a_server_of_our_own_over_stdio_is_left_to_its_supervisor(rig: Rig, machine: Machine):
    rig.server.stop()
    machine.own_server(listen="stdio")
    machine.start_unconnected()
    machine.wait_for_server()
    ran, found = doctor(machine)
    assert (ran.code, found["server"]["state"], found["socket"]["state"]) == (0, "note", "note")
    assert found["supervisor"]["state"] == "ok"


@pytest.mark.field_report("openai/codex#30957")
@pytest.mark.one_version
def test_a_state_on_a_network_file_system_is_wrong(rig: Rig, machine: Machine):
    with network_disk(rig.root / "remote", "fuse.sshfs") as remote:
        machine.state = remote.point / "state"
        machine.write_config()
        ran, found = doctor(machine)
    assert (ran.code, "file system" in wrong(found)) == (1, True)
    assert "(fuse.sshfs)" in found["file system"]["found"]


@pytest.mark.one_version
def test_a_disk_with_little_room_is_wrong(rig: Rig, machine: Machine):
    with small_disk(rig.root / "small", size="8m") as small:
        machine.state = small.point / "state"
        machine.write_config()
        ran, found = doctor(machine)
    assert (ran.code, wrong(found)) == (1, ["disk"])
    assert "only 8.0 MiB are free" in found["disk"]["found"]
