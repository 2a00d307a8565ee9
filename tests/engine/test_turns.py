"""Whether a turn runs in any thread of the server: it is asked, whoever the thread belongs to."""

import pytest

from codexdrv.engine.turns import PAGE_THREADS, runs_a_turn
from codexdrv.errors import Refused
from tests.fakes.server import OVERLOADED


async def ask(bench):
    async with bench.connected() as generation:
        return await runs_a_turn(generation.session)


async def test_a_server_without_threads_runs_none(bench):
    assert not await ask(bench)


async def test_idle_threads_run_none(bench):
    bench.server.add_thread()
    bench.server.add_thread(is_used=False)
    bench.server.add_thread(is_loaded=False)
    assert not await ask(bench)


async def test_a_turn_that_began_before_we_came_and_is_not_ours_counts(bench):
    bench.server.add_thread()
    busy = bench.server.add_thread(holds_turns=True)
    bench.server.begin(busy, "somebody else's")
    assert await ask(bench)


async def test_it_counts_on_any_page(bench):
    for _ in range(PAGE_THREADS):
        bench.server.add_thread()
    busy = bench.server.add_thread(holds_turns=True)
    bench.server.begin(busy, "on the second page")
    assert await ask(bench)
    bench.server.finish(busy)
    assert not await ask(bench)


async def test_a_thread_that_is_unloaded_between_the_questions_runs_none(bench):
    thread = bench.server.add_thread()
    bench.server.refuse("thread/read", Refused(-32600, f"thread not loaded: {thread.id}"))
    assert not await ask(bench)


async def test_a_server_that_does_not_say_has_said_nothing(bench):
    bench.server.add_thread()
    bench.server.refuse("thread/read", OVERLOADED)
    async with bench.connected() as generation:
        with pytest.raises(Refused):
            await runs_a_turn(generation.session)
