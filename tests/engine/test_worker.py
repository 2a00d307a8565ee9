import anyio
import pytest

from codexdrv.engine.worker import in_one_thread


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def test_work_in_the_journals_thread_is_done_in_the_order_of_asking():
    run, done = in_one_thread(), []
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(run, lambda number=number: done.append(number))
    assert done == list(range(20))
