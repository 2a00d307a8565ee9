"""Configuration: where it is found, what it may say; every mistake is one sentence and exit 78.

The only module that reads the environment.
"""

import importlib
import os
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from codexdrv.errors import ConfigurationError
from codexdrv.ids import ThreadId
from codexdrv.journal.journal import LIVE_PER_THREAD_MAX
from codexdrv.rules.backoff import PARK_S, SETTLE_S
from codexdrv.rules.lifecycle import WhenBusy
from codexdrv.table import Table


STOP_GRACE_S = 30.0
"""SIGTERM lets a server finish its turn; most turns take less."""


DEATHS_MAX = 10
"""Within 10 minutes; see `supervisor/rules.py`."""

_OF_THE_MANAGER = frozenset({"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"})
"""What a service manager tells us, and nobody whom we start (sd_notify(3))."""

_NOT_INHERITED = _OF_THE_MANAGER | {"CODEXDRV_CONFIG"}

_SPAWN_ONLY = ("listen", "approvals", "stop_grace_s", "deaths_max")


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
    #: How often it may die within 10 minutes before we give up.
    deaths_max: int = DEATHS_MAX


class Server(NamedTuple):
    """`[server]`: the app-server to attach to, or to start."""

    socket: str
    codex_home: str
    #: The executable, where one is named; else it is looked for on `search_path`.
    codex: str | None = None
    #: What a server that we start is given: ours, and CODEX_HOME.
    environment: Mapping[str, str] = MappingProxyType({})
    #: None: attach to a server that somebody else runs.
    spawn: Spawn | None = None

    @property
    def search_path(self) -> str:
        """The directories of $PATH."""
        return self.environment.get("PATH", "")


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
    #: How far apart two quiet fences prove that an input has vanished.
    settle_s: float = SETTLE_S
    #: How long doubt holds a lane.
    park_s: float = PARK_S


class Target(NamedTuple):
    """`[targets.NAME]`: a thread under a name."""

    thread: ThreadId
    when_busy: WhenBusy
    #: Doubt shuts its lane for as long as it lasts.
    hold_in_doubt: bool = False


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


def manager_words(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Read what the service manager that started us has said, if there is one."""
    return {name: environment[name] for name in _OF_THE_MANAGER if name in environment}


def wants_color(environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether a terminal may be given colours (https://no-color.org)."""
    return not environment.get("NO_COLOR")


def named_columns(environment: Mapping[str, str] = os.environ) -> int | None:
    """Read how wide a line shall be, where $COLUMNS says so."""
    try:
        columns = int(environment.get("COLUMNS", ""))
    except ValueError:
        return None
    return columns if columns > 0 else None


def parse_config(
    document: Mapping[str, Any], environment: Mapping[str, str], *, path: str | None
) -> Config:
    """Turn a TOML document into values.

    Raises:
        ConfigurationError: an unknown key, or a value of the wrong kind.
    """
    where = path or "the configuration"
    top = Table(document, where, "")
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
        Limits(
            live_per_thread=limits.count("live_per_thread", LIVE_PER_THREAD_MAX),
            settle_s=limits.seconds("settle_s", SETTLE_S),
        ),
        {name: _target(targets.table(name)) for name in targets.names()},
        path,
    )
    top.refuse_unknown()
    return config


def _xdg_base(environment: Mapping[str, str], name: str, default: str) -> str:
    # The XDG specification: a relative path there is invalid and is ignored.
    value = environment.get(name, "")
    return value if os.path.isabs(value) else default


def _server(
    table: Table, environment: Mapping[str, str], codex_default: str, directory: str
) -> Server:
    codex_home = table.path("codex_home", codex_default)
    is_ours = table.choice("mode", ("attach", "spawn"), "attach") == "spawn"
    if not is_ours and (named := [key for key in _SPAWN_ONLY if table.has(key)]):
        hint = 'Leave it out, or say mode = "spawn".'
        raise table.wrong(named[0], 'left out (it is for mode = "spawn")', hint)
    spawn = _spawn(table) if is_ours else None
    # A service manager's own words are for us alone (sd_notify(3)).
    kept = {name: value for name, value in environment.items() if name not in _NOT_INHERITED}
    socket = f"{codex_home}/app-server-control/app-server-control.sock"
    return Server(
        table.path("socket", f"{directory}/server.sock" if is_ours else socket),
        codex_home,
        table.path("codex", None) if table.has("codex") else None,
        kept | {"CODEX_HOME": codex_home},
        spawn,
    )


def _spawn(table: Table) -> Spawn:
    listen = Listen(table.choice("listen", tuple(Listen), Listen.UNIX))
    if listen is Listen.STDIO and table.has("socket"):
        hint = 'Leave it out, or say listen = "unix".'
        raise table.wrong("socket", 'left out (with listen = "stdio" there is none)', hint)
    approvals = table.choice("approvals", ("decline", "leave"), "decline")
    if listen is Listen.STDIO and approvals == "leave":
        why = 'with listen = "stdio" nobody else can answer'
        raise table.wrong("approvals", f'"decline" ({why})', 'Or say listen = "unix".')
    return Spawn(
        listen,
        approvals,
        table.seconds("stop_grace_s", STOP_GRACE_S),
        table.count("deaths_max", DEATHS_MAX),
    )


def _target(table: Table) -> Target:
    return Target(
        table.thread("thread"),
        WhenBusy(table.choice("when_busy", tuple(WhenBusy), WhenBusy.STEER)),
        table.flag("hold_in_doubt"),
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
