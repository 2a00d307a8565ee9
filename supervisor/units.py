"""The text of our service units: systemd's, and (untested) launchd's. Pure: nothing is looked at.

Why the unit says what it says, where a reader of it might change it in good faith:

- `Restart=always`: also an exit 0 that nobody asked systemd for (`kill PID`) must not end the
  service; `systemctl stop` is never followed by a restart. Exit 70 and 75 are tried again, for
  ever. Exit 78 is not: a wrong configuration does not mend itself.
- `KillMode=mixed`: SIGTERM goes to the supervisor alone. Sent to the whole group, it would end the
  commands of a turn that we give its time, and a server on stdio at once. What is left when the
  supervisor has gone is killed, so that no orphan stays.
- `OOMPolicy=continue`: a command of a turn that is too big for the machine must not end us.
- `Type=notify`, not `notify-reload`, which needs systemd 253.
- A server of our own runs the user's commands in a sandbox of its own making (user namespaces, and
  where those are forbidden a setuid bubblewrap): `NoNewPrivileges`, `RestrictNamespaces` and most
  others would break it, `PrivateTmp` hides the sockets of newer servers, and `UMask` would reach
  the user's own files. So only a supervisor that attaches gets them.
"""

import math
import plistlib
import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from codexdrv.config import Limits
from codexdrv.errors import ConfigurationError, ExitCode
from codexdrv.transport.ladder import KILLED_GRACE_S, SECOND_GRACE_S


UNIT_NAME = "codexdrv.service"
LABEL = "local.codexdrv"
"""launchd's name for it, and that of its file."""

RESTART_S = 15
"""A message waits so long for us after a crash; a server that keeps dying costs no more than that
four times a minute."""

WATCHDOG_S = 60
"""We answer twice as often. A disk may hold a loop up for seconds, never for as long as this."""

SPARE_S = 8.0
"""Room for a slow disk at the stop."""

INSTALL_USER = (
    "mkdir -p ~/.config/systemd/user",
    "codexdrv{options} service-template systemd > ~/.config/systemd/user/codexdrv.service",
    "systemctl --user daemon-reload",
    "systemctl --user enable --now codexdrv",
    "loginctl enable-linger          # else it ends when you log out",
    "systemctl --user status codexdrv; journalctl --user -u codexdrv -f",
)
INSTALL_SYSTEM = (
    "codexdrv{options} service-template systemd --system > codexdrv.service",
    "sudo install -m 644 codexdrv.service /etc/systemd/system/",
    "sudo systemctl daemon-reload",
    "sudo systemctl enable --now codexdrv",
    "systemctl status codexdrv; journalctl -u codexdrv -f",
)
INSTALL_AGENT = (
    "save it as ~/Library/LaunchAgents/local.codexdrv.plist, then",
    "launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/local.codexdrv.plist",
)
"""Commands to run, in this order; `{options}` are those that this unit was made with."""

ATTACHED_ONLY = (
    "# It attaches to a server: it writes its own files only, and needs no network. For a server",
    '# of its own (mode = "spawn") make the unit anew: these would break the sandbox of Codex.',
    "NoNewPrivileges=yes",
    "UMask=0077",
    "RestrictAddressFamilies=AF_UNIX",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
)


# Lone surrogates, too: bytes that are no UTF-8.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Service(NamedTuple):
    """What a unit has to say; every path in it is absolute."""

    #: The interpreter and its words, to the last one.
    command: tuple[str, ...]
    environment: Mapping[str, str]
    #: `stop_grace_s` of a server of our own; None: it attaches.
    stop_grace_s: float | None
    #: Variables that are nobody else's business, such as keys; it need not exist.
    secrets: str
    #: The user of a system unit; None: a unit of the user's own manager.
    user: str | None = None

    @property
    def stop_s(self) -> int:
        """As long as the manager should wait for a stop."""
        return math.ceil(longest_stop_s(self.stop_grace_s) + SPARE_S)


def longest_stop_s(stop_grace_s: float | None) -> float:
    """Add up what a stop in good order can take.

    The answers that are open come first. A server of our own gets its grace twice, first for the
    turns in our threads and then for all others, a second SIGTERM, and SIGKILL.
    """
    ladder_s = 0.0
    if stop_grace_s is not None:
        ladder_s = 2 * stop_grace_s + SECOND_GRACE_S + KILLED_GRACE_S
    return Limits().drain_s + ladder_s


def install_steps(service: Service) -> tuple[str, ...]:
    """Name the commands that put the systemd unit of a service in place."""
    words = service.command
    at = words.index("--config") if "--config" in words else len(words)
    options = "".join(f" {shlex.quote(word)}" for word in words[at : at + 2])
    steps = INSTALL_USER if service.user is None else INSTALL_SYSTEM
    return tuple(step.format(options=options) for step in steps)


def systemd_unit(service: Service) -> str:
    """Write a unit of the user's own manager, or of the system's; its first lines say what to do.

    Raises:
        ConfigurationError: a path holds what systemd cannot take.
    """
    is_system = service.user is not None
    lines = [
        "# codexdrv: delivers messages into Codex threads. Made by `codexdrv service-template`.",
        *(f"#   {line}" for line in install_steps(service)),
        "",
        "[Unit]",
        "Description=codexdrv, the supervisor of Codex threads",
        # At a shutdown, turns that finish still need the network.
        *(["After=network.target"] if is_system else []),
        "# It comes back for ever, however often it has ended.",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=notify",
        *([f"User={_specifiers(service.user)}"] if service.user is not None else []),
        f"ExecStart={_command(service.command)}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        *(f"Environment={_quoted(f'{k}={v}')}" for k, v in service.environment.items()),
        *_secrets(service),
        "SyslogIdentifier=codexdrv",
        f"WatchdogSec={WATCHDOG_S}",
        "Restart=always",
        f"RestartSec={RESTART_S}",
        f"# {ExitCode.CONFIGURATION}: the configuration is wrong; a restart does not mend it.",
        f"RestartPreventExitStatus={ExitCode.CONFIGURATION}",
        *_stopping(service),
        *(ATTACHED_ONLY if service.stop_grace_s is None else ()),
        "",
        "[Install]",
        f"WantedBy={'multi-user' if is_system else 'default'}.target",
    ]
    return "\n".join(lines) + "\n"


def launchd_plist(service: Service, *, log: str) -> str:
    """Write a LaunchAgent, which nobody has tried; its first lines say what to do.

    Raises:
        ConfigurationError: a path holds what XML cannot take.
    """
    values = (*service.command, *service.environment.values(), log)
    for value in values:
        _checked(value)
    agent = {
        "Label": LABEL,
        "ProgramArguments": list(service.command),
        "EnvironmentVariables": dict(service.environment),
        "RunAtLoad": True,
        "KeepAlive": True,
        # It has no way to tell exit 78: a wrong configuration is tried once a minute.
        "ThrottleInterval": 60,
        "ExitTimeOut": service.stop_s,
        # SIGTERM is for the supervisor alone: it stops its server itself.
        "AbandonProcessGroup": True,
        "StandardErrorPath": log,
    }
    text = plistlib.dumps(agent, sort_keys=False).decode()
    head, doctype, body = text.partition('.dtd">\n')
    told = "\n".join(f"  {line}" for line in INSTALL_AGENT)
    note = (
        "<!-- UNTESTED: codexdrv supports Linux, and nobody has tried this file on macOS.\n"
        "  launchd cannot tell a wrong configuration (exit 78) from a crash: it is tried again\n"
        f"  every minute. The log says why.\n{told}\n-->\n"
    )
    return f"{head}{doctype}{note}{body}"


def _secrets(service: Service) -> tuple[str, ...]:
    if service.stop_grace_s is None:
        return ()
    return (
        "# Keys and the like for the server, NAME=VALUE a line, mode 0600; it need not exist.",
        f"EnvironmentFile=-{_specifiers(_checked(service.secrets))}",
    )


def _stopping(service: Service) -> tuple[str, ...]:
    if service.stop_grace_s is None:
        return (f"TimeoutStopSec={service.stop_s}",)
    return (
        "# The supervisor stops its server itself, which may finish its turns (stop_grace_s).",
        "KillMode=mixed",
        f"TimeoutStopSec={service.stop_s}",
        "# A command of a turn that eats all memory must not take the supervisor with it.",
        "OOMPolicy=continue",
    )


def _command(words: tuple[str, ...]) -> str:
    """Write ExecStart; nothing in it is expanded."""
    program = words[0]
    if set(program) & {'"', "'", "\\"}:
        raise ConfigurationError(
            f"systemd starts no program whose path has quotes or backslashes: {program}.",
            hint="Install codexdrv in a directory with a plainer name.",
        )
    # `$$` would not do for the program itself; `:` needs systemd 244, so only where it must be.
    literal = ":" if any("$" in word for word in words) else ""
    return " ".join([_quoted(f"{literal}{program}"), *map(_quoted, words[1:])])


def _quoted(word: str) -> str:
    """Quote a word as systemd.syntax(7) has it, where it needs that."""
    escaped = _specifiers(_checked(word)).replace("\\", "\\\\").replace('"', '\\"')
    plain = escaped == word and word and not set(word) & set(" ';#")
    return escaped if plain else f'"{escaped}"'


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _checked(text: str) -> str:
    """Refuse what cannot stand in a line of text."""
    if _CONTROL.search(text):
        raise ConfigurationError(
            f"This cannot stand in a service unit: {text!r}.",
            hint="Use paths, and values of variables, without control characters.",
        )
    return text
