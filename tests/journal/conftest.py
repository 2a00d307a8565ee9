"""A journal on disk, for each test its own."""

import pytest

from codexdrv.journal.journal import Journal, Writer
from tests.fakes.orders import NOW_MS


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path / "state")


@pytest.fixture
def journal(directory):
    with Journal(directory) as journal:
        yield journal


@pytest.fixture
def writer(journal):
    """The newest life, as long as nobody begins another."""
    return Writer(journal.begin_life((1, None, None), "test", now_ms=NOW_MS), 1)
