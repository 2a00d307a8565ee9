"""Acceptance tests run against the real `codex app-server`, each supported version of it.

A version that is not on this machine is left out with a note at the end; with
`CODEXDRV_REQUIRE_ALL_VERSIONS=1`, as in CI, it is an error. `CODEXDRV_TEST_CODEX=PATH` runs
everything on that binary alone.
"""

import os
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.acceptance.binaries import (
    BUNDLED,
    VERSIONS,
    Binary,
    NoBinary,
    by_version,
    find_binary,
    read_version,
)
from tests.acceptance.cells import TABLE, Cell, load_table, write_table
from tests.acceptance.kit import Message, Rig
from tests.acceptance.machine import Machine


TIMEOUT_S = 60
HERE = Path(__file__).parent
LEFT_OUT = pytest.StashKey[Counter[str]]()
SEEN = pytest.StashKey[dict[str, Message]]()
RECORDS = os.environ.get("CODEXDRV_RECORD_COMPATIBILITY") == "1"


@cache
def binaries() -> dict[str, Binary | NoBinary]:
    """Say of each version that is to be tested where it is, or why it is not there."""
    named = os.environ.get("CODEXDRV_TEST_CODEX")
    if named:
        try:
            version = read_version(named)
        except NoBinary as error:
            raise pytest.UsageError(f"CODEXDRV_TEST_CODEX: {error}") from error
        return {version: Binary(version, named)}
    found: dict[str, Binary | NoBinary] = {}
    for version in VERSIONS:
        try:
            found[version] = find_binary(version)
        except NoBinary as error:
            found[version] = error
    return found


def missing() -> dict[str, NoBinary]:
    return {name: why for name, why in binaries().items() if isinstance(why, NoBinary)}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "one_version: it is not about what differs by version; the bundled one will do"
    )
    config.stash[LEFT_OUT] = Counter()
    config.stash[SEEN] = {}
    if os.environ.get("CODEXDRV_REQUIRE_ALL_VERSIONS") == "1":
        reasons = [*map(str, missing().values())]
        if not binaries().keys() >= set(VERSIONS):
            reasons.append("CODEXDRV_TEST_CODEX names one binary alone")
        if reasons:
            raise pytest.UsageError("CODEXDRV_REQUIRE_ALL_VERSIONS: " + "; ".join(reasons))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "version" not in metafunc.fixturenames:
        return
    versions = list(binaries())
    if metafunc.definition.get_closest_marker("one_version") and BUNDLED in versions:
        versions = [BUNDLED]
    metafunc.parametrize("version", versions)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
        (left if version_of(item) in missing() else kept).append(item)
    if left:
        config.stash[LEFT_OUT].update(map(version_of, left))
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if missing():
        terminalreporter.section("LEFT OUT", sep="!", red=True)
    for version, why in missing().items():
        # Where workers ran the tests, they alone know how many.
        tests = terminalreporter.config.stash[LEFT_OUT][version] or "some"
        terminalreporter.line(f"codex {version}: {tests} of the tests did not run: {why}", red=True)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    result = yield
    cell = pyfuncitem.funcargs.get("cell")
    if isinstance(cell, Cell):
        note_cell(cell, pyfuncitem)
    return result


def note_cell(cell: Cell, test: pytest.Function) -> None:
    """Note what a test has seen, and hold it against the committed table."""
    name = test.function.__name__.removeprefix("test_")
    title, version = test.function.__doc__, version_of(test)
    row = test.config.stash[SEEN].setdefault(name, {"title": title, "cells": {}})
    row["cells"][version] = cell.text
    if not RECORDS:
        known = load_table().get(name, {"title": None, "cells": {version: ""}})
        committed = (known["title"], by_version(known["cells"], version))
        assert (title, cell.text) == committed, "if it is right so: make compatibility"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if RECORDS and exitstatus == 0:
        write_table(session.config.stash[SEEN], TABLE)


def version_of(item: pytest.Item) -> str:
    return str(item.callspec.params.get("version", "")) if hasattr(item, "callspec") else ""


@pytest.fixture
def codex(version: str) -> str:
    """The binary under test."""
    found = binaries()[version]
    assert isinstance(found, Binary)
    return found.path


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


@pytest.fixture
def cell(machine: Machine) -> Cell:
    """The cell of docs/compatibility.md that the test is about."""
    return Cell(machine)
