"""Everything of the engine runs in virtual time, with a real journal and a server in memory."""

import pytest

from tests.engine.kit import Bench
from tests.virtual_time import VIRTUAL_TIME


@pytest.fixture
def anyio_backend():
    return VIRTUAL_TIME


@pytest.fixture
async def bench(tmp_path):
    async with Bench(tmp_path) as bench:
        yield bench
