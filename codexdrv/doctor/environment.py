"""The Python that runs us, the package beside us, and the configuration."""

import importlib.metadata
import importlib.util
import os
import platform
import sqlite3
from typing import NamedTuple

from codexdrv.config import Config
from codexdrv.doctor.finding import Finding, failed, note, ok, wrong
from codexdrv.doctor.interpreter import AGAIN, OF_ITS_OWN
from codexdrv.journal.opening import SQLITE_VERSION_MIN
from codexdrv.paths import Offence


PACKAGE = "supervisor"
"""The import name of our resident process, and of another project on PyPI."""

PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""Where `codexdrv` lies; however it is installed, our `supervisor` lies beside it."""


class Python(NamedTuple):
    """What runs us."""

    version: str
    sqlite: tuple[int, ...]


class Neighbour(NamedTuple):
    """What `import supervisor` finds, and whether PyPI's package of that name is installed."""

    #: The directory of ours, without links.
    ours: str
    #: Where modules of `supervisor` are looked for, in this order, without links.
    found: tuple[str, ...]
    #: The version of PyPI's `supervisor`; None: it is not installed here.
    foreign: str | None
    #: Where that one keeps its modules.
    foreign_place: str | None


def look_at_python() -> Python:
    """Look at what runs us."""
    return Python(platform.python_version(), sqlite3.sqlite_version_info)


def judge_python(python: Python) -> Finding:
    """Say whether it is new enough; a Python that is too old cannot even say so."""
    sqlite = ".".join(map(str, python.sqlite))
    found = f"Python {python.version}, SQLite {sqlite}"
    if python.sqlite < SQLITE_VERSION_MIN:
        return wrong(
            "python",
            f"{found}: the journal needs SQLite 3.37",
            "Install codexdrv with a Python that is built with SQLite 3.37 or newer.",
        )
    return ok("python", found)


def look_at_neighbour() -> Neighbour:
    """Look for the package that has our name, without importing either."""
    ours = os.path.realpath(os.path.join(PARENT, PACKAGE))
    spec = importlib.util.find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec else None
    found = tuple(os.path.realpath(place) for place in places or ())
    try:
        foreign = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return Neighbour(ours, found, None, None)
    place = os.path.realpath(str(foreign.locate_file(PACKAGE)))
    return Neighbour(ours, found, foreign.version, place)


def judge_neighbour(seen: Neighbour | Offence) -> Finding:
    """Say whether `import supervisor` finds ours, and what becomes of the other one."""
    if isinstance(seen, Offence):
        return failed("package", seen)
    if seen.ours not in seen.found:
        there = seen.found[0] if seen.found else "nothing"
        is_foreign = seen.foreign is not None and seen.foreign_place in seen.found
        name = f" (PyPI's supervisor {seen.foreign})" if is_foreign else ""
        return wrong(
            "package",
            f"`import supervisor` finds {there}{name}, not {seen.ours}: `supervise` cannot start",
            OF_ITS_OWN if seen.found else AGAIN,
        )
    if seen.foreign is None:
        return ok("package", f"`supervisor` is ours, in {seen.ours}")
    both = f"PyPI's supervisor {seen.foreign} is installed here, too"
    if seen.foreign_place == seen.ours:
        # Tried with 4.3.0, in both orders, also when either one was uninstalled again: they
        # share a directory, and no module but an `__init__` that neither of them needs.
        return note("package", f"{both}, in the same directory: both work", OF_ITS_OWN)
    return note("package", f"{both}, and hidden by ours: `supervisord` may not start", OF_ITS_OWN)


def judge_configuration(config: Config) -> Finding:
    """Say which one counts; a wrong one has ended the command before."""
    mode = "attach" if config.server.spawn is None else "spawn"
    source = config.path or "no file, so the defaults"
    targets = f", {len(config.targets)} targets" if len(config.targets) > 1 else ""
    return ok("configuration", f"{source}; mode {mode}{targets}")
