"""What the kernel says of a process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.soak.sampling import hears, measure, processes_in, servers_of


def test_a_process_is_measured_until_it_is_gone():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = measure(child.pid)
        child.kill()
    assert found is not None
    assert found.pid == child.pid
    assert found.rss_kib > 0
    assert found.descriptors >= 3
    assert found.threads == 1
    assert measure(child.pid) is None


def test_processes_are_found_by_their_home(tmp_path: Path):
    home = tmp_path / "home"
    command = [sys.executable, "-c", "input()", "app-server"]
    environment = {"HOME": str(tmp_path), "CODEX_HOME": str(home)}
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(command, env=environment, stdin=pipe) as server,
        subprocess.Popen(command[:-1], env=environment, stdin=pipe) as other,
    ):
        servers, all_of_them = servers_of(home), processes_in(tmp_path)
        server.kill()
        other.kill()
    assert servers == [server.pid]
    assert all_of_them == sorted([server.pid, other.pid])
    assert servers_of(home) == processes_in(tmp_path) == []


def test_a_handler_of_a_signal_is_seen():
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert hears(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert not hears(os.getpid(), signal.SIGUSR2)
