"""The bell: who is up hears it, who is down is said to be so, and nobody ever waits."""

import socket
from contextlib import suppress

import pytest

from codexdrv.bell import FILE_NAME, is_hung, ring
from codexdrv.paths import UNIX_PATH_BYTES_MAX, short_socket_path


@pytest.fixture
def hang_up():
    """Hang up the bell of a directory, as a supervisor does."""
    ringers = []

    def hang(directory):
        ringer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ringers.append(ringer)
        ringer.setblocking(False)
        with short_socket_path(f"{directory}/{FILE_NAME}") as short:
            ringer.bind(short)
        return ringer

    yield hang
    for ringer in ringers:
        ringer.close()


def test_a_ring_arrives_and_says_nothing(hang_up, tmp_path):
    ringer = hang_up(tmp_path)
    assert ring(str(tmp_path))
    assert ringer.recv(1) == b""
    with pytest.raises(BlockingIOError):
        ringer.recv(1)


def test_a_look_makes_no_sound(hang_up, tmp_path):
    assert not is_hung(str(tmp_path))
    ringer = hang_up(tmp_path)
    assert is_hung(str(tmp_path))
    with pytest.raises(BlockingIOError):
        ringer.recv(1)
    ringer.close()
    assert not is_hung(str(tmp_path))


def test_a_supervisor_that_does_not_listen_any_more_is_up_and_nobody_waits_for_it(
    hang_up, tmp_path
):
    ringer = hang_up(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, suppress(BlockingIOError):
        while True:
            sender.sendto(b"", socket.MSG_DONTWAIT, ringer.getsockname())
    assert ring(str(tmp_path))


def test_nobody_is_up_where_there_is_no_bell(tmp_path):
    assert not ring(str(tmp_path))
    assert not ring(str(tmp_path / "no such directory"))


def test_nobody_is_up_behind_a_bell_that_a_dead_one_left(hang_up, tmp_path):
    hang_up(tmp_path).close()
    assert (tmp_path / FILE_NAME).is_socket()
    assert not ring(str(tmp_path))


def test_a_plain_file_is_no_bell(tmp_path):
    (tmp_path / FILE_NAME).touch()
    assert not ring(str(tmp_path))


def test_a_bell_rings_however_long_its_path_is(hang_up, tmp_path):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    assert len(f"{deep}/{FILE_NAME}") > UNIX_PATH_BYTES_MAX
    assert not ring(str(deep))
    ringer = hang_up(deep)
    assert ring(str(deep))
    assert ringer.recv(1) == b""
    ringer.close()
    assert not ring(str(deep))
