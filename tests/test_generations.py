"""Pauses between connections, which server it was, and what the log says of each connection."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import pytest
import structlog

from codexdrv.config import Limits
from codexdrv.connect import Connection
from codexdrv.engine.lanes import Lanes, LaneSettings
from codexdrv.engine.questions import KnownQuestions
from codexdrv.errors import LinkLost, NoServer, ServerKeepsDying
from codexdrv.generations import STEADY_S, Generations
from codexdrv.protocol.questions import Policy
from codexdrv.transport.channel import Channel
from codexdrv.transport.peer import PeerIdentity
from tests.engine.kit import LANE_PACE, PEER, Bench
from tests.fakes.connection import serve_lines
from tests.fakes.line_framing import LineFraming
from tests.fakes.streams import open_pair
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
        known=KnownQuestions(),
        version="0",
        codex_home=kept.get("codex_home", "/home"),
        heeds_ring=kept.get("heeds_ring", True),
        on_change=lambda: None,
    )


def test_pauses_between_tries_grow_up_to_a_minute():
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


class Lasting:
    """A server that greets and then hangs up, each time after so many seconds."""

    def __init__(self, bench, *lasting_s):
        self.bench = bench
        self.lasting_s = [*lasting_s]
        #: When each connection was asked for.
        self.tried_at = []

    @asynccontextmanager
    async def connect(self):
        self.tried_at.append(anyio.current_time())
        if not self.lasting_s:
            await anyio.sleep_forever()
        stream, theirs = open_pair()
        self.bench.tasks.start_soon(serve_lines, self.bench.server, theirs)
        self.bench.tasks.start_soon(self._hang_up, self.lasting_s.pop(0))
        yield Connection(Channel(stream, LineFraming()), PEER, PEER.pid)

    async def _hang_up(self, after_s):
        await anyio.sleep(after_s)
        self.bench.server.drop_all()


@pytest.fixture
async def bench(tmp_path):
    async with Bench(tmp_path) as bench:
        yield bench


def generations_on(bench, lasting):
    settings = LaneSettings(LANE_PACE, bench.patience, {}, bench.surroundings, bench.began_ms, 5.0)
    lanes = Lanes(bench.ledger, settings, is_draining=anyio.Event(), on_change=lambda: None)
    return make(
        lasting.connect, ledger=bench.ledger, lanes=lanes, codex_home=str(bench.server.home)
    )


async def run_on(bench, *lasting_s):
    """Run generations on connections that last so long; say when each was tried, and the log."""
    lasting = Lasting(bench, *lasting_s)
    with structlog.testing.capture_logs() as lines, anyio.move_on_after(3600):
        await generations_on(bench, lasting).run()
    return lasting.tried_at, lines


async def test_a_connection_that_stood_for_a_minute_makes_the_next_pause_small_again(bench):
    lasting_s = (1, 1, 1, STEADY_S + 1, 1)
    tried_at, _ = await run_on(bench, *lasting_s)
    ends = [at + lasted for at, lasted in zip(tried_at, lasting_s, strict=False)]
    pauses = [at - end for end, at in zip(ends, tried_at[1:], strict=True)]
    assert [round(pause) for pause in pauses] == [1, 2, 4, 1, 2]


async def test_a_connection_has_a_line_when_it_begins_and_one_when_it_ends(bench):
    _, lines = await run_on(bench, 5)
    assert lines == [
        {
            "event": "generation.started",
            "log_level": "info",
            "generation": 1,
            "server": "0.171.0",
            "server_pid": PEER.pid,
        },
        {
            "event": "generation.ended",
            "log_level": "info",
            "generation": 1,
            "server_pid": PEER.pid,
            "lasted_s": 5.0,
            "surfaced": 0,
            "reason": lines[1]["reason"],
        },
    ]
    assert "connection" in lines[1]["reason"]


class Dying(Lasting):
    """A server of our own, whose first death is its last."""

    @asynccontextmanager
    async def connect(self):
        try:
            async with super().connect() as connection:
                yield connection
        except LinkLost as error:
            raise ServerKeepsDying("It has died once.\nIts words.") from error


async def test_a_connection_that_ends_by_us_or_for_good_says_so_in_the_same_field(bench):
    _, lines = await run_on(bench, 7200)
    assert lines[1]["reason"] == "we stopped"
    with structlog.testing.capture_logs() as lines, pytest.raises(ServerKeepsDying):
        await generations_on(bench, Dying(bench, 5)).run()
    assert [line["event"] for line in lines] == ["generation.started", "generation.ended"]
    assert lines[1]["reason"] == "It has died once."


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
