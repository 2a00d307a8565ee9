"""The unit of our service as it lies on disk: where systemd looks for it, and what it says.

As much of systemd.unit(5), systemd.syntax(7) and systemd.exec(5) as a unit for us can use; what is
not known here (most specifiers, `$VARIABLE` in a command) stays as it is written.
"""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple


NAME = "codexdrv.service"

SYSTEM_PLACES = (
    *("/etc/systemd/system", "/run/systemd/system"),
    *("/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"),
)
USER_PLACES = (
    *("/etc/systemd/user", "/run/systemd/user"),
    *("/usr/local/share/systemd/user", "/usr/share/systemd/user"),
    *("/usr/local/lib/systemd/user", "/usr/lib/systemd/user"),
)

_BLANKS = " \t\r\n"
"""Not those of Unicode."""

_ESCAPES = dict(zip("abfnrtvs\\\"'", "\a\b\f\n\r\t\v \\\"'", strict=True))
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-7]{3})|(.))", re.DOTALL)
_SPECIFIER = re.compile(r"%(.)")
# A blank ends a word, unless it is quoted; a backslash takes the character behind it along.
_WORD = re.compile(r"""(?:[^ \t\r\n"'\\]|\\.|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')+""", re.DOTALL)
_PIECE = re.compile(r""""((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|((?:[^"'\\]|\\.)+)""", re.DOTALL)


class UnitFile(NamedTuple):
    """A unit that is installed."""

    path: str
    #: Of the user's own manager, not of the system's.
    is_user: bool
    #: The files that change it, in the order in which they do.
    drop_ins: tuple[str, ...]
    #: Something starts it when the machine, or the user's manager, starts.
    is_enabled: bool

    @property
    def is_masked(self) -> bool:
        """It is there to keep it from being started."""
        return os.path.realpath(self.path) == os.devnull or os.stat(self.path).st_size == 0


def find_units(
    user_places: Iterable[str], system_places: Iterable[str] = SYSTEM_PLACES
) -> list[UnitFile]:
    """Find our unit of the user's manager, and that of the system's; there may be both."""
    found = (_find(list(user_places), is_user=True), _find(list(system_places), is_user=False))
    return [unit for unit in found if unit]


def user_places(environment: Mapping[str, str], home: str) -> list[str]:
    """Name the directories in which the user's manager looks, best first."""
    configs = (environment.get("XDG_CONFIG_HOME", ""), f"{home}/.config")
    shares = (environment.get("XDG_DATA_HOME", ""), f"{home}/.local/share")
    ours = [f"{base}/systemd/user" for base in configs if os.path.isabs(base)]
    packaged = [f"{base}/systemd/user" for base in shares if os.path.isabs(base)]
    return list(dict.fromkeys([*ours, *USER_PLACES[:2], *packaged, *USER_PLACES[2:]]))


def load_settings(unit: UnitFile) -> dict[str, list[str]]:
    """Read what stands under [Service], drop-ins included. Raises: OSError."""
    settings: dict[str, list[str]] = {}
    for path in (unit.path, *unit.drop_ins):
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            merge_settings(settings, file.read())
    return settings


def merge_settings(settings: dict[str, list[str]], text: str) -> None:
    """Add what a file says: a key gathers its values, and an empty one begins anew."""
    section = ""
    for line in _logical_lines(text):
        if line.startswith("["):
            section = line.strip("[]")
        elif section == "Service" and "=" in line:
            key, value = (part.strip(_BLANKS) for part in line.split("=", 1))
            if value:
                settings.setdefault(key, []).append(value)
            else:
                settings[key] = []


def split_words(text: str) -> list[str]:
    """Split a value into its words, unquoted and unescaped."""
    return [_unquote(match[0]) for match in _WORD.finditer(text)]


def expand(text: str, specifiers: Mapping[str, str]) -> str:
    """Put in what is meant by %h and the like."""
    known = {"%": "%", **specifiers}
    return _SPECIFIER.sub(lambda match: known.get(match[1], match[0]), text)


def read_command(value: str, specifiers: Mapping[str, str]) -> tuple[str, ...]:
    """Read the words of an ExecStart."""
    program, *words = [expand(word, specifiers) for word in split_words(value)] or [""]
    plain = program.lstrip("@-:+!|")
    if ":" not in program[: len(program) - len(plain)]:
        words = [word.replace("$$", "$") for word in words]
    return (plain, *words)


def read_environment(
    settings: Mapping[str, list[str]], specifiers: Mapping[str, str]
) -> dict[str, str]:
    """Read the variables that a unit sets; of its files, those that can be read."""
    variables: dict[str, str] = {}
    for value in settings.get("Environment", []):
        for word in split_words(value):
            name, has_value, rest = expand(word, specifiers).partition("=")
            if has_value:
                variables[name] = rest
    for value in settings.get("EnvironmentFile", []):
        with (
            suppress(OSError),
            open(
                expand(value, specifiers).removeprefix("-"),
                encoding="utf-8",
                errors="surrogateescape",
            ) as file,
        ):
            variables |= _read_variables(file.read())
    return variables


def _read_variables(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in _logical_lines(text))
    return {
        name.strip(_BLANKS): _unquote(value.strip(_BLANKS)) for name, sign, value in pairs if sign
    }


def _find(places: list[str], *, is_user: bool) -> UnitFile | None:
    paths = [f"{place}/{NAME}" for place in places]
    path = next(filter(os.path.lexists, paths), None)
    if path is None:
        return None
    # Of two with one name, that of the better place counts; all are read in the order of names.
    drop_ins = {
        name: f"{place}/{NAME}.d/{name}"
        for place in reversed(places)
        for name in _names(f"{place}/{NAME}.d")
        if name.endswith(".conf")
    }
    wants = (
        f"{place}/{name}/{NAME}"
        for place in places
        for name in _names(place)
        if name.endswith((".wants", ".requires"))
    )
    in_order = tuple(drop_ins[name] for name in sorted(drop_ins))
    return UnitFile(path, is_user, in_order, any(map(os.path.lexists, wants)))


def _names(directory: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(directory)
    return []


def _logical_lines(text: str) -> Iterable[str]:
    """Join what a backslash at the end of a line continues; leave comments out."""
    whole = ""
    for line in text.split("\n"):
        stripped = line.strip(_BLANKS)
        if stripped.startswith(("#", ";")):
            # Also one in the middle of a line that goes on below it.
            continue
        whole += stripped
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = f"{whole[:-1]} "
            continue
        if whole:
            yield whole.strip(_BLANKS)
        whole = ""
    if whole:
        yield whole.strip(_BLANKS)


def _unquote(word: str) -> str:
    pieces = (double or single or bare for double, single, bare in _PIECE.findall(word))
    return "".join(_ESCAPE.sub(_unescape, piece) for piece in pieces)


def _unescape(match: re.Match[str]) -> str:
    hexadecimal, octal, letter = match.groups()
    if letter is not None:
        return _ESCAPES.get(letter, match[0])
    return chr(int(hexadecimal, 16) if hexadecimal else int(octal, 8))
