"""Acceptance tests run against the real `codex app-server`; they are never skipped."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from codexdrv.demo.server import find_codex
from tests.acceptance.kit import Rig
from tests.acceptance.machine import Machine


TIMEOUT_S = 60
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def codex() -> str:
    """The binary under test: `CODEXDRV_TEST_CODEX`, else the bundled one."""
    return os.environ.get("CODEXDRV_TEST_CODEX") or find_codex()


@pytest.fixture
def rig(tmp_path: Path, codex: str) -> Iterator[Rig]:
    """A server and a model of the test's own, both up."""
    with Rig(tmp_path, binary=codex) as rig:
        yield rig


@pytest.fixture
def machine(rig: Rig) -> Iterator[Machine]:
    """A state directory and a configuration for the rig; no supervisor runs yet."""
    with Machine(rig) as machine:
        yield machine
