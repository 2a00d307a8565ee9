"""What an earlier life left: small Python programs in the place of its server."""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager

import anyio
import pytest

from codexdrv.errors import NoServer
from codexdrv.transport.ladder import SECOND_GRACE_S
from codexdrv.transport.peer import identify, is_gone
from supervisor.leftover import FILE_NAME, load_server, note_server, reap_server
from tests.virtual_time import VIRTUAL_TIME


GOES = "import sys; print(flush=True); sys.stdin.read()"
ENDS_WHEN_TOLD = "import signal; print(flush=True); signal.pause()"
STAYS = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
while True:
    signal.pause()
"""


@contextmanager
def left(directory, program):
    """Run a server that was noted."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        server = identify(process.pid)
        note_server(str(directory), server)
        try:
            yield server, process
        finally:
            process.kill()


async def test_a_server_that_finishes_its_turn_has_the_time_for_it(tmp_path):
    with left(tmp_path, GOES) as (server, process):
        process.stdin.close()
        await reap_server(str(tmp_path), grace_s=10)
        assert is_gone(server)
        # It was told once, by the kernel: a second word would cut its turn.
        assert process.wait() == 0
    assert not (tmp_path / FILE_NAME).exists()


async def test_a_server_that_takes_too_long_is_told_again(tmp_path):
    with left(tmp_path, ENDS_WHEN_TOLD) as (_, process):
        await reap_server(str(tmp_path), grace_s=0.05)
        assert process.wait() == -signal.SIGTERM


async def test_a_server_that_does_not_listen_is_killed(tmp_path):
    with left(tmp_path, STAYS) as (_, process):
        await reap_server(str(tmp_path), grace_s=0.05)
        assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME])
async def test_a_server_that_nothing_ends_stays_noted(tmp_path, anyio_backend):
    sent = []

    def send(_server, number):
        sent.append((number, round(anyio.current_time())))

    with left(tmp_path, GOES) as (server, _):
        with pytest.raises(NoServer, match=rf"does not end \(pid {server.pid}\)"):
            await reap_server(str(tmp_path), grace_s=1000, send=send)
        assert load_server(str(tmp_path)) == server
    killed_s = round(1000 + SECOND_GRACE_S)
    assert sent == [(signal.SIGTERM, 1000), (signal.SIGKILL, killed_s)]


async def test_a_process_that_only_has_its_pid_is_left_alone(tmp_path):
    with left(tmp_path, ENDS_WHEN_TOLD) as (server, process):
        note_server(str(tmp_path), server._replace(start_ticks=server.start_ticks - 1))
        assert load_server(str(tmp_path)) is None
        await reap_server(str(tmp_path), grace_s=0.05)
        note_server(str(tmp_path), server._replace(namespace="pid:[1]"))
        await reap_server(str(tmp_path), grace_s=0.05)
        assert process.poll() is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', json.dumps({"pid": "x"})])
async def test_a_note_that_says_nothing_ends_nobody(tmp_path, text):
    (tmp_path / FILE_NAME).write_text(text)
    assert load_server(str(tmp_path)) is None
    await reap_server(str(tmp_path), grace_s=0.05)
    assert not (tmp_path / FILE_NAME).exists()


async def test_without_a_note_there_is_nothing_to_do(tmp_path):
    await reap_server(str(tmp_path), grace_s=0.05)


def test_a_note_is_for_us_alone(tmp_path):
    with left(tmp_path, GOES) as (server, _):
        assert load_server(str(tmp_path)) == server
        assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
