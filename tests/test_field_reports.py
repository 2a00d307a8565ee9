"""What went wrong for others (docs/field-reports.md), where no other test shows all of it."""

import os

import anyio
import pytest

from codexdrv.errors import Refused
from codexdrv.lock import FILE_NAME, held_lock
from codexdrv.protocol.events import Unrecognized
from codexdrv.protocol.methods import read_thread
from codexdrv.rules.ownership import Phase
from codexdrv.wire.message import Notification, Request
from tests.engine.kit import Bench, pass_time, until
from tests.fakes.server import DRAINING, OVERLOADED, UNHEARD_OF, Reply
from tests.virtual_time import VIRTUAL_TIME


NEWS = 1000
LONG_S = 1800.0
ANY_UUID = "01a22d0b-8d92-7622-a61b-221d9b94b56e"

RESUME_FAILS = (
    (OVERLOADED, "overloaded"),
    (DRAINING, "draining"),
    (UNHEARD_OF, "unknown"),
    (Refused(-32603, "failed to read the rollout"), "unknown"),
    (Refused(-32600, "Invalid request: missing field `threadId`"), "unknown"),
    (Refused(-32600, f"thread {ANY_UUID} already has an active writer"), "active_writer"),
    (Refused(-32600, f"session {ANY_UUID} is archived"), "archived"),
    (Refused(-32600, f"thread not found: {ANY_UUID}"), "not_loaded"),
    (Refused(-32600, f"thread not loaded: {ANY_UUID}"), "unknown_thread"),
)
"""Why, and the reason that is shown; a thread without a rollout has tests of its own."""


@pytest.fixture
def anyio_backend():
    return VIRTUAL_TIME


@pytest.fixture
async def bench(tmp_path):
    async with Bench(tmp_path) as bench:
        yield bench


@pytest.fixture
def thread(bench):
    return bench.server.add_thread()


async def until_surfaced(bench, name="m1"):
    await bench.until_phase(Phase.SURFACED, name)


# Turns.


@pytest.mark.field_report("codex-plugin-cc#781")
async def test_an_answer_without_a_turn_costs_nothing_where_the_echo_names_it(bench, thread):
    thread.holds_turns = True
    bench.server.twist("turn/start", result={"no": "turn"})
    bench.admit("m1", thread=thread)
    bench.admit("m2", thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await until_surfaced(bench, "m2")
        assert bench.standing("m1").turn == thread.running.id
    assert [client_id for client_id, _ in thread.messages] == [None, "m1", "m2"]


# Threads.


@pytest.mark.field_report("nimbalyst#1254")
@pytest.mark.parametrize(("refusal", "reason"), RESUME_FAILS)
async def test_whatever_a_resume_fails_of_is_shown_and_no_other_thread_is_begun(
    bench, thread, refusal, reason
):
    is_failing = True

    def refuse(request):
        if is_failing and request.method == "thread/resume":
            bench.server.refuse("thread/resume", refusal)

    bench.server.on_request = refuse
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await pass_time(LONG_S)
        assert (bench.standing().phase, bench.standing().reason) == (Phase.QUEUED, reason)
        assert bench.story() == [f"held {reason}"]
        is_failing = False
        await until_surfaced(bench)
    assert not {"thread/start", "thread/fork"} & {each.method for each in bench.server.requests}
    assert bench.server.threads.keys() == {thread.id}
    assert thread.messages[1:] == [("m1", "hello")]


async def test_a_server_that_drains_for_half_an_hour_is_asked_rarely_and_gets_it_at_the_end(
    bench, thread
):
    is_draining = True

    def refuse(request):
        if is_draining and request.method in {"thread/resume", "turn/steer", "turn/start"}:
            bench.server.refuse(request.method, DRAINING)

    bench.server.on_request = refuse
    bench.admit(thread=thread)
    async with bench.connected() as generation, bench.serving(generation, thread):
        await pass_time(LONG_S)
        assert (bench.story(), bench.standing().phase) == (["held draining"], Phase.QUEUED)
        assert len(bench.server.requests) < LONG_S
        is_draining = False
        await until_surfaced(bench)
    assert thread.messages[1:] == [("m1", "hello")]


# Frames.


@pytest.mark.field_report("agmsg#299")
async def test_a_request_of_the_server_that_has_the_id_of_ours_is_no_answer_to_it(bench, thread):
    bench.server.twist("thread/read", reply=Reply.LATE)
    answers = []
    async with bench.connected() as generation, anyio.create_task_group() as tasks:

        async def ask():
            answers.append(await generation.session.call(read_thread(thread.id)))

        tasks.start_soon(ask)
        await until(lambda: bench.server.requests[-1].method == "thread/read")
        (connection,) = bench.server.connections
        ours = bench.server.requests[-1].id
        connection.send(Request(ours, "item/tool/requestUserInput", {"result": "no answer"}))
        connection.send(Notification("some/news", {}))
        await until(lambda: Unrecognized("some/news") in generation.events)
        assert answers == []
        bench.server.release()
        await until(lambda: answers != [])
    assert [answer["thread"]["id"] for answer in answers] == [thread.id]


class HangingDisk(Bench):
    """Its journal takes as long as a test wants."""

    def __init__(self, directory):
        super().__init__(directory)
        self.is_well = anyio.Event()
        self.is_well.set()
        self.waiting = 0

    async def _run_in_place(self, work):
        self.waiting += 1
        await self.is_well.wait()
        self.waiting -= 1
        return await super()._run_in_place(work)


@pytest.mark.field_report("openai/codex#37526")
async def test_what_a_server_says_is_heard_while_our_disk_hangs(tmp_path):
    async with HangingDisk(tmp_path) as bench:
        thread = bench.server.add_thread(holds_turns=True)
        bench.admit(thread=thread)
        async with bench.connected() as generation, bench.serving(generation, thread):
            await until_surfaced(bench)
            bench.is_well = anyio.Event()
            bench.server.finish(thread)
            await until(lambda: bench.waiting > 0)
            (connection,) = bench.server.connections
            for number in range(NEWS):
                connection.send(Notification("some/news", {"number": number}))
            await until(lambda: generation.events.count(Unrecognized("some/news")) == NEWS)
            assert bench.waiting > 0
            assert generation.end is None
            bench.is_well.set()
            await until(lambda: bench.standing().outcome == "completed")


# Operations.


@pytest.mark.field_report("openai/codex#47206", "agmsg#442")
@pytest.mark.parametrize(
    "text",
    [f"{os.getpid()}\n", f"{os.getppid()}\n", "1\n", "99999999\n", "", "no pid"],
    ids=["ours", "our parent's", "one that lives for ever", "one that is not there", "none", "-"],
)
def test_whatever_pid_a_dead_supervisor_left_in_its_lock_the_next_one_starts(tmp_path, text):
    (tmp_path / FILE_NAME).write_text(text)
    with held_lock(str(tmp_path)):
        assert (tmp_path / FILE_NAME).read_text() == f"{os.getpid()}\n"
