"""Pauses between connections, which server it was, and what the log says of each connection."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import pytest
import structlog

from codexdrv.config import Limits
from codexdrv.errors import NoServer
from codexdrv.generations import STEADY_S, Generations
from codexdrv.protocol.questions import Policy
from codexdrv.transport.peer import PeerIdentity
from tests.virtual_time import VIRTUAL_TIME


@pytest.fixture
def anyio_backend():
    return VIRTUAL_TIME


class Refusing:
    """Nobody listens, for these reasons, one after the other; then the world stops."""

    def __init__(self, *reasons):
        self.reasons = [*reasons]

    @asynccontextmanager
    async def connect(self):
        if not self.reasons:
            await anyio.sleep_forever()
        raise NoServer(self.reasons.pop(0))
        yield


def make(connect=None, **kept):
    return Generations(
        connect,
        kept.get("ledger"),
        kept.get("lanes"),
        limits=Limits(),
        policy=Policy.LEAVE,
        version="0",
        codex_home="/home",
        on_change=lambda: None,
    )


def test_pauses_between_tries_grow_until_a_connection_was_steady():
    generations = make()
    pauses = []
    for failures in range(1, 20):
        generations._failures = failures
        pauses.append(generations._next_pause_s(None))
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == STEADY_S


def test_a_server_is_another_one_when_its_process_is():
    generations = make()
    one, two = PeerIdentity(7, 1, "boot"), PeerIdentity(7, 2, "boot")
    for peer in (one, one, two, two, one):
        generations._count_server(SimpleNamespace(peer=peer, pid=peer.pid))
    # Where only its pid is known, that has to do.
    for pid in (8, 8, 9):
        generations._count_server(SimpleNamespace(peer=None, pid=pid))
    assert generations.link().restarts == 4


async def test_a_server_that_stays_away_has_a_line_a_reason_in_the_log():
    refusing = Refusing("none", "none", "none", "no home", "none")
    generations = make(refusing.connect)
    with structlog.testing.capture_logs() as lines:
        with anyio.move_on_after(300):
            await generations.run()
    assert [(line["event"], line["error"], line["count"]) for line in lines] == [
        ("server.unreachable", "none", 1),
        ("server.unreachable", "no home", 4),
        ("server.unreachable", "none", 5),
    ]
    assert generations.is_without_server
    assert generations.link().problem == "none"
