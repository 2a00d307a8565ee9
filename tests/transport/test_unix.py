import os
import socket
import stat
from contextlib import contextmanager

import anyio
import pytest

from codexdrv.errors import DeadlinePassed, NoServer, UnsafeSocket
from codexdrv.paths import UNIX_PATH_BYTES_MAX, short_socket_path
from codexdrv.transport.peer import PeerCredentials
from codexdrv.transport.unix import check_file, check_peer, check_socket, open_unix
from tests.fakes.streams import receive_exactly


@contextmanager
def bound(path, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as sock, short_socket_path(str(path)) as short:
        sock.bind(short)
        yield sock


@contextmanager
def listening(path, backlog=8):
    with bound(path) as sock:
        sock.listen(backlog)
        yield sock


def test_a_socket_of_ours_is_safe(tmp_path):
    with listening(tmp_path / "s"):
        assert check_socket(str(tmp_path / "s")) == str(tmp_path / "s")


def test_the_link_that_codex_makes_is_followed(tmp_path):
    (tmp_path / "daemon").mkdir(mode=0o700)
    (tmp_path / "s").symlink_to(tmp_path / "daemon" / "hash")
    with listening(tmp_path / "daemon" / "hash"):
        assert check_socket(str(tmp_path / "s")) == str(tmp_path / "daemon" / "hash")


def test_a_relative_path_is_one_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with listening(tmp_path / "s"):
        assert check_socket("s") == str(tmp_path / "s")


@pytest.mark.parametrize("name", ["nowhere", "nowhere/s", "file/s", "dangling"])
def test_where_there_is_nothing_there_is_no_server(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    with pytest.raises(NoServer, match="No server listens at") as none:
        check_socket(str(tmp_path / name))
    assert none.value.hint.startswith("Start it with `codex app-server")
    assert not none.value.maybe_written


def test_a_circle_of_links_is_no_server(tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(NoServer, match="cannot be used"):
        check_socket(str(tmp_path / "circle"))


@pytest.mark.parametrize("name", ["file", "directory"])
def test_what_is_no_socket_is_unsafe(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    with pytest.raises(UnsafeSocket, match="not a socket"):
        check_socket(str(tmp_path / name))


def test_a_directory_where_others_may_write_is_unsafe(tmp_path):
    (tmp_path / "a").mkdir()
    with listening(tmp_path / "a" / "s"):
        (tmp_path / "a").chmod(0o770)
        with pytest.raises(UnsafeSocket) as unsafe:
            check_socket(str(tmp_path / "a" / "s"))
    assert unsafe.value.hint == f"chmod go-w {tmp_path}/a"


def test_an_unsafe_directory_behind_the_link_is_unsafe(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "s").symlink_to(tmp_path / "a" / "s")
    with listening(tmp_path / "a" / "s"):
        (tmp_path / "a").chmod(0o777)
        with pytest.raises(UnsafeSocket):
            check_socket(str(tmp_path / "s"))


def test_an_unsafe_directory_is_named_even_if_nothing_is_in_it(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o777)
    with pytest.raises(UnsafeSocket):
        check_socket(str(tmp_path / "a" / "s"))


def status_of(owner):
    return os.stat_result((stat.S_IFSOCK | 0o600, 1, 1, 1, owner, owner, 0, 0, 0, 0))


@pytest.mark.parametrize("owner", [1000, 0])
def test_a_socket_and_a_server_of_ours_or_roots_are_trusted(owner):
    check_file("/s", status_of(owner), uid=1000)
    assert check_peer("/s", PeerCredentials(0, owner), uid=1000) is None


@pytest.mark.parametrize("uid", [1000, 0])
def test_a_socket_and_a_server_of_a_stranger_are_not(uid):
    with pytest.raises(UnsafeSocket, match="The socket /s belongs to uid 1001"):
        check_file("/s", status_of(1001), uid=uid)
    with pytest.raises(UnsafeSocket, match="The server at /s belongs to uid 1001"):
        check_peer("/s", PeerCredentials(os.getpid(), 1001), uid=uid)


async def test_a_connection_carries_bytes_and_names_the_process_at_the_other_end(tmp_path):
    with listening(tmp_path / "s") as server:
        async with open_unix(str(tmp_path / "s")) as link:
            accepted, _ = server.accept()
            with accepted:
                accepted.send(b"hello")
                assert await receive_exactly(link.stream, 5) == b"hello"
                await link.stream.send(b"world")
                assert accepted.recv(5) == b"world"
            assert link.pid == os.getpid()
            # This is a Python, so it may as well be something in front of a server.
            assert link.peer is None


async def test_the_connection_is_closed_with_the_block_also_when_it_fails(tmp_path):
    with listening(tmp_path / "s") as server:
        with pytest.raises(ZeroDivisionError):
            async with open_unix(str(tmp_path / "s")):
                raise ZeroDivisionError
        accepted, _ = server.accept()
        with accepted:
            assert accepted.recv(1) == b""


async def test_a_path_that_is_too_long_for_the_kernel_is_reached(tmp_path):
    directory = tmp_path / ("d" * 60) / ("e" * 60)
    directory.mkdir(parents=True)
    path = str(directory / "s")
    assert len(path) > UNIX_PATH_BYTES_MAX
    with listening(path):
        async with open_unix(path) as link:
            assert link.pid == os.getpid()


async def test_a_long_path_behind_a_short_link_is_reached(tmp_path):
    directory = tmp_path / ("d" * 60) / ("e" * 60)
    directory.mkdir(parents=True)
    (tmp_path / "s").symlink_to(directory / "hash")
    with listening(directory / "hash"):
        async with open_unix(str(tmp_path / "s")) as link:
            assert link.pid == os.getpid()


async def test_a_socket_that_a_dead_server_left_is_no_server(tmp_path):
    with listening(tmp_path / "s"):
        pass
    with pytest.raises(NoServer, match="Connection refused"):
        async with open_unix(str(tmp_path / "s")):
            pass


async def test_a_socket_of_another_kind_is_no_server(tmp_path):
    with bound(tmp_path / "s", socket.SOCK_DGRAM), pytest.raises(NoServer, match="cannot be used"):
        async with open_unix(str(tmp_path / "s")):
            pass


@contextmanager
def waiting_room(path):
    """Fill the queue of a server that accepts nobody, until the next one would have to wait."""
    clients = []
    with listening(path, backlog=0) as server:
        try:
            while True:
                clients.append(socket.socket(socket.AF_UNIX))
                clients[-1].setblocking(False)
                clients[-1].connect(str(path))
        except BlockingIOError:
            yield server
        finally:
            for client in clients:
                client.close()


async def test_a_full_queue_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened = anyio.Event()

    async def connect():
        async with open_unix("s"):
            opened.set()

    with waiting_room("s") as server, anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connect)
            await anyio.wait_all_tasks_blocked()
            assert not opened.is_set()
            server.accept()[0].close()
            await opened.wait()


async def test_a_server_that_accepts_nobody_runs_into_the_deadline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with waiting_room("s"), pytest.raises(DeadlinePassed, match="took no connection within"):
        async with open_unix("s", timeout_s=0.05):
            pass
