"""A server of our own is seen gone, whoever holds its pipes."""

import sys
from contextlib import asynccontextmanager

import anyio
import pytest

from codexdrv.errors import LinkLost
from codexdrv.transport.channel import Channel
from codexdrv.transport.child import Child
from codexdrv.wire.jsonl import JsonlFraming
from codexdrv.wire.message import Response
from tests.contract.kit import Link, run_link
from tests.contract.ways import STOP_GRACE_S, WAIT_S, listening


SERVER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-I", "-S", "-c", sys.argv[1]], start_new_session=True)
sys.stdin.readline()
sys.stdin.readline()
print('{"id":1,"result":"last words"}')
"""
"""Leaves a process behind, out of its own group; takes two requests, answers one, and ends."""

HOLDER = """
import socket
sock = socket.socket(socket.AF_UNIX)
sock.connect("s")
sock.recv(1)
"""
"""Holds the pipes that it inherits for as long as the test holds the other end of its socket."""


@asynccontextmanager
async def open_held(directory):
    """A child whose pipes another process holds; in place of the peer's end, that one's socket."""
    with listening(directory) as server:
        child = Child(
            [sys.executable, "-I", "-S", "-c", SERVER, HOLDER],
            environment={},
            directory=str(directory),
            on_stderr=lambda _: None,
            has_pipes=True,
        )
        try:
            with anyio.fail_after(WAIT_S):
                await anyio.wait_readable(server)
            holder, _ = server.accept()
            with holder:
                holder.setblocking(False)
                yield child, holder
        finally:
            with anyio.CancelScope(shield=True):
                await child.stop(STOP_GRACE_S)


async def test_the_end_of_a_server_is_seen_though_another_process_holds_its_pipes(tmp_path):
    async with open_held(tmp_path) as (child, holder), child.stream() as stream:
        async with run_link(Link(Channel(stream, JsonlFraming())), Link.run_rpc) as link:
            answered, unanswered = link.ask(), link.ask()
            assert type(await link.ended()) is LinkLost
            await answered.over()
            await unanswered.over()
        assert answered.told == [Response(1, "last words")]
        assert (type(unanswered.error), unanswered.error.maybe_written) == (LinkLost, True)
        # The other one is still there: its connection has not ended.
        with pytest.raises(BlockingIOError):
            holder.recv(1)
