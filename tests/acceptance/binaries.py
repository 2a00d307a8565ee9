"""The real binaries that the tests run on: `make binaries`, or `python -m` this module.

The newest bundled one is a package of the virtual environment; the others come through npm, and
are kept outside the checkout, where every checkout of the machine finds them.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from codexdrv import binary
from codexdrv.errors import NoCodex


BUNDLED = "0.163.0"
VERSIONS = ("0.144.5", BUNDLED, "0.171.0")
"""What we support, oldest first: with phantom turn ids and legacy history; what the package
bundles; with paged history and a writer lock."""

INSTALL_TIMEOUT_S = 600
"""It is 110 MB to fetch and 420 MB to unpack."""

Cell = TypeVar("Cell")


class NoBinary(Exception):
    """A version is not there, and why."""


class Binary(NamedTuple):
    """A native codex executable that says that it is this version."""

    version: str
    path: str


def find_binary(version: str) -> Binary:
    """Find the binary of a version. Raises: NoBinary."""
    return Binary(version, _check(_bundled() if version == BUNDLED else _cached(version), version))


def install_binary(version: str, *, fetch_retries: int = 2) -> Binary:
    """Find the binary of a version; if it is not there, install it. Raises: NoBinary."""
    if version == BUNDLED or _native(cache_of(version)):
        return find_binary(version)
    npm = shutil.which("npm")
    if npm is None:
        raise NoBinary(f"codex {version} is not installed, and there is no npm to install it with")
    target = cache_of(version)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that the rename is one step, whoever else does the same just now.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as aside:
        fresh = Path(aside) / "install"
        fresh.mkdir()
        _run_npm(npm, version, fresh, fetch_retries)
        found = _native(fresh)
        if not found:
            raise NoBinary(f"npm installed codex {version} without a native binary for this host")
        _check(found[0], version)
        _take_place(fresh, target)
    return find_binary(version)


def read_version(path: str) -> str:
    """Ask an executable which version it is. Raises: NoBinary."""
    try:
        return binary.read_version(path)
    except NoCodex as error:
        raise NoBinary(error.message) from error


def by_version(cells: Mapping[str, Cell], version: str) -> Cell:
    """Pick what is expected of a version: the row of the newest one that is not newer."""
    known = [row for row in cells if _numbers(row) <= _numbers(version)]
    return cells[max(known, key=_numbers)]


def cache_of(version: str) -> Path:
    """Say where a version is kept; `XDG_CACHE_HOME` moves it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "codexdrv-tests" / f"codex-{version}"


def main(arguments: Sequence[str]) -> int:
    """Install every version; with --try, what cannot be installed is only told."""
    is_trial = "--try" in arguments
    code = 0
    for version in VERSIONS:
        try:
            found = install_binary(version, fetch_retries=0 if is_trial else 2)
        except NoBinary as error:
            sys.stderr.write(f"missing: {error}\n")
            code = 0 if is_trial else 1
        else:
            if not is_trial:
                sys.stdout.write(f"codex {version}: {found.path}\n")
    return code


def _bundled() -> str:
    try:
        return binary.bundled_binary()
    except NoCodex as error:
        raise NoBinary(f"{error} (the package openai-codex-cli-bin)") from error


def _cached(version: str) -> str:
    found = _native(cache_of(version))
    if not found:
        raise NoBinary(f"codex {version} is not in {cache_of(version)}: run `make binaries`")
    return found[0]


def _native(prefix: Path) -> list[str]:
    """Find the native binary below an npm prefix; its package is named by the architecture."""
    return sorted(map(str, prefix.glob("node_modules/@openai/codex-*/vendor/*/bin/codex")))


def _check(path: str, version: str) -> str:
    said = read_version(path)
    if said != version:
        raise NoBinary(f"{path} says that it is {said}, not {version}")
    return path


def _run_npm(npm: str, version: str, prefix: Path, fetch_retries: int) -> None:
    flags = ("--ignore-scripts", "--no-audit", "--no-fund", f"--fetch-retries={fetch_retries}")
    command = [npm, "install", *flags, "--prefix", str(prefix), f"@openai/codex@{version}"]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
            cwd=prefix,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoBinary(f"npm could not install codex {version}: {error}") from error
    if done.returncode != 0:
        raise NoBinary(f"npm could not install codex {version}: {done.stdout.strip()[-500:]}")


def _take_place(fresh: Path, target: Path) -> None:
    try:
        fresh.rename(target)
    except OSError:
        # Somebody else was first, or a broken one lies there.
        if _native(target):
            return
        target.rename(fresh.with_name("broken"))
        fresh.rename(target)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
