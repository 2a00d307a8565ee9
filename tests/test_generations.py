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
        heeds_ring=kept.get("heeds_ring", True),
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


@pytest.mark.parametrize(
    ("heeds_ring", "rung_at", "waited"),
    [
        (True, 0.5, 1.0),
        (True, 1.5, 1.5),
        (True, None, 60.0),
        # Nobody else mends a server of our own.
        (False, 1.5, 60.0),
    ],
)
async def test_a_ring_cuts_a_pause_short_but_not_below_a_second(heeds_ring, rung_at, waited):
    generations = make(heeds_ring=heeds_ring)
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(generations._pause, 60.0)
        if rung_at is not None:
            await anyio.sleep(rung_at)
            generations.ring()
    assert anyio.current_time() - began == waited


def test_between_an_end_and_the_next_try_there_is_no_server_and_a_reason():
    generations = make()
    generations._problem = None
    assert generations.link().problem == "the connection has just ended"
    assert not generations.link().is_connected


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
