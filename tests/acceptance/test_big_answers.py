"""Answers around the cap, from the real server: it reads a file and answers with all of it."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from codexdrv.config import Listen, Server, Spawn
from codexdrv.connect import Connect
from codexdrv.engine.session import Pace, Session
from codexdrv.errors import AnswerTooBig, CodexdrvError, FrameTooBig, LinkLost
from codexdrv.protocol.methods import Call, list_loaded
from codexdrv.wire.framing import MESSAGE_BYTES_MAX
from supervisor.spawning import connecting
from tests.acceptance.kit import Rig


MIB = 1024 * 1024
PACE = Pace(10.0, 30.0)


def written(rig: Rig, answer_bytes: int) -> Path:
    """Write a file that is an answer of so many bytes in base64, and a few."""
    path = rig.root / f"of-{answer_bytes}"
    path.write_bytes(os.urandom(answer_bytes // 4 * 3))
    return path


def read_file(path: Path) -> Call:
    return Call("fs/readFile", {"path": str(path)}, 30.0)


def own(rig: Rig, listen: Listen) -> Server:
    environment = {"PATH": "/usr/bin:/bin", "CODEX_HOME": str(rig.home), "HOME": str(rig.home)}
    spawn = Spawn(listen, "decline", 0.0)
    return Server(str(rig.socket_path), str(rig.home), str(rig.server.binary), environment, spawn)


async def converse(
    connect: Connect, serve: Callable[[Session], Awaitable[None]], gaps: list[None]
) -> CodexdrvError:
    """Run one session; return how it ended."""
    async with connect() as connection:
        session = Session(
            connection.channel,
            generation=1,
            peer=connection.peer,
            on_event=lambda _: None,
            on_gap=lambda: gaps.append(None),
        )
        try:
            await session.run(serve, version="0", pace=PACE)
        except CodexdrvError as error:
            return error


@pytest.mark.field_report("codex-a2a#39", "acodex#24", "openai/codex#16554")
@pytest.mark.parametrize("listen", Listen)
async def test_an_answer_of_31_mib_is_read(rig: Rig, listen: Listen):
    rig.server.stop()
    path = written(rig, 31 * MIB)
    answers: list[int] = []
    gaps: list[None] = []

    async def serve(session: Session) -> None:
        result = await session.call(read_file(path))
        answers.append(len(result["dataBase64"]))
        await session.call(list_loaded())

    server = own(rig, listen)
    async with connecting(server) as connect:
        end = await converse(connect, serve, gaps)
    assert type(end) is LinkLost
    assert answers == [31 * MIB]
    assert 31 * MIB < MESSAGE_BYTES_MAX
    assert gaps == []


async def test_an_answer_of_33_mib_costs_one_caller_on_stdio(rig: Rig):
    rig.server.stop()
    path, small = written(rig, 33 * MIB), written(rig, 400)
    gaps: list[None] = []
    beside: list[int] = []

    async def read_beside(session: Session) -> None:
        beside.append(len((await session.call(read_file(small)))["dataBase64"]))

    async def serve(session: Session) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_beside, session)
            with pytest.raises(AnswerTooBig) as caught:
                await session.call(read_file(path))
            assert caught.value.maybe_written
        await read_beside(session)

    server = own(rig, Listen.STDIO)
    async with connecting(server) as connect:
        await converse(connect, serve, gaps)
    assert beside == [400, 400]
    assert len(gaps) == 1


async def test_an_answer_of_33_mib_costs_one_connection_on_a_socket(rig: Rig):
    rig.server.stop()
    path, small = written(rig, 33 * MIB), written(rig, 400)
    gaps: list[None] = []
    read: list[int] = []

    async def serve_big(session: Session) -> None:
        await session.call(read_file(path))

    async def serve_small(session: Session) -> None:
        read.append(len((await session.call(read_file(small)))["dataBase64"]))

    server = own(rig, Listen.UNIX)
    async with connecting(server) as connect:
        ends = [await converse(connect, serve, gaps) for serve in (serve_big, serve_small)]
    assert [type(end) for end in ends] == [FrameTooBig, LinkLost]
    assert read == [400]
    assert gaps == []
