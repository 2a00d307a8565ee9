"""The real server as our child: how it starts, stops, dies and comes back."""

import os
import select
import signal
import socket
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codexdrv.binary import bundled_binary
from codexdrv.demo.server import AppServer, write_home
from codexdrv.errors import NoServer
from tests.acceptance.kit import Truth


pytestmark = pytest.mark.timeout(60)

URL = "http://127.0.0.1:9/v1"


def app_server(tmp_path: Path, *, binary: str | None = None) -> AppServer:
    home = tmp_path / "home"
    write_home(home, URL)
    socket_path, log = tmp_path / "s.sock", tmp_path / "server.log"
    return AppServer(binary or bundled_binary(), home, socket_path, log)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AppServer]:
    with app_server(tmp_path) as server:
        yield server


def fake_codex(tmp_path: Path, text: str, *, interpreter: str = "/bin/sh") -> str:
    path = tmp_path / "fake-codex"
    path.write_text(f"#!{interpreter}\n{text}\n")
    path.chmod(0o700)
    return str(path)


@contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        yield client


def wait_for_death(pid: int) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 10)[0])
    finally:
        os.close(process)


def test_the_home_has_one_model_and_no_retries(tmp_path: Path):
    write_home(tmp_path / "a" / "home", URL)
    written = tomllib.loads((tmp_path / "a" / "home" / "config.toml").read_text())
    assert written == {
        "model": "scripted",
        "model_provider": "scripted",
        "model_providers": {
            "scripted": {
                "name": "scripted",
                "base_url": URL,
                "wire_api": "responses",
                "request_max_retries": 0,
                "stream_max_retries": 0,
            }
        },
    }
    assert (tmp_path / "a" / "home").stat().st_mode & 0o777 == 0o700


def test_a_started_server_accepts_and_has_a_session_of_its_own(server: AppServer):
    with connected(server.socket_path):
        assert server.is_running
    assert os.getsid(server.pid) == server.pid


def test_it_sees_nothing_of_our_environment(server: AppServer):
    seen = Path(f"/proc/{server.pid}/environ").read_bytes().rstrip(b"\0").split(b"\0")
    assert {item.partition(b"=")[0] for item in seen} == {b"PATH", b"HOME", b"CODEX_HOME", b"LANG"}


def test_a_terminated_server_exits_and_removes_its_socket(server: AppServer):
    Truth(server.socket_path).close()  # before its first answer, SIGTERM is still deadly
    server.terminate()
    assert server.wait(10) == 0
    assert not os.path.lexists(server.socket_path)


def test_a_killed_server_leaves_its_socket_and_starts_again_on_it(server: AppServer):
    first = server.pid
    server.kill()
    assert server.wait(0) == -signal.SIGKILL
    with pytest.raises(ConnectionRefusedError), connected(server.socket_path):
        pass
    server.start()
    assert server.pid != first
    with connected(server.socket_path):
        pass


def test_stop_is_repeatable_and_sweeps_what_a_kill_left(server: AppServer):
    behind = server.socket_path.resolve()
    server.kill()
    assert behind.is_socket()
    server.stop()
    server.stop()
    assert not os.path.lexists(server.socket_path)
    assert not behind.exists()
    assert not behind.with_name(f"{behind.name}.lock").exists()


def test_a_server_that_was_never_started_may_be_stopped(tmp_path: Path):
    app_server(tmp_path).stop()


def test_a_running_server_is_waited_for_only_so_long(server: AppServer):
    with pytest.raises(TimeoutError):
        server.wait(0)


def test_a_server_that_dies_at_its_start_is_quoted(tmp_path: Path):
    binary = fake_codex(tmp_path, "echo no such option >&2; exit 1")
    with pytest.raises(NoServer, match="ended with 1: no such option"):
        app_server(tmp_path, binary=binary).start()


def test_a_server_that_never_listens_is_killed_with_its_children(tmp_path: Path):
    binary = fake_codex(tmp_path, "sleep 1000 &\necho my child is $! >&2\nwait")
    server = app_server(tmp_path, binary=binary)
    with pytest.raises(NoServer, match="does not listen: my child is") as caught:
        server.start(timeout_s=1)
    assert not server.is_running
    assert wait_for_death(int(caught.value.message.split()[-1]))


def test_a_stubborn_server_is_killed_in_the_end(tmp_path: Path):
    binary = fake_codex(
        tmp_path,
        "import signal, socket, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "listener = socket.socket(socket.AF_UNIX)\n"
        "listener.bind(sys.argv[-1].removeprefix('unix://'))\n"
        "listener.listen()\n"
        "while True: signal.pause()",
        interpreter=sys.executable,
    )
    server = app_server(tmp_path, binary=binary)
    server.start()
    server.stop(grace_s=0, second_grace_s=0)
    assert server.wait(0) == -signal.SIGKILL
    assert not server.socket_path.exists()


def test_a_binary_that_is_none_is_named(tmp_path: Path):
    with pytest.raises(NoServer, match="/no/such/codex"):
        app_server(tmp_path, binary="/no/such/codex").start()
