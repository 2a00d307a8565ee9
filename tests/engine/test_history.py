import anyio
import pytest

from codexdrv.engine.history import fetch_newest_page, fetch_turn_statuses
from codexdrv.errors import Refused
from codexdrv.ids import TurnId
from codexdrv.protocol.events import TurnStatus, UserMessage
from codexdrv.protocol.methods import PAGE_ITEMS
from codexdrv.protocol.results import Page
from tests.engine.kit import until
from tests.fakes.server import NOT_SUPPORTED, OVERLOADED, Reply


@pytest.fixture
def thread(bench):
    """A thread with a steered turn behind a plain one."""
    thread = bench.server.add_thread()
    bench.server.begin(thread, "first", client_id="m1")
    thread.holds_turns = True
    turn = bench.server.begin(thread, "second", client_id="m2")
    bench.server.put(thread, turn, {**turn.items[0], "clientId": "m3"})
    return thread


def expected(thread):
    before, first, second = (turn.id for turn in thread.turns)
    messages = (
        UserMessage(second, "m3", "second"),
        UserMessage(second, "m2", "second"),
        UserMessage(first, "m1", "first"),
        UserMessage(before, None, "hello"),
    )
    return Page(messages, second, (second, first, before))


def asked(bench):
    return [request.method for request in bench.server.requests[1:]]


async def test_items_are_listed_newest_first(bench, thread):
    async with bench.connected() as generation:
        assert await fetch_newest_page(generation.session, thread.id) == expected(thread)
    assert asked(bench) == ["thread/items/list"]


async def test_a_thread_without_a_list_of_items_is_read_by_turns_in_full(bench, thread):
    bench.server.refuse("thread/items/list", NOT_SUPPORTED)
    async with bench.connected() as generation:
        page = await fetch_newest_page(generation.session, thread.id)
    # Two turns are a page here: the running one, and the one before.
    newest_two = expected(thread).turns[:2]
    assert page == expected(thread)._replace(
        messages=expected(thread).messages[:3], turns=newest_two, cursor="2"
    )
    assert asked(bench) == ["thread/items/list", "thread/turns/list"]
    assert bench.server.requests[-1].params["itemsView"] == "full"


async def test_a_page_over_the_cap_on_stdio_is_asked_for_again_with_less(bench, thread):
    async with bench.connected() as generation, anyio.create_task_group() as tasks:
        bench.server.twist("thread/items/list", reply=Reply.NEVER)
        bench.server.twist("thread/items/list", reply=Reply.NEVER)
        pages = []

        async def fetch():
            pages.append(await fetch_newest_page(generation.session, thread.id))

        tasks.start_soon(fetch)
        for asked_for in (2, 3):
            await until(lambda asked_for=asked_for: len(bench.server.requests) == asked_for)
            # As the channel tells of it, where the framing lives on behind such a message.
            generation.session._rpc._lose(b'{"id":%d,"result":' % bench.server.requests[-1].id)
        await until(lambda: bool(pages))
    (page,) = pages
    assert page.messages == expected(thread).messages[:2]
    limits = [request.params["limit"] for request in bench.server.requests[1:]]
    assert limits == [PAGE_ITEMS, PAGE_ITEMS // 4, PAGE_ITEMS // 16]
    assert generation.session.page_items == PAGE_ITEMS // 16


async def test_a_thread_without_any_list_is_read_as_a_whole(bench, thread):
    bench.server.refuse("thread/items/list", NOT_SUPPORTED)
    bench.server.refuse("thread/turns/list", NOT_SUPPORTED)
    async with bench.connected() as generation:
        assert await fetch_newest_page(generation.session, thread.id) == expected(thread)
    assert asked(bench)[-1] == "thread/read"


async def test_what_a_thread_supports_is_asked_anew_each_time(bench, thread):
    bench.server.refuse("thread/items/list", NOT_SUPPORTED)
    async with bench.connected() as generation:
        await fetch_newest_page(generation.session, thread.id)
        await fetch_newest_page(generation.session, thread.id)
    assert asked(bench) == ["thread/items/list", "thread/turns/list", "thread/items/list"]


async def test_another_refusal_is_not_taken_for_a_missing_list(bench, thread):
    bench.server.refuse("thread/items/list", OVERLOADED)
    async with bench.connected() as generation:
        with pytest.raises(Refused):
            await fetch_newest_page(generation.session, thread.id)
    assert asked(bench) == ["thread/items/list"]


async def test_a_page_is_no_longer_than_its_limit(bench, thread):
    for number in range(PAGE_ITEMS):
        bench.server.put(thread, thread.running, {**thread.turns[0].items[0], "id": str(number)})
    async with bench.connected() as generation:
        page = await fetch_newest_page(generation.session, thread.id)
    assert len(page.messages) == PAGE_ITEMS


async def test_turns_are_read_with_how_they_stand(bench, thread):
    before, first, second = (turn.id for turn in thread.turns)
    async with bench.connected() as generation:
        wanted = {before, second, TurnId("reverted")}
        statuses = await fetch_turn_statuses(generation.session, thread.id, wanted)
    assert first not in statuses
    assert statuses == {
        second: TurnStatus.IN_PROGRESS,
        before: TurnStatus.COMPLETED,
        "reverted": None,
    }
    assert bench.server.requests[-1].params["itemsView"] == "notLoaded"
