"""The command that a service runs: whether it starts codexdrv, and how long it will be there."""

import os
import subprocess
from collections.abc import Mapping, Sequence

from codexdrv.errors import NotFound
from codexdrv.paths import Offence


VERSION_TIMEOUT_S = 10.0
"""It takes 0.1 s; a cold disk has a Python to read."""

# How codexdrv is installed: from a checkout. No index has it, and whoever took its name there would
# be installed instead; so no hint of ours names it to pip.
FOR_GOOD = (
    "Install codexdrv for good: `pipx install PATH_OF_CHECKOUT`,"
    " or `uv tool install PATH_OF_CHECKOUT`."
)
OF_ITS_OWN = (
    "Give codexdrv an environment of its own: `pipx install PATH_OF_CHECKOUT`,"
    " or a venv with nothing else."
)
AGAIN = "Install codexdrv again: `pip install --force-reinstall .` in its checkout."
UPGRADE = "Upgrade codexdrv: `git pull` in its checkout, then install it from there again."
OF_THE_SYSTEM = "Install codexdrv with a Python that stays, such as /usr/bin/python3."

_GONE_AT_A_RESTART = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/proc")  # noqa: S108 - only compared
_MOVED_BY = {
    "/Cellar/": "Homebrew",
    "/nix/store/": "Nix",
    "/mise/installs/": "mise",
    "/snap/": "snap",
}
"""Who removes a Python when there is a newer one. pyenv, uv and conda do so when they are told."""


def ask_version(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Ask a command line which codexdrv it starts, as a service would: in `/`, with no more.

    Raises:
        NotFound: it starts none.
    """
    line = " ".join(command)
    try:
        done = subprocess.run(  # noqa: S603 - the words of a unit that its owner has installed
            [*command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
            env=environment,
            cwd="/",
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise NotFound(f"`{line}` does not run: {error}.", hint=FOR_GOOD) from error
    name, _, version = done.stdout.strip().partition(" ")
    if done.returncode or name != "codexdrv":
        said = " ".join((done.stderr or done.stdout).split())[-200:]
        raise NotFound(
            f"`{line}` does not start codexdrv: {said or f'exit {done.returncode}'}.", hint=FOR_GOOD
        )
    return version


def place_offence(program: str, environment: Mapping[str, str]) -> Offence | None:
    """Say why a program may not be there for long, or None."""
    real = os.path.realpath(program)
    for path in dict.fromkeys((program, real)):
        if is_fleeting(path, environment):
            return Offence(
                f"{path} lies among temporary files, which are removed one day", FOR_GOOD
            )
    movers = [name for part, name in _MOVED_BY.items() if part in f"{real}/"]
    if movers:
        said = f"{program} is {real}, which {movers[0]} removes when there is a newer one"
        return Offence(said if program != real else said.partition(" is ")[2], OF_THE_SYSTEM)
    return None


def is_fleeting(path: str, environment: Mapping[str, str]) -> bool:
    """Say whether a path lies in a temporary directory, or in a cache, as `uvx`'s tools do."""
    named = [environment.get(name, "") for name in ("TMPDIR", "XDG_CACHE_HOME", "UV_CACHE_DIR")]
    homes = [f"{environment['HOME']}/Library/Caches"] if environment.get("HOME") else []
    tops = (*_GONE_AT_A_RESTART, *filter(os.path.isabs, named), *homes)
    # `~/.cache`, and those of pipx, which lie below its own directory.
    return "/.cache/" in f"{path}/" or any(
        f"{path}/".startswith(f"{top.rstrip('/')}/") for top in tops
    )
