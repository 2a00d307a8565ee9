"""One TOML table, read key by key; what nobody asked for is unknown."""

import math
import os
from collections.abc import Mapping
from typing import Any

from codexdrv.errors import BadInput, ConfigurationError
from codexdrv.ids import ThreadId, parse_thread_id


class Table:
    """A table of the configuration; each reader names a key, its kind, and its default.

    All of them raise ConfigurationError, which says what belongs there.
    """

    def __init__(self, values: Mapping[str, Any], where: str, name: str) -> None:
        self._values = values
        self._where = where
        self._name = name
        self._asked: set[str] = set()

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
            raise self.wrong(key, "a table")
        return Table(value, self._where, self._full(key))

    def path(self, key: str, default: str) -> str:
        """Read an absolute path; made plain."""
        value = self._ask(key, default)
        if not isinstance(value, str) or not os.path.isabs(value) or "\0" in value:
            raise self.wrong(key, "an absolute path")
        return os.path.normpath(value)

    def choice(self, key: str, words: tuple[str, ...], default: str) -> str:
        """Read one of several words."""
        value = self._ask(key, default)
        if value not in words:
            raise self.wrong(key, "one of " + ", ".join(f'"{word}"' for word in words))
        return str(value)

    def count(self, key: str, default: int) -> int:
        """Read a whole number, 1 or more."""
        value = self._ask(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.wrong(key, "a whole number, 1 or more")
        return value

    def flag(self, key: str) -> bool:
        """Read true or false; false, if it is not there."""
        value = self._ask(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def seconds(self, key: str, default: float) -> float:
        """Read a time."""
        value = self._ask(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:
            raise self.wrong(key, "a number of seconds, 0 or more")
        return float(value)

    def thread(self, key: str) -> ThreadId:
        """Read a thread id."""
        value = self._ask(key, None)
        try:
            return parse_thread_id(value if isinstance(value, str) else "")
        except BadInput as error:
            raise self.wrong(key, "a thread id (a UUID)") from error

    def refuse_unknown(self) -> None:
        """Refuse the keys that nobody has asked for."""
        for key in self._values:
            if key not in self._asked:
                raise ConfigurationError(
                    f"{self._where}: the key {self._full(key)!r} is not known.",
                    hint=f"Known here: {', '.join(sorted(self._asked))}.",
                )

    def _ask(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        return self._values.get(key, default)

    def _full(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key

    def wrong(self, key: str, wanted: str) -> ConfigurationError:
        """Make the error of a value that is not what it must be."""
        return ConfigurationError(
            f"{self._where}: {self._full(key)!r} must be {wanted}.",
            hint="docs/configuration.md shows every key with its default.",
        )
