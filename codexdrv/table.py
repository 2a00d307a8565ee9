"""One TOML table, read key by key; what nobody asked for is unknown."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from codexdrv.errors import BadInput, ConfigurationError
from codexdrv.ids import ThreadId, parse_thread_id


SHOWN_MAX = 80
"""Characters of a value that is wrong."""


class Table:
    """A table of the configuration; each reader names a key, its kind, and its default.

    All of them raise ConfigurationError, which says what belongs there, and what is there.
    """

    def __init__(self, values: Mapping[str, Any], where: str, name: str) -> None:
        self._values = values
        self._where = where
        self._name = name
        self._asked: set[str] = set()
        self._tables: list[Table] = []

    def names(self) -> list[str]:
        """Name its keys."""
        return list(self._values)

    def has(self, key: str) -> bool:
        """Say whether a key is there; it is known then."""
        self._asked.add(key)
        return key in self._values

    def table(self, key: str) -> "Table":
        """Read a table; an empty one, if it is not there."""
        value = self._ask(key, {})
        if not isinstance(value, dict):
            hint = f"Its keys stand below [{self._full(key)}], or after it as {{ KEY = VALUE }}."
            raise self.wrong(key, "a table", hint)
        table = Table(value, self._where, self._full(key))
        self._tables.append(table)
        return table

    def path(self, key: str, default: str | None) -> str:
        """Read an absolute path; made plain. It must be there, if it has no default."""
        value = self._ask(key, default)
        if not isinstance(value, str) or not os.path.isabs(value) or "\0" in value:
            raise self.wrong(key, "an absolute path", _left_out(default))
        return os.path.normpath(value)

    def choice(self, key: str, words: tuple[str, ...], default: str) -> str:
        """Read one of several words."""
        value = self._ask(key, default)
        if value not in words:
            known = ", ".join(f'"{word}"' for word in words)
            raise self.wrong(key, f"one of {known}", _left_out(default))
        return str(value)

    def count(self, key: str, default: int) -> int:
        """Read a whole number, 1 or more."""
        value = self._ask(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.wrong(key, "a whole number, 1 or more", _left_out(default))
        return value

    def flag(self, key: str) -> bool:
        """Read true or false; false, if it is not there."""
        value = self._ask(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false", _left_out(False))
        return value

    def seconds(self, key: str, default: float) -> float:
        """Read a time."""
        value = self._ask(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:
            raise self.wrong(key, "a number of seconds, 0 or more", _left_out(default))
        return float(value)

    def thread(self, key: str) -> ThreadId:
        """Read a thread id."""
        value = self._ask(key, None)
        try:
            return parse_thread_id(value if isinstance(value, str) else "")
        except BadInput as error:
            hint = "`codexdrv threads` lists those of the server."
            raise self.wrong(key, "a thread id (a UUID)", hint) from error

    def refuse_unknown(self) -> None:
        """Refuse the keys that nobody has asked for, here and in the tables that were read."""
        found = [*self.strangers()]
        names = [repr(name) for unknown, _ in found for name in unknown]
        if names:
            said = f"the keys {', '.join(names)} are" if names[1:] else f"the key {names[0]} is"
            raise ConfigurationError(
                f"{self._where}: {said} not known.",
                hint=f"Known {'; '.join(known for _, known in found)}.",
            )

    def strangers(self) -> Iterator[tuple[list[str], str]]:
        """Name the unknown keys of each table that has some, and what is known there."""
        if unknown := [self._full(key) for key in self._values if key not in self._asked]:
            place = f"in [{self._name}]" if self._name else "at the top"
            yield unknown, f"{place}: {', '.join(sorted(self._asked))}"
        for table in self._tables:
            yield from table.strangers()

    def wrong(self, key: str, wanted: str, hint: str) -> ConfigurationError:
        """Make the error of a value that is not what it must be."""
        found = f"is {_shown(self._values[key])}" if key in self._values else "is not there"
        return ConfigurationError(
            f"{self._where}: {self._full(key)!r} must be {wanted}, and {found}.", hint=hint
        )

    def _ask(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        return self._values.get(key, default)

    def _full(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _left_out(default: Any) -> str:
    return "Or leave it out." if default is None else f"Left out, it is {_shown(default)}."


def _shown(value: Any) -> str:
    """Show a value as the file would have it, more or less."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
