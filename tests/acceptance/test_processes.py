"""Processes are stopped, killed and wrapped, as they are on real machines: it comes back by itself.

What lasts half a minute in life lasts a second here: the supervisor is a real process with the
limits of its silence shrunk.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from codexdrv.demo.script import Hold
from codexdrv.demo.server import AppServer
from codexdrv.paths import short_socket_path
from codexdrv.transport.peer import PeerIdentity, identify, is_gone
from tests.acceptance.kit import Rig, Said
from tests.acceptance.machine import CHECKOUT, Machine
from tests.acceptance.scenes import FIRST, agreed, used_thread
from tests.acceptance.test_resident import install


PING_INTERVAL_S = 0.5
SILENCE_S = 2.0
STOPPED_S = 3.0
"""Longer than the silence that a server is allowed, and than the pause in which one asks."""

HUNG_S = 4.0
"""Longer than one silent connection, and the pause behind it."""

TARGETS = 20

IMPATIENT = f"""
import functools, sys
from codexdrv import config
from codexdrv.cli.main import main
from supervisor import rules

config.Limits = functools.partial(
    config.Limits, ping_interval_s={PING_INTERVAL_S}, silence_s={SILENCE_S}
)
rules.HUNG_S = {HUNG_S}
sys.exit(main(sys.argv[1:]))
"""
"""The command line, with other defaults."""

WRAPPER = """\
#!{python}
import subprocess, sys
sys.exit(subprocess.call([{codex!r}, *sys.argv[1:]]))
"""
"""As npm's: the server is its child, with the same pipes and in the same session."""


class ImpatientMachine(Machine):
    """Its supervisor takes a server for dead after two seconds of silence."""

    def _spawn(
        self, arguments: Sequence[str], stdout: int, stderr: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        if arguments[0] != "supervise":
            return super()._spawn(arguments, stdout, stderr)
        return subprocess.Popen(
            [sys.executable, "-c", IMPATIENT, "--config", str(self.config), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=self.rig.root,
            env={"HOME": str(self.rig.root), "PYTHONPATH": str(CHECKOUT)},
        )

    @property
    def supervisor(self) -> int:
        """The pid of the supervisor that runs."""
        return self._running().pid


@pytest.fixture
def impatient(rig: Rig) -> Iterator[ImpatientMachine]:
    """A machine that notices soon."""
    with ImpatientMachine(rig) as machine:
        yield machine


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Stop processes for as long as the block lasts."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def children_of(pid: int) -> list[int]:
    """Ask the kernel which children a process has."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def server_of(machine: Machine) -> PeerIdentity:
    """Say which process the supervisor is connected to."""
    server = identify(machine.wait_for_server())
    assert server is not None
    return server


# The server does not answer, and its connection stands


@pytest.mark.field_report("openclaw#116135")
@pytest.mark.one_version
def test_a_server_that_is_stopped_is_noticed_and_gets_its_message_when_it_goes_on(
    rig: Rig, impatient: ImpatientMachine
):
    machine = impatient
    thread = used_thread(rig, rig.truth())
    machine.start()
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    with stopped(rig.server.pid):
        machine.deliver("m2", thread, "two")
        machine.wait_for_log("The server has said nothing for")
        machine.wait_until_disconnected()
        assert machine.standing("m2").phase == "queued"
        ill = machine.run("status", "--json")
        assert (ill.code, ill.body["healthy"], ill.body["live"]) == (1, False, {"queued": 1})
        assert rig.model.count("two") == 0
    machine.wait_for_outcome("m2")
    assert machine.standing("m2").attempts == 1
    assert agreed(rig, thread) == [FIRST, Said("m1", "one"), Said("m2", "two")]


@pytest.mark.field_report("openclaw#116135")
@pytest.mark.one_version
def test_who_was_stopped_with_its_server_does_not_take_that_for_dead(
    rig: Rig, impatient: ImpatientMachine
):
    machine = impatient
    thread = used_thread(rig, rig.truth())
    machine.start()
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    with stopped(rig.server.pid, machine.supervisor):
        # As a laptop that is suspended; nothing is waited for.
        time.sleep(STOPPED_S)
    machine.deliver("m2", thread, "two", "--wait", "surfaced")
    machine.wait_for_outcome("m2")
    log = machine.log.read_text()
    assert log.count("generation.ended") == 0
    assert agreed(rig, thread) == [FIRST, Said("m1", "one"), Said("m2", "two")]


@pytest.mark.one_version
def test_a_turn_that_the_last_connection_saw_begin_is_not_cut_for_a_newer_codex(
    rig: Rig, impatient: ImpatientMachine
):
    machine = impatient
    thread = used_thread(rig, rig.truth())
    rig.server.stop()
    rig.model.script["mine"] = Hold("done")
    place = rig.root / "codex"
    install(str(rig.server.binary), place)
    machine.own_server(codex=str(place), stop_grace_s=0.2)
    machine.start_unconnected()
    server = server_of(machine)
    truth = rig.truth()
    truth.resume(thread)
    turn = truth.start_turn(thread, "mine")
    rig.model.wait_for_prompt("mine")
    with stopped(server.pid):
        machine.wait_until_disconnected()
    assert server_of(machine) == server
    # A copy: another file that is no other version.
    shutil.copy2(rig.server.binary, place.with_suffix(".copy"))
    place.with_suffix(".copy").replace(place)
    machine.signal(signal.SIGHUP)
    machine.wait_for_log("renewal.held_up")
    assert truth.running_turn(thread) == turn
    rig.model.release("mine")
    assert truth.wait_for_turn(turn)["status"] == "completed"
    machine.wait_for_server(other_than=server.pid)
    assert is_gone(server)


@pytest.mark.one_version
def test_a_server_of_our_own_that_stays_silent_is_replaced_and_the_message_gets_through(
    rig: Rig, impatient: ImpatientMachine
):
    machine = impatient
    thread = used_thread(rig, rig.truth())
    rig.server.stop()
    machine.own_server(stop_grace_s=0.2)
    machine.start_unconnected()
    server = server_of(machine)
    with stopped(server.pid):
        machine.wait_until_disconnected()
        machine.deliver("m1", thread, "hello")
        machine.wait_for_server(other_than=server.pid)
        assert is_gone(server)
    machine.wait_for_outcome("m1")
    log = machine.log.read_text()
    assert (log.count("server.hung"), log.count("server.started")) == (1, 2)
    assert machine.stop() == 0
    assert rig.rollout(thread) == [FIRST, Said("m1", "hello")]


@pytest.mark.one_version
def test_a_server_that_is_stopped_is_killed_when_it_is_time_to_go(rig: Rig, machine: Machine):
    rig.server.stop()
    machine.own_server(stop_grace_s=0.2)
    machine.start_unconnected()
    server = server_of(machine)
    # It hears no SIGTERM, as one that ignores it.
    with stopped(server.pid):
        assert machine.stop() == 0
        assert is_gone(server)


# Both are killed


@pytest.mark.field_report("kai#487", "CodexBar#2789")
@pytest.mark.one_version
def test_what_was_killed_together_begins_anew_and_nothing_is_sent_twice(rig: Rig, machine: Machine):
    rig.model.script["two"] = Hold("never said")
    thread = used_thread(rig, rig.truth())
    rig.server.stop()
    machine.own_server()
    machine.start_unconnected()
    server = server_of(machine)
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    machine.deliver("m2", thread, "two", "--wait", "surfaced")
    rig.model.wait_for_prompt("two")
    os.kill(server.pid, signal.SIGKILL)
    machine.kill()
    machine.deliver("m3", thread, "three")
    machine.start_unconnected()
    machine.wait_for_server(other_than=server.pid)
    assert is_gone(server)
    machine.wait_for_outcome("m2", outcome="interrupted")
    machine.wait_for_outcome("m3")
    said = [FIRST, Said("m1", "one"), Said("m2", "two"), Said("m3", "three")]
    assert agreed(rig, thread) == said
    assert machine.stop() == 0


# A wrapper is killed


@pytest.mark.field_report("kai#487", "CodexBar#2789")
@pytest.mark.one_version
def test_a_wrapper_that_is_killed_takes_neither_the_server_nor_the_connection_along(
    tmp_path: Path, codex: str
):
    wrapper = tmp_path / "codex"
    wrapper.write_text(WRAPPER.format(python=sys.executable, codex=codex))
    wrapper.chmod(0o755)
    with Rig(tmp_path, binary=wrapper) as rig, Machine(rig) as machine:
        thread = used_thread(rig, rig.truth())
        machine.start_unconnected()
        server = server_of(machine)
        try:
            assert children_of(rig.server.pid) == [server.pid]
            os.kill(rig.server.pid, signal.SIGKILL)
            rig.server.wait(1)
            machine.deliver("m1", thread, "one", "--wait", "surfaced")
            machine.wait_for_outcome("m1")
            assert machine.wait_for_server() == server.pid
            assert agreed(rig, thread) == [FIRST, Said("m1", "one")]
        finally:
            os.kill(server.pid, signal.SIGKILL)
        machine.wait_until(lambda: is_gone(server), "the end of the server")


# Nothing stands between


@pytest.mark.field_report("openai/codex#23572")
@pytest.mark.one_version
def test_attached_it_starts_no_process_to_reach_the_server(rig: Rig, impatient: ImpatientMachine):
    machine = impatient
    thread = used_thread(rig, rig.truth())
    machine.start()
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    assert children_of(machine.supervisor) == []


# Many threads


@pytest.mark.field_report("agmsg#350")
@pytest.mark.one_version
def test_of_many_threads_each_gets_what_names_it_and_another_gets_nothing(
    rig: Rig, machine: Machine
):
    truth = rig.truth()
    threads = [used_thread(rig, truth) for _ in range(TARGETS)]
    other = used_thread(rig, truth)
    assert set(truth.loaded_threads()) == {other, *threads}
    machine.write_config(**{f"t{number}": thread for number, thread in enumerate(threads)})
    unnamed = machine.run("deliver", "--id", "m0", "to whom?")
    assert unnamed.code == 2
    machine.start()
    names = [f"m{number}" for number in range(TARGETS)]
    lines = [
        json.dumps({"id": name, "target": f"t{number}", "text": f"for {name}"})
        for number, name in enumerate(names)
    ]
    done = machine.run("deliver", "--ndjson", stdin="\n".join(lines))
    assert done.code == 0
    machine.wait_for_outcome(*names)
    for name, thread in zip(names, threads, strict=True):
        assert agreed(rig, thread) == [FIRST, Said(name, f"for {name}")]
    assert agreed(rig, other) == [FIRST]


# What is not configured


def without(machine: Machine, key: str) -> None:
    """Take a key out of the configuration."""
    lines = machine.config.read_text().splitlines()
    machine.config.write_text("\n".join(line for line in lines if not line.startswith(f"{key} =")))


@pytest.mark.field_report("remodex#47", "agent-deck#204")
@pytest.mark.one_version
def test_a_service_without_a_path_finds_its_codex(rig: Rig, machine: Machine):
    # A machine's processes have no PATH at all.
    thread = used_thread(rig, rig.truth())
    rig.server.stop()
    machine.own_server()
    without(machine, "codex")
    machine.start_unconnected()
    server = server_of(machine)
    assert os.readlink(f"/proc/{server.pid}/exe") == os.path.realpath(rig.server.binary)
    machine.deliver("m1", thread, "one", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    assert machine.stop() == 0
    assert is_gone(server)


class FarServer(AppServer):
    """Its socket has a path that is too long to connect to by it."""

    def _accepts(self) -> bool:
        if not self.socket_path.exists():
            return False
        with short_socket_path(str(self.socket_path)) as path, socket.socket(socket.AF_UNIX) as us:
            return us.connect_ex(path) == 0


@pytest.mark.one_version
def test_a_home_of_120_letters_has_its_own_socket(tmp_path: Path, codex: str):
    home = tmp_path / ("h" * 60) / ("o" * 60)
    home.parent.mkdir(mode=0o700)
    rig = Rig(tmp_path, binary=codex)
    own_socket = home / "app-server-control" / "app-server-control.sock"
    rig.home, rig.server = home, FarServer(codex, home, own_socket, tmp_path / "server.log")
    # For the witness, who knows no way around the limit.
    rig.socket_path.symlink_to(own_socket)
    with rig, Machine(rig) as machine:
        without(machine, "socket")
        thread = used_thread(rig, rig.truth())
        machine.start()
        machine.deliver("m1", thread, "one", "--wait", "surfaced")
        machine.wait_for_outcome("m1")
        assert agreed(rig, thread) == [FIRST, Said("m1", "one")]
