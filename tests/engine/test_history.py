import anyio
import pytest

from codexdrv.engine.history import (
    PAGES_MAX,
    Passage,
    fetch_newest_page,
    fetch_through,
    fetch_turn_statuses,
)
from codexdrv.errors import Refused
from codexdrv.ids import TurnId
from codexdrv.protocol.events import TurnStatus, UserMessage
from codexdrv.protocol.methods import PAGE_ITEMS
from codexdrv.protocol.results import Page
from tests.engine.kit import until
from tests.fakes.server import NOT_SUPPORTED, OVERLOADED, Reply
from tests.fakes.threads import FakeTurn, user_message


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


async def with_answers_over_the_cap(bench, session, fetch, *numbers):
    """Fetch, while the answers to these requests (the greeting is the first) are over the cap."""
    fetched = []

    async def run():
        fetched.append(await fetch())

    for number in range(2, max(numbers) + 1):
        reply = Reply.NEVER if number in numbers else Reply.NOW
        bench.server.twist("thread/items/list", reply=reply)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        for number in numbers:
            await until(lambda number=number: len(bench.server.requests) == number)
            # As the channel tells of it, where the framing lives on behind such a message.
            session._rpc._lose(b'{"id":%d,"result":' % bench.server.requests[-1].id)
    return fetched[0]


async def test_a_page_over_the_cap_on_stdio_is_asked_for_again_with_less(bench, thread):
    async with bench.connected() as generation:
        session = generation.session
        page = await with_answers_over_the_cap(
            bench, session, lambda: fetch_newest_page(session, thread.id), 2, 3
        )
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


@pytest.mark.field_report("phoenix#8464", "rome#243")
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


# Reading through a turn.


WAYS = {
    "items": (),
    "turns": ("thread/items/list",),
    "whole": ("thread/items/list", "thread/turns/list"),
}
"""The ways to read history, each with what the thread does not support."""


async def read_through(bench, thread, anchor, *, way="items", page_items=PAGE_ITEMS):
    for method in WAYS[way]:
        bench.server.refuse(method, NOT_SUPPORTED)
    async with bench.connected() as generation:
        generation.session.page_items = page_items
        return await fetch_through(generation.session, thread.id, anchor)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("page_items", [1, 2, 3, PAGE_ITEMS])
@pytest.mark.parametrize("nth", [0, 1, 2])
async def test_a_thread_is_read_through_the_whole_turn_in_every_way(
    bench, thread, way, page_items, nth
):
    anchor = thread.turns[nth].id
    messages = expected(thread).messages
    passage = await read_through(bench, thread, anchor, way=way, page_items=page_items)
    assert passage == Passage(messages[: len(passage.messages)], True, True)
    wanted = [message for message in messages if message.turn >= anchor]
    assert list(passage.messages[: len(wanted)]) == wanted


@pytest.mark.parametrize("way", ["items", "turns"])
async def test_no_page_is_read_behind_the_one_that_begins_before_the_turn(bench, thread, way):
    for _ in range(20):
        thread.turns.insert(0, FakeTurn(status="completed", items=[user_message(None, "old")]))
    second = thread.turns[-1].id
    passage = await read_through(bench, thread, second, way=way, page_items=2)
    assert passage.is_complete
    assert len(passage.messages) < 5
    assert len(bench.server.requests) < 5


@pytest.mark.parametrize("way", WAYS)
async def test_without_a_turn_to_read_through_all_of_it_is_read(bench, thread, way):
    passage = await read_through(bench, thread, None, way=way, page_items=1)
    assert passage == Passage(expected(thread).messages, True, True)


@pytest.mark.parametrize("way", WAYS)
async def test_a_turn_that_is_not_there_is_looked_for_to_the_beginning(bench, thread, way):
    passage = await read_through(bench, thread, TurnId("reverted"), way=way, page_items=1)
    assert passage == Passage(expected(thread).messages, True, False)


async def test_what_comes_while_it_is_read_moves_no_page(bench, thread):
    before, _, second = (turn.id for turn in thread.turns)
    known = expected(thread).messages
    bench.server.on_follow["thread/items/list"] = lambda: bench.server.put(
        thread, thread.running, user_message("m4", "while it is read")
    )
    passage = await read_through(bench, thread, before, page_items=1)
    assert thread.messages[-1] == ("m4", "while it is read")
    assert passage.messages == known
    assert passage.messages[0].turn == second


async def test_what_is_too_long_to_be_read_through_is_not_complete(bench, thread):
    for number in range(PAGES_MAX):
        bench.server.put(thread, thread.running, user_message(f"n{number}", "one more"))
    passage = await read_through(bench, thread, thread.turns[0].id, page_items=1)
    assert passage == Passage(expected_newest(thread, PAGES_MAX), False, False)
    assert len(asked(bench)) == PAGES_MAX


async def test_a_turn_that_alone_is_too_long_is_there_and_not_complete(bench, thread):
    for number in range(PAGES_MAX):
        bench.server.put(thread, thread.running, user_message(f"n{number}", "one more"))
    passage = await read_through(bench, thread, thread.running.id, page_items=1)
    assert (passage.is_complete, passage.has_anchor) == (False, True)


def expected_newest(thread, count):
    newest = thread.messages[::-1][:count]
    return tuple(UserMessage(thread.running.id, *message) for message in newest)


async def test_a_later_page_over_the_cap_is_asked_for_again_with_less(bench, thread):
    async with bench.connected() as generation:
        session = generation.session
        session.page_items = 4
        passage = await with_answers_over_the_cap(
            bench, session, lambda: fetch_through(session, thread.id, None), 3
        )
    assert passage == Passage(expected(thread).messages, True, True)
    assert [request.params["limit"] for request in bench.server.requests[1:]] == [4, 4, 1]


@pytest.mark.parametrize("nth", [1, 2])
async def test_an_item_that_fits_into_no_answer_leaves_the_passage_incomplete(bench, thread, nth):
    async with bench.connected() as generation:
        session = generation.session
        session.page_items = 1
        passage = await with_answers_over_the_cap(
            bench, session, lambda: fetch_through(session, thread.id, None), nth + 1
        )
    assert passage == Passage(expected(thread).messages[: nth - 1], False, True)


async def test_a_passage_is_not_read_where_history_is_refused(bench, thread):
    bench.server.twist("thread/items/list")
    bench.server.refuse("thread/items/list", OVERLOADED)
    async with bench.connected() as generation:
        generation.session.page_items = 1
        with pytest.raises(Refused):
            await fetch_through(generation.session, thread.id, None)
