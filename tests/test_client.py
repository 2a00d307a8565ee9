"""A command that asks a server waits for its greeting with an end, and for its answer longer."""

import json
import math
import os
import socket
from contextlib import contextmanager

import anyio
import pytest
from websockets.asyncio.server import unix_serve

from codexdrv.client import ask_configured, ask_server
from codexdrv.config import parse_config
from codexdrv.errors import DeadlinePassed, NoServer


SOON_S = 0.05


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def path(tmp_path):
    tmp_path.chmod(0o700)
    return str(tmp_path / "s.sock")


@contextmanager
def stopped(path):
    """Somebody who takes connections, and does no more: what the kernel does for a process."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        yield


async def greet(connection):
    """Answer the greeting, and nothing else."""
    asked = json.loads(await connection.recv())
    answer = {"id": asked["id"], "result": {"userAgent": "codex/0.171.0 (fake)"}}
    await connection.send(json.dumps(answer))
    await connection.wait_closed()


async def never(_session):
    raise AssertionError("it was not greeted")


async def test_a_server_that_does_not_greet_is_named_with_what_may_wake_it(path):
    with stopped(path), pytest.raises(DeadlinePassed) as late:
        await ask_server(path, never, version="0.1.0", greeting_timeout_s=SOON_S)
    pid = os.getpid()
    assert late.value.message == f"The server (pid {pid}) does not answer within 0.05 s."
    assert late.value.hint.startswith(f"Is it stopped? `kill -CONT {pid}`")


async def test_the_end_of_the_wait_is_for_the_greeting_alone(path):
    async def ask(session):
        assert anyio.current_effective_deadline() == math.inf
        return session.greeting.user_agent

    async with unix_serve(greet, path, compression=None):
        said = await ask_server(path, ask, version="0.1.0", greeting_timeout_s=30.0)
    assert said == "codex/0.171.0 (fake)"


async def test_a_question_that_fails_fails_as_it_does(path):
    async def ask(_session):
        raise NoServer("It is another one.")

    async with unix_serve(greet, path, compression=None):
        with pytest.raises(NoServer, match="It is another one"):
            await ask_server(path, ask, version="0.1.0")


@pytest.mark.parametrize(
    ("table", "words", "hint"),
    [
        ({}, "No server listens at", "codex app-server"),
        ({"mode": "spawn"}, "No server listens at", "`codexdrv supervise` starts it"),
        ({"mode": "spawn", "listen": "stdio"}, "talks to its supervisor alone", 'listen = "unix"'),
    ],
)
async def test_a_server_that_is_not_there_is_told_by_whose_it_is(tmp_path, table, words, hint):
    server = parse_config({"server": table}, {"HOME": str(tmp_path)}, path=None).server
    with pytest.raises(NoServer, match=words) as none:
        await ask_configured(server, never, version="0.1.0")
    assert hint in none.value.hint
