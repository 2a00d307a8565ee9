"""Up for months: the configuration read anew, another codex on disk, a server that keeps dying."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from codexdrv.demo.script import Hold, RunCommand
from codexdrv.demo.server import AppServer
from codexdrv.transport.peer import identify, is_gone
from tests.acceptance.binaries import BUNDLED, find_binary
from tests.acceptance.kit import Message, Rig, Said, Truth
from tests.acceptance.machine import Machine
from tests.acceptance.scenes import FIRST, agreed, used_thread


def machine_of(machine: Machine) -> Message:
    """What `status --json` says."""
    return machine.run("status", "--json").body


def subscribed(machine: Machine) -> dict[str, list[str]]:
    """The threads whose turns reach the supervisor, and their names."""
    threads = machine_of(machine)["threads"]
    return {
        thread: state["targets"]
        for thread, state in threads.items()
        if state["subscription"] == "subscribed"
    }


def install(binary: str, place: Path) -> None:
    """Put a binary in place of another, as an upgrade does: what runs keeps its file."""
    fresh = place.with_suffix(".new")
    try:
        os.link(binary, fresh)
    except OSError:
        shutil.copy2(binary, fresh)
    os.replace(fresh, place)


@pytest.mark.one_version
def test_targets_are_added_and_removed_by_sighup_and_the_connection_stays(
    rig: Rig, machine: Machine
):
    truth = rig.truth()
    one, two = used_thread(rig, truth), used_thread(rig, truth)
    machine.write_config(ops=one)
    machine.start()
    machine.wait_until(lambda: subscribed(machine) == {one: ["ops"]}, "the target")
    machine.write_config(ops=one, dev=two, night=two)
    machine.signal(signal.SIGHUP)
    both = {one: ["ops"], two: ["dev", "night"]}
    machine.wait_until(lambda: subscribed(machine) == both, "both targets")
    machine.write_config(night=two)
    machine.signal(signal.SIGHUP)
    # What nobody names any more is left after ten minutes without work.
    left = {one: [], two: ["night"]}
    machine.wait_until(lambda: subscribed(machine) == left, "one target")
    assert machine_of(machine)["server"]["generation"] == 1
    assert machine.log.read_text().count("generation.started") == 1


@pytest.mark.one_version
def test_a_configuration_that_is_wrong_is_refused_and_the_last_one_stands(
    rig: Rig, machine: Machine
):
    thread = used_thread(rig, rig.truth())
    machine.write_config(ops=thread)
    machine.start()
    good = machine.config.read_text()
    machine.config.write_text(good + "[targets.ops2]\nthread = 'nonsense'\n")
    machine.signal(signal.SIGHUP)
    machine.wait_for_log("configuration.refused")
    machine.config.write_text(good.replace("[state]", "[limits]\nsettle_s = 3\n[state]"))
    machine.signal(signal.SIGHUP)
    machine.wait_for_log("configuration.needs_restart")
    machine.config.unlink()
    machine.signal(signal.SIGHUP)
    machine.wait_for_log("cannot be read: No such file")
    machine.config.write_text(good)
    machine.wait_until(lambda: subscribed(machine) == {thread: ["ops"]}, "the target")
    assert machine_of(machine)["server"]["generation"] == 1


@pytest.mark.one_version
def test_a_server_that_dies_again_and_again_is_given_up_with_a_code_of_its_own(
    rig: Rig, machine: Machine
):
    """FIELD-REPORTS, openclaw#60170: 6,198 restarts in 12.5 hours."""
    rig.server.stop()
    dies = rig.root / "codex"
    shutil.copy2("/bin/false", dies)
    machine.own_server(codex=str(dies), deaths_max=2)
    machine.start_unconnected()
    assert machine.wait_for_exit() == 70
    said = machine.log.read_text()
    assert "codex app-server has died 2 times within 10 minutes" in said
    assert "the last time: exit code 1" in said
    assert said.count('"event":"server.given_up"') == 1
    assert said.count("server.started") == 2


def test_a_target_whose_record_cannot_be_read_is_not_well(rig: Rig, machine: Machine):
    thread = used_thread(rig, rig.truth())
    rig.server.stop()
    (record,) = rig.home.glob(f"sessions/**/rollout-*{thread}*.jsonl")
    record.write_text("garbage\n")
    rig.server.start()
    machine.write_config(ops=thread)
    machine.start()
    unwell = f"UNHEALTHY   target ops ({thread}) cannot be loaded: "
    machine.wait_until(lambda: unwell in machine.run("status").out, "a target that is unwell")
    assert machine.run("status").code == 1


@pytest.mark.one_version
def test_no_word_of_a_message_is_in_the_log(rig: Rig, machine: Machine):
    secret, answer, question = "swordfish", "halibut", "haddock"
    rig.model.script[secret] = RunCommand(f"echo {question}", then=answer)
    truth = rig.truth()
    thread = used_thread(rig, truth)
    machine.write_config(ops=thread)
    # With every decision (`--verbose`), as always here.
    machine.start()
    for name, text in (("m1", secret), ("m2", f"{secret} again")):
        machine.deliver(name, thread, text, "--wait", "surfaced")
        machine.wait_for_outcome(name)
    assert machine.stop() == 0
    log = machine.log.read_text()
    assert log.count('"event":"delivery.settled"') == 2
    assert [word for word in (secret, answer, question) if word in log] == []


@pytest.mark.one_version
@pytest.mark.parametrize("listen", ["unix", "stdio"])
def test_another_codex_on_disk_is_used_once_nothing_runs_and_nothing_is_owed(
    rig: Rig, machine: Machine, listen: str
):
    thread = used_thread(rig, rig.truth())
    rig.server.stop()
    rig.model.script["work"] = Hold("done")
    place = rig.root / "codex"
    install(str(rig.server.binary), place)
    machine.own_server(listen=listen, codex=str(place))
    machine.start_unconnected()
    old = identify(machine.wait_for_server())
    assert old is not None
    machine.deliver("m1", thread, "work", "--wait", "surfaced")
    rig.model.wait_for_prompt("work")
    # A copy: another file that is no other version.
    shutil.copy2(rig.server.binary, place.with_suffix(".new"))
    os.replace(place.with_suffix(".new"), place)
    machine.signal(signal.SIGHUP)
    machine.wait_until(lambda: machine_of(machine)["server"]["outdated"], "the other codex")
    assert "            on disk lies codex" in machine.run("status").out
    assert not is_gone(old)
    rig.model.release("work")
    machine.wait_for_outcome("m1")
    machine.wait_for_server(other_than=old.pid)
    assert is_gone(old)
    machine.wait_until(lambda: not machine_of(machine)["server"]["outdated"], "no other codex")
    machine.deliver("m2", thread, "after", "--wait", "surfaced")
    machine.wait_for_outcome("m2")
    assert rig.rollout(thread) == [FIRST, Said("m1", "work"), Said("m2", "after")]
    assert machine_of(machine)["server"]["restarts"] == 1


def test_a_server_that_was_upgraded_on_disk_is_noticed_and_left_alone(
    tmp_path: Path, version: str, codex: str
):
    place = tmp_path / "codex"
    install(codex, place)
    with Rig(tmp_path, binary=str(place)) as rig, Machine(rig) as machine:
        machine.start()
        pid = rig.server.pid
        install(find_binary(BUNDLED).path, place)
        machine.signal(signal.SIGHUP)
        wanted = (BUNDLED, version != BUNDLED)

        def seen() -> tuple[str | None, bool]:
            server = machine_of(machine)["server"]
            return server["version_on_disk"], server["outdated"]

        machine.wait_until(lambda: seen() == wanted, f"{wanted}")
        assert machine.run("status").code == 0
        assert rig.server.is_running
        assert machine_of(machine)["server"]["pid"] == pid


def test_who_holds_a_thread_is_named_and_waited_for(rig: Rig, machine: Machine, version: str):
    """FIELD-REPORTS, ccteam#189, agmsg#906 and #1236: an active writer elsewhere."""
    thread = used_thread(rig, rig.truth())
    rig.server.stop()
    rig.server.start()
    other = AppServer(rig.server.binary, rig.home, rig.root / "o.sock", rig.root / "other.log")
    machine.write_config(ops=thread)
    with other, Truth(other.socket_path) as theirs:
        theirs.resume(thread)
        machine.start()
        if version == "0.144.5":  # it has no lock: both have the thread
            machine.wait_until(lambda: thread in subscribed(machine), "the target")
            return
        state = lambda: machine_of(machine)["threads"].get(thread, {})  # noqa: E731
        machine.wait_until(lambda: state().get("holders") == [other.pid], "the holder")
        machine.deliver("m1", thread, "hello")
        machine.wait_for_phase("m1", "queued", reason="active_writer")
        assert machine.status("m1")["why"].endswith(f"has this thread open: pid {other.pid}")
        unwell = machine.run("status")
        assert unwell.code == 1
        assert (
            f"cannot be loaded: another server process has it open, pid {other.pid}" in unwell.out
        )
    machine.wait_for_outcome("m1")
    assert machine.run("status").code == 0
    assert machine.log.read_text().count("The thread is not kept loaded") == 1
    assert agreed(rig, thread) == [FIRST, Said("m1", "hello")]
