"""The resident process as its service manager and its terminal see it; there is no server."""

import os
import pty
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.children import CHECKOUT


WAIT_S = 15.0


class Manager:
    """The end of NOTIFY_SOCKET that a service manager has."""

    def __init__(self, path):
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(WAIT_S)

    def words(self):
        """The next thing that we are told, word by word."""
        text = self.socket.recv(4096).decode()
        return dict(line.partition("=")[::2] for line in text.splitlines())

    def wait_for(self, word, value="1"):
        """Wait until a word is told; return what came with it."""
        while (words := self.words()).get(word) != value:
            pass
        return words


@pytest.fixture
def manager(tmp_path):
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.socket.close()


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "codexdrv.toml"
    path.write_text(f'[server]\nsocket = "{tmp_path}/none"\n[state]\ndir = "{tmp_path}/state"\n')
    return path


@contextmanager
def supervising(config, *launcher, stderr=subprocess.PIPE, **environment):
    command = [*launcher, sys.executable, "-m", "codexdrv", "--config", str(config), "supervise"]
    process = subprocess.Popen(
        command,
        stdin=stderr if isinstance(stderr, int) and stderr >= 0 else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={"HOME": str(config.parent), "PYTHONPATH": str(CHECKOUT), "PATH": os.environ["PATH"]}
        | environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_manager_hears_that_we_are_ready_how_we_are_and_that_we_live(manager, config):
    with supervising(config, NOTIFY_SOCKET=manager.path, WATCHDOG_USEC="200000") as process:
        # Without a server, too: messages are taken from now on.
        manager.wait_for("READY")
        while "No server listens at" not in manager.words().get("STATUS", ""):
            pass
        manager.wait_for("WATCHDOG")
        manager.wait_for("WATCHDOG")
        process.terminate()
        manager.wait_for("STOPPING")
        assert process.wait(WAIT_S) == 0


def test_the_manager_hears_of_a_reload_from_its_beginning_to_its_end(manager, config):
    with supervising(config, NOTIFY_SOCKET=manager.path) as process:
        manager.wait_for("READY")
        process.send_signal(signal.SIGHUP)
        assert int(manager.wait_for("RELOADING")["MONOTONIC_USEC"]) > 0
        manager.wait_for("READY")
        # Also when it was refused.
        config.write_text("[nonsense]\n")
        process.send_signal(signal.SIGHUP)
        manager.wait_for("RELOADING")
        manager.wait_for("READY")
        process.terminate()
        _, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
        assert said.count(b"configuration.reloaded") == 1
        assert said.count(b"configuration.refused") == 1


def test_a_terminal_that_is_closed_ends_it_in_good_order(config):
    ours, theirs = pty.openpty()
    with supervising(config, "setsid", "--ctty", "--wait", stderr=theirs) as process:
        os.close(theirs)
        said = b""
        while b"life.begun" not in said:
            said += os.read(ours, 4096)
        os.close(ours)
        # 120 is Python's own: its last words reached nobody.
        assert process.wait(WAIT_S) in {0, 120}
    assert not Path(config.parent, "state", "bell").exists()
