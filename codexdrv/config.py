"""Configuration: where it is found, what it may say; every mistake is one sentence and exit 78.

The only module that reads the environment.
"""

import importlib
import math
import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from codexdrv.errors import BadInput, ConfigurationError
from codexdrv.ids import ThreadId, parse_thread_id
from codexdrv.journal.journal import LIVE_PER_THREAD_MAX
from codexdrv.rules.lifecycle import WhenBusy


STOP_GRACE_S = 30.0
"""SIGTERM lets a server finish its turn; most turns take less."""


_NOT_INHERITED = frozenset({"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "CODEXDRV_CONFIG"})

_SPAWN_ONLY = ("listen", "approvals", "stop_grace_s")


class Listen(StrEnum):
    """Where a server of our own takes requests."""

    #: On a unix socket, which the user's own clients can share.
    UNIX = "unix"
    #: On its standard input, from us alone.
    STDIO = "stdio"


class Spawn(NamedTuple):
    """`[server]` with `mode = "spawn"`: how to run a server of our own."""

    listen: Listen
    #: How its questions are answered: "decline" or "leave" (`protocol/questions.py`).
    approvals: str
    stop_grace_s: float
    #: What it starts with: ours, and CODEX_HOME.
    environment: Mapping[str, str]


class Server(NamedTuple):
    """`[server]`: the app-server to attach to, or to start."""

    socket: str
    codex_home: str
    #: The executable, where one is named; else it is looked for on `search_path`.
    codex: str | None = None
    search_path: str = ""
    #: None: attach to a server that somebody else runs.
    spawn: Spawn | None = None


class State(NamedTuple):
    """`[state]`: where the journal, the lock, the bell and the status file lie."""

    directory: str


class Limits(NamedTuple):
    """`[limits]`, and every other number that a test may want to shrink; seconds."""

    live_per_thread: int = LIVE_PER_THREAD_MAX
    ping_interval_s: float = 10.0
    #: Three pings unanswered: the link is dead, however alive the socket looks.
    silence_s: float = 30.0
    #: A terminal supervisor gives the answers that are open this long.
    drain_s: float = 5.0
    #: How often the journal is looked at without a ring.
    poll_s: float = 1.0
    #: How often the status file is written; readers call it stale after three times that.
    snapshot_s: float = 5.0
    #: How long an idle thread without a name stays subscribed.
    linger_s: float = 600.0
    #: How long an attempt without its echo waits before the fence is asked.
    echo_s: float = 5.0


class Target(NamedTuple):
    """`[targets.NAME]`: a thread under a name."""

    thread: ThreadId
    when_busy: WhenBusy


class Config(NamedTuple):
    """All of it."""

    server: Server
    state: State
    limits: Limits
    targets: Mapping[str, Target]
    #: The file it was read from; None: the defaults.
    path: str | None


def load_config(path: str | None, environment: Mapping[str, str] = os.environ) -> Config:
    """Read the configuration; without a file the defaults work.

    Raises:
        ConfigurationError: no such file, no TOML, an unknown key, or a value of the wrong kind.
    """
    named = environment.get("CODEXDRV_CONFIG") or None if path is None else path
    home = environment.get("HOME") or os.path.expanduser("~")
    base = _xdg_base(environment, "XDG_CONFIG_HOME", f"{home}/.config")
    found = named or f"{base}/codexdrv/config.toml"
    if named is None and not os.path.exists(found):
        return parse_config({}, environment, path=None)
    return parse_config(_read_toml(found), environment, path=found)


def parse_config(
    document: Mapping[str, Any], environment: Mapping[str, str], *, path: str | None
) -> Config:
    """Turn a TOML document into values.

    Raises:
        ConfigurationError: an unknown key, or a value of the wrong kind.
    """
    where = path or "the configuration"
    top = _Table(document, where, "")
    server = top.table("server")
    state = top.table("state")
    limits = top.table("limits")
    targets = top.table("targets")
    home = environment.get("HOME") or os.path.expanduser("~")
    # Codex takes a relative $CODEX_HOME, too.
    codex_default = os.path.abspath(environment.get("CODEX_HOME") or f"{home}/.codex")
    state_base = _xdg_base(environment, "XDG_STATE_HOME", f"{home}/.local/state")
    directory = state.path("dir", f"{state_base}/codexdrv")
    config = Config(
        _server(server, environment, codex_default, directory),
        State(directory),
        Limits(live_per_thread=limits.count("live_per_thread", LIVE_PER_THREAD_MAX)),
        {name: _target(targets.table(name)) for name in targets.names()},
        path,
    )
    for table in (top, server, state, limits):
        table.refuse_unknown()
    return config


def _xdg_base(environment: Mapping[str, str], name: str, default: str) -> str:
    # The XDG specification: a relative path there is invalid and is ignored.
    value = environment.get(name, "")
    return value if os.path.isabs(value) else default


def _server(
    table: "_Table", environment: Mapping[str, str], codex_default: str, directory: str
) -> Server:
    codex_home = table.path("codex_home", codex_default)
    is_ours = table.choice("mode", ("attach", "spawn"), "attach") == "spawn"
    if not is_ours and (named := [key for key in _SPAWN_ONLY if table.has(key)]):
        raise table.wrong(named[0], 'left out: it is for mode = "spawn"')
    spawn = _spawn(table, environment, codex_home) if is_ours else None
    socket = f"{codex_home}/app-server-control/app-server-control.sock"
    return Server(
        table.path("socket", f"{directory}/server.sock" if is_ours else socket),
        codex_home,
        table.path("codex", "/") if table.has("codex") else None,
        environment.get("PATH", ""),
        spawn,
    )


def _spawn(table: "_Table", environment: Mapping[str, str], codex_home: str) -> Spawn:
    listen = Listen(table.choice("listen", tuple(Listen), Listen.UNIX))
    if listen is Listen.STDIO and table.has("socket"):
        raise table.wrong("socket", 'left out: with listen = "stdio" there is no socket')
    # A service manager's own words are for us alone (sd_notify(3)).
    kept = {name: value for name, value in environment.items() if name not in _NOT_INHERITED}
    return Spawn(
        listen,
        table.choice("approvals", ("decline", "leave"), "decline"),
        table.seconds("stop_grace_s", STOP_GRACE_S),
        kept | {"CODEX_HOME": codex_home},
    )


def _target(table: "_Table") -> Target:
    target = Target(
        table.thread("thread"), WhenBusy(table.choice("when_busy", tuple(WhenBusy), WhenBusy.STEER))
    )
    table.refuse_unknown()
    return target


class _Table:
    """One TOML table, read key by key; what nobody asked for is unknown."""

    def __init__(self, values: Mapping[str, Any], where: str, name: str) -> None:
        self._values = values
        self._where = where
        self._name = name
        self._asked: set[str] = set()

    def names(self) -> list[str]:
        return list(self._values)

    def has(self, key: str) -> bool:
        self._asked.add(key)
        return key in self._values

    def table(self, key: str) -> "_Table":
        value = self._ask(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "a table")
        return _Table(value, self._where, self._full(key))

    def path(self, key: str, default: str) -> str:
        value = self._ask(key, default)
        if not isinstance(value, str) or not os.path.isabs(value) or "\0" in value:
            raise self.wrong(key, "an absolute path")
        return os.path.normpath(value)

    def choice(self, key: str, words: tuple[str, ...], default: str) -> str:
        value = self._ask(key, default)
        if value not in words:
            raise self.wrong(key, "one of " + ", ".join(f'"{word}"' for word in words))
        return str(value)

    def count(self, key: str, default: int) -> int:
        value = self._ask(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.wrong(key, "a whole number, 1 or more")
        return value

    def seconds(self, key: str, default: float) -> float:
        value = self._ask(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:
            raise self.wrong(key, "a number of seconds, 0 or more")
        return float(value)

    def thread(self, key: str) -> ThreadId:
        value = self._ask(key, None)
        try:
            return parse_thread_id(value if isinstance(value, str) else "")
        except BadInput as error:
            raise self.wrong(key, "a thread id (a UUID)") from error

    def refuse_unknown(self) -> None:
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
        return ConfigurationError(
            f"{self._where}: {self._full(key)!r} must be {wanted}.",
            hint="docs/configuration.md shows every key with its default.",
        )


def _read_toml(path: str) -> dict[str, Any]:
    # Most machines have no file; the parser costs `deliver` 3 ms.
    tomllib = importlib.import_module("tomllib")
    try:
        with open(path, "rb") as file:
            document: dict[str, Any] = tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(
            f"The configuration {path} cannot be read: {error.strerror}.",
            hint="Check --config and $CODEXDRV_CONFIG.",
        ) from error
    except ValueError as error:
        raise ConfigurationError(
            f"The configuration {path} is not TOML: {error}.", hint="Mend that line."
        ) from error
    return document
