"""The service: what the installed unit would find, which is not what this shell finds."""

import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from codexdrv.binary import Binary, find_binary
from codexdrv.config import Config, load_config
from codexdrv.doctor.finding import Finding, look_at, note, ok, wrong
from codexdrv.doctor.interpreter import ask_version, place_offence
from codexdrv.doctor.unit_file import (
    SYSTEM_PLACES,
    UnitFile,
    find_units,
    load_settings,
    read_command,
    read_environment,
    user_places,
)
from codexdrv.errors import ConfigurationError, ExitCode, NotFound
from codexdrv.paths import Offence


NAME = "unit"
LINGER = "/var/lib/systemd/linger"
"""logind keeps a file here for each user whose manager runs without a login."""

PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
"""What systemd gives a service whose unit says nothing."""

ANEW = "Make it anew in this shell: `codexdrv service-template systemd`; its first lines say how."
NONE = "To run as a service: `codexdrv service-template systemd`; its first lines say how."

OFF = frozenset({"", "no", "n", "false", "f", "off", "0"})

BREAKING = (
    *("NoNewPrivileges", "RestrictNamespaces", "PrivateUsers", "PrivateTmp"),
    *("ProtectSystem", "ProtectHome", "ProtectProc", "ProtectKernelTunables", "PrivateDevices"),
    *("ProtectControlGroups", "ProtectKernelLogs", "ProtectHostname", "ProtectClock"),
    *("RestrictAddressFamilies", "SystemCallFilter", "MemoryDenyWriteExecute", "DynamicUser"),
    *("CapabilityBoundingSet", "RestrictSUIDSGID", "PrivateNetwork", "IPAddressDeny"),
)
"""Under these a server of our own cannot make its sandbox, or its turns lack what a shell has."""


class UnitSeen(NamedTuple):
    """A unit, and what came of looking at things as its service would."""

    unit: UnitFile
    is_masked: bool
    #: The user that it runs as, if that is not us: then nothing more was looked at.
    stranger: str | None
    #: Its manager goes on without a login.
    lingers: bool
    settings: Mapping[str, list[str]]
    command: tuple[str, ...]
    environment: Mapping[str, str]
    #: What its command line says it is; None: it does not run `codexdrv supervise` itself.
    version: str | Offence | None
    config: Config | Offence | None
    #: The codex that it would start; None: it attaches.
    binary: Binary | Offence | None


def look_at_units(
    config: Config, *, places: tuple[str, ...] = SYSTEM_PLACES, linger: str = LINGER
) -> list[UnitSeen]:
    """Look at each unit of ours; nothing is started but `--version`. Raises: OSError."""
    environment = config.server.environment
    ours = user_places(environment, environment.get("HOME") or os.path.expanduser("~"))
    return [look_at_unit(unit, linger=linger) for unit in find_units(ours, places)]


def look_at_unit(unit: UnitFile, *, linger: str = LINGER) -> UnitSeen:
    """Look at one. Raises: OSError, where it cannot be read."""
    is_masked = unit.is_masked
    settings = {} if is_masked else load_settings(unit)
    name, home = _who()
    user = last(settings, "User") or (name if unit.is_user else "root")
    stranger = None if user in {name, str(os.geteuid())} else user
    specifiers = {"h": home, "u": name, "U": str(os.geteuid())}
    command = read_command(last(settings, "ExecStart"), specifiers)
    given = {"HOME": home, "USER": name, "LOGNAME": name, "PATH": PATH_DEFAULT}
    environment = given | read_environment(settings, specifiers)
    lingers = os.path.exists(f"{linger}/{name}")
    seen = UnitSeen(
        unit, is_masked, stranger, lingers, settings, command, environment, None, None, None
    )
    start = _start_of(command)
    if stranger or not start:
        return seen
    found = look_at(lambda: _load(command[len(start) :], environment))
    return seen._replace(
        version=look_at(lambda: ask_version(_checked(start), environment)),
        config=found,
        binary=look_at(lambda: _find_binary(found)) if isinstance(found, Config) else None,
    )


def last(settings: Mapping[str, list[str]], key: str) -> str:
    """Read what counts of a key that has one value."""
    return (settings.get(key) or [""])[-1]


def judge_units(seen: list[UnitSeen] | Offence, config: Config, *, version: str) -> list[Finding]:
    """Say whether the service would be what this shell shows; a line for each thing that differs.

    Args:
        seen: the units.
        config: this shell's configuration.
        version: ours.
    """
    if isinstance(seen, Offence):
        return [wrong(NAME, seen.sentence, seen.hint)]
    findings = [finding for unit in seen for finding in _judge(unit, config, version)]
    return findings or [note(NAME, "no systemd unit is installed", NONE)]


def _judge(seen: UnitSeen, config: Config, version: str) -> list[Finding]:
    path = seen.unit.path
    if seen.is_masked:
        return [note(NAME, f"{path} is empty or masked: the service cannot be started", ANEW)]
    if seen.stranger:
        again = f"Run `codexdrv doctor` as {seen.stranger}, to see what it sees."
        return [note(NAME, f"{path} runs as {seen.stranger}: not looked at", again)]
    if seen.version is None:
        line = " ".join(seen.command) or "nothing"
        return [note(NAME, f"{path} runs {line}, not `codexdrv supervise` itself", ANEW)]
    findings = [
        *_judge_command(seen, version),
        *_judge_config(seen, config),
        *_judge_settings(seen),
        *_judge_start(seen),
    ]
    if not findings:
        findings = [ok(NAME, f"codexdrv {seen.version}, as in this shell")]
    return [each._replace(found=f"{path}: {each.found}") for each in findings]


def _judge_command(seen: UnitSeen, version: str) -> list[Finding]:
    if isinstance(seen.version, Offence):
        return [wrong(NAME, seen.version.sentence, ANEW)]
    findings = []
    if seen.version != version:
        said = f"it runs codexdrv {seen.version}, and this is {version}"
        findings.append(note(NAME, said, ANEW))
    if offence := place_offence(seen.command[0], seen.environment):
        findings.append(note(NAME, f"it will not start for long: {offence.sentence}", offence.hint))
    return findings


def _judge_config(seen: UnitSeen, config: Config) -> list[Finding]:
    found = seen.config
    if not isinstance(found, Config):
        assert found is not None, "it was looked at together with the version"
        return [wrong(NAME, f"the service would not start: {found.sentence}", found.hint or ANEW)]
    findings = []
    if found.state.directory != config.state.directory:
        there, here = found.state.directory, config.state.directory
        said = f"its state is {there}, this shell's is {here}: it does not see what you deliver"
        findings.append(wrong(NAME, said, ANEW))
    if found.server.codex_home != config.server.codex_home:
        there, here = found.server.codex_home, config.server.codex_home
        findings.append(wrong(NAME, f"its Codex home is {there}, this shell's is {here}", ANEW))
    if isinstance(seen.binary, Offence):
        said = f"it finds no codex to start: {seen.binary.sentence}"
        findings.append(wrong(NAME, said, f"{ANEW}\n{seen.binary.hint}".rstrip()))
    return findings


def _judge_settings(seen: UnitSeen) -> list[Finding]:
    settings, findings = seen.settings, []
    if not last(settings, "Type").startswith("notify"):
        said = "without Type=notify systemd does not know when it is ready, or hangs"
        findings.append(note(NAME, said, ANEW))
    code = str(int(ExitCode.CONFIGURATION))
    if last(settings, "Restart") in OFF:
        findings.append(note(NAME, "without Restart=always it does not come back", ANEW))
    elif code not in " ".join(settings.get("RestartPreventExitStatus", [])).split():
        said = f"a wrong configuration (exit {code}) is restarted for ever"
        findings.append(wrong(NAME, said, f"Add RestartPreventExitStatus={code} to [Service]."))
    is_ours = isinstance(seen.config, Config) and seen.config.server.spawn is not None
    breaking = BREAKING if is_ours else ("PrivateTmp",)
    if bad := [key for key in breaking if last(settings, key).lower() not in OFF]:
        why = "Codex cannot run its commands under" if is_ours else "Codex's socket is hidden by"
        findings.append(wrong(NAME, f"{why} {', '.join(bad)}", f"Take it out, or: {ANEW}"))
    return findings


def _judge_start(seen: UnitSeen) -> list[Finding]:
    findings = []
    flag, root = ("--user ", "") if seen.unit.is_user else ("", "sudo ")
    if not seen.unit.is_enabled:
        enable = f"`{root}systemctl {flag}enable --now codexdrv`"
        findings.append(note(NAME, "it is not enabled: nothing starts it", enable))
    if seen.unit.is_user and not seen.lingers:
        findings.append(note(NAME, "it ends when you log out", "`loginctl enable-linger`"))
    return findings


def _who() -> tuple[str, str]:
    """Name us and our home, as a service manager does: not as the environment has it."""
    with suppress(KeyError):
        entry = pwd.getpwuid(os.geteuid())
        return entry.pw_name, entry.pw_dir
    return str(os.geteuid()), "/"


def _start_of(command: tuple[str, ...]) -> tuple[str, ...]:
    """Take the words that start codexdrv; none, if it is something else that is run."""
    if "supervise" not in command:
        return ()
    if os.path.basename(command[0]) == "codexdrv":
        return command[:1]
    module = [at for at in range(1, len(command)) if command[at - 1 : at + 1] == ("-m", "codexdrv")]
    return command[: module[0] + 1] if module else ()


def _checked(start: tuple[str, ...]) -> tuple[str, ...]:
    """Make sure that there is something to run, and say what is missing."""
    program = start[0]
    if not os.path.isabs(program):
        raise NotFound(f"{program} is no absolute path, and a service has no PATH of yours.")
    if not os.path.exists(program):
        real = os.path.realpath(program)
        gone = f", a link to {real}," if real != program else ""
        raise NotFound(f"the interpreter {program}{gone} is not there.")
    if not os.access(program, os.X_OK):
        raise NotFound(f"{program} is not executable.")
    return start


def _load(words: tuple[str, ...], environment: Mapping[str, str]) -> Config:
    named = None
    for at, word in enumerate(words):
        if word == "--config":
            named = "".join(words[at + 1 : at + 2])
        elif word.startswith("--config="):
            named = word.partition("=")[2]
    if named is not None and not os.path.isabs(named):
        raise ConfigurationError(f"its configuration {named} is no absolute path.", hint=ANEW)
    return load_config(named, environment)


def _find_binary(config: Config) -> Binary | None:
    server = config.server
    return find_binary(server.codex, server.search_path) if server.spawn else None
