"""Each test here is a sentence about every way to run a channel."""

from functools import partial

import pytest

from tests.contract.kit import Link, open_link
from tests.contract.ways import WAYS


@pytest.fixture(params=WAYS, ids=str)
def way(request):
    return request.param


@pytest.fixture
def open_channel(way, tmp_path):
    """Open a link that carries bytes."""
    return partial(open_link, way, tmp_path, Link.run_channel)


@pytest.fixture
def open_rpc(way, tmp_path):
    """Open a link that carries requests and answers."""
    return partial(open_link, way, tmp_path, Link.run_rpc)
