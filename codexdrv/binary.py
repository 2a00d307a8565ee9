"""The native codex executable: where it is, and which version it says it is.

Never a wrapper: after a SIGKILL of the Node script of npm's package, the server runs on without us
(WIRE-FACTS, "Getting the peer"). So a wrapper is followed to the program that it would start.
"""

import importlib.util
import json
import os
import re
import subprocess
from typing import NamedTuple

from codexdrv.errors import ConfigurationError, NoCodex
from codexdrv.transport.peer import SERVER_NAME_PREFIX


BUNDLE = "codex_cli_bin"
"""The import name of the distribution `openai-codex-cli-bin`."""

NPM_PACKAGE = "@openai/codex"
"""What the package of the wrapper is called, wherever npm, pnpm, yarn or bun put it."""

MACHINE = os.uname().machine

VERSION_TIMEOUT_S = 20.0
"""It takes 10 ms; a cold disk has 400 MB to read."""

SHIM_BYTES_MAX = 65536
"""Those of pnpm have 1 KB, most of it paths; a longer script is somebody's own."""

LAYOUTS = ("bin/codex", "codex/codex")
"""Where the program lies below `vendor/TRIPLE`: now, and in older releases."""

SOURCE_BUNDLED = "the bundled package"
"""It counts when nothing is named, and nothing is on PATH."""

GET_BUNDLED = "`pip install '.[codex]'` in the checkout of codexdrv."
"""Never a name that pip would look up in an index: there it is nobody's, or a stranger's."""

NAME_IT = "Name the native executable itself, as codex under [server] in the configuration."

_ELF = b"\x7fELF"

# pnpm's `.bin/codex`. `$basedir` is the directory of the script, as it was called.
_SHIM_START = b"#!/bin/sh\nbasedir=$(dirname "
_SHIM_EXEC = re.compile(
    rb'^ *exec (?:node|"\$basedir/node") +"\$basedir/([^"$`\\\n]+/bin/codex\.js)" "\$@"$',
    re.MULTILINE,
)


class Platform(NamedTuple):
    """How npm names the programs for one kind of machine."""

    package: str
    triple: str


PLATFORMS = {
    "x86_64": Platform("@openai/codex-linux-x64", "x86_64-unknown-linux-musl"),
    "aarch64": Platform("@openai/codex-linux-arm64", "aarch64-unknown-linux-musl"),
}


class Binary(NamedTuple):
    """A native codex executable, and how it was found."""

    path: str
    #: For people: "the configuration", "PATH", or "the bundled package".
    source: str
    #: The wrapper that was found there, if it was one; `path` is what it would start.
    wrapper: str | None

    @property
    def is_bundled(self) -> bool:
        """Say whether it counts only because there is no other."""
        return self.source == SOURCE_BUNDLED

    @property
    def place(self) -> str:
        """Where it was found: what an upgrade puts another file in, or behind."""
        return self.wrapper or self.path


class Stamp(NamedTuple):
    """Which file lies at a path: another one, or the same one written anew, has another stamp."""

    path: str
    device: int
    inode: int
    size: int
    changed_ns: int


class Origin(NamedTuple):
    """What a server is started from: the place, and which file it leads to."""

    place: str
    stamp: Stamp


def stamp_of(path: str) -> Stamp | None:
    """Say which file lies at a path now; None: nothing that can be looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return Stamp(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def origin_of(binary: Binary) -> Origin | None:
    """Say what a start would use now; None: the file cannot be looked at."""
    stamp = stamp_of(binary.path)
    return Origin(binary.place, stamp) if stamp else None


def find_binary(
    named: str | None, search_path: str, package: str = BUNDLE, *, machine: str = MACHINE
) -> Binary:
    """Find the codex to start: the named one, else the first on PATH, else the bundled one.

    Raises:
        ConfigurationError: the one that is named, or comes first, is no native executable and
            leads to none. The next one is not taken in its place.
        NoCodex: there is none anywhere.
    """
    if named is not None:
        _check_named(named)
        return _follow(named, "the configuration", machine)
    # What a relative entry means depends on where we were started; a service is started in `/`.
    directories = [entry for entry in search_path.split(":") if os.path.isabs(entry)]
    for directory in directories:
        path = os.path.join(directory, "codex")
        if _is_executable(path):
            return _follow(path, "PATH", machine)
    try:
        return Binary(bundled_binary(package), SOURCE_BUNDLED, None)
    except NoCodex as error:
        looked = ", ".join(directories) or "it names no absolute directory"
        raise NoCodex(
            f"There is no executable codex on PATH ({looked}). {error.message}",
            hint=f"Install Codex, or the bundled one: {GET_BUNDLED} Is it elsewhere? {NAME_IT}",
        ) from error


def bundled_binary(package: str = BUNDLE) -> str:
    """Find the native codex that the extra `codex` installs. Raises: NoCodex."""
    # The package's `bundled_codex_path()` says the same; to look, none of its code need run.
    found = importlib.util.find_spec(package)
    places = (found and found.submodule_search_locations) or []
    paths = [os.path.join(place, "bin", "codex") for place in places]
    for path in paths:
        if _is_native(path):
            return path
    why = f"{' or '.join(paths)} is no native executable" if paths else f"no package {package}"
    raise NoCodex(f"There is no bundled codex binary: {why}.", hint=f"Install it: {GET_BUNDLED}")


def read_version(path: str, *, timeout_s: float = VERSION_TIMEOUT_S) -> str:
    """Ask a native executable which version it is, "0.163.0"; no CODEX_HOME is touched.

    Raises:
        NoCodex: it does not run, does not end in time, or does not say.
    """
    try:
        done = subprocess.run(  # noqa: S603 - one file and one word of ours; no shell
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
            # It makes directories in its home even for this; here it cannot, and only warns.
            env={"CODEX_HOME": os.devnull},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCodex(f"{path} does not run: {error}.", hint=NAME_IT) from error
    found = re.fullmatch(r"codex-cli (\S+)\s*", done.stdout)
    if found is None:
        said = (done.stdout + done.stderr)[:200]
        raise NoCodex(f"{path} does not say its version, but {said!r}.", hint=NAME_IT)
    return found[1]


def _check_named(path: str) -> None:
    try:
        os.stat(path)
    except OSError as error:
        raise ConfigurationError(
            f"The configured codex {path} cannot be used: {error.strerror}.",
            hint="Correct codex under [server], or leave it out to have it looked for.",
        ) from error
    if not _is_executable(path):
        raise ConfigurationError(
            f"The configured codex {path} is not an executable file.", hint=NAME_IT
        )


def _follow(path: str, source: str, machine: str) -> Binary:
    try:
        start = _read_start(path, SHIM_BYTES_MAX)
    except OSError as error:
        raise ConfigurationError(
            f"{path} (from {source}) cannot be read: {error.strerror}.", hint=NAME_IT
        ) from error
    if start.startswith(_ELF):
        _refuse_launcher(path, source)
        return Binary(path, source, None)
    script = _shim_target(path, start) or path
    root = _npm_root(script)
    if root is None:
        raise ConfigurationError(
            f"{path} (from {source}) is neither a native codex nor the wrapper of npm's package.",
            hint=NAME_IT,
        )
    return Binary(_native_of(path, root, machine), source, path)


def _refuse_launcher(path: str, source: str) -> None:
    """Refuse one program that plays many by the name it is called with, as volta's and mise's."""
    real = os.path.realpath(path)
    name = os.path.basename(real)
    if name.startswith(SERVER_NAME_PREFIX) or name == os.path.basename(path):
        return
    raise ConfigurationError(
        f"{path} (from {source}) is a link to {real}, which looks like a launcher of codex.",
        hint=NAME_IT,
    )


def _shim_target(path: str, text: bytes) -> str | None:
    """Name the one script that a shim of pnpm starts; None if it is no such shim."""
    if len(text) == SHIM_BYTES_MAX or not text.startswith(_SHIM_START):
        return None
    targets = {os.fsdecode(target) for target in _SHIM_EXEC.findall(text)}
    return os.path.join(os.path.dirname(path), targets.pop()) if len(targets) == 1 else None


def _npm_root(script: str) -> str | None:
    """Name the directory of npm's package if the script is its wrapper, or None."""
    root = os.path.dirname(os.path.dirname(os.path.realpath(script)))
    try:
        with open(os.path.join(root, "package.json"), "rb") as file:
            package = json.load(file)
    except (OSError, ValueError):
        return None
    is_it = isinstance(package, dict) and package.get("name") == NPM_PACKAGE
    return root if is_it else None


def _native_of(wrapper: str, root: str, machine: str) -> str:
    """Find the program that the wrapper would start, as its `findCodexExecutable` does."""
    platform = PLATFORMS.get(machine)
    if platform is None:
        raise ConfigurationError(
            f"{wrapper} is the wrapper of npm's package, which has no program for {machine}.",
            hint=NAME_IT,
        )
    vendor = _vendor_directory(root, platform.package)
    paths = [os.path.join(vendor, platform.triple, layout) for layout in LAYOUTS]
    for path in paths:
        if _is_native(path):
            return path
    raise ConfigurationError(
        f"{wrapper} is the wrapper of npm's package, and its native program is not there:"
        f" neither {' nor '.join(paths)} is one.",
        hint="Install it again with its optional dependencies: npm install -g @openai/codex.",
    )


def _vendor_directory(root: str, package: str) -> str:
    """Look for the platform's package as Node does, upwards; else it is the wrapper's own."""
    directory = root
    while directory != (parent := os.path.dirname(directory)):
        found = os.path.join(directory, "node_modules", package)
        if os.path.isfile(os.path.join(found, "package.json")):
            return os.path.join(found, "vendor")
        directory = parent
    return os.path.join(root, "vendor")


def _is_executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _is_native(path: str) -> bool:
    try:
        return _is_executable(path) and _read_start(path, len(_ELF)) == _ELF
    except OSError:
        return False


def _read_start(path: str, size: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(size)
