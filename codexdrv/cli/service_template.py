"""`codexdrv service-template`: a unit that runs the supervisor as it would run in this shell.

What a shell has and a service lacks is written down: the interpreter, the configuration, PATH and
the homes, all absolute. The interpreter is that of the environment which codexdrv is installed in
(`VENV/bin/python`): pip, pipx and uv upgrade below it, and a version manager's shim is not asked.
`-I` keeps $PYTHONPATH and the working directory out, where a directory named `supervisor` would be
ours. The console script would do the same without that; it is taken where nothing else works.
"""

import argparse
import os
import pwd
import sys

from codexdrv import __version__
from codexdrv.binary import find_binary
from codexdrv.cli.usage import tell_usage
from codexdrv.config import Config, load_config
from codexdrv.doctor.interpreter import FOR_GOOD, ask_version, is_fleeting, place_offence
from codexdrv.errors import ConfigurationError, ExitCode, NotFound
from supervisor.units import (
    INSTALL_AGENT,
    Service,
    install_steps,
    launchd_plist,
    systemd_unit,
)


EPILOG = """\
examples:
  codexdrv service-template systemd > ~/.config/systemd/user/codexdrv.service
  codexdrv --config ./codexdrv.toml service-template systemd
  codexdrv service-template systemd --system     for /etc/systemd/system
  codexdrv service-template launchd              nobody has tried it yet

Run it in the shell in which codexdrv and codex work, as the user who shall own
the service. It prints the unit and installs nothing; the first lines of the
unit say how to. `codexdrv doctor` checks the one that is installed.
"""

KEPT = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
"""XDG_RUNTIME_DIR is the manager's to say."""

PRIVATE = (
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "CODEX_CA_CERTIFICATE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
"""What a server may need of a shell, and a unit, which everybody may read, must not hold."""

PATH_DEFAULT = "/usr/local/bin:/usr/bin:/bin"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument("manager", choices=("systemd", "launchd"), help="the service manager")
    parser.add_argument(
        "--system",
        action="store_true",
        help="with systemd: a unit of the system that runs as you, not one of your own manager",
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Print the unit; say on stderr what may go wrong with it, and what to do with it."""
    if args.system and args.manager == "launchd":
        return tell_usage("service-template", "--system is for systemd")
    config = load_config(args.config)
    service = _describe(config, is_system=args.system)
    if args.manager == "systemd":
        print(systemd_unit(service), end="")
    else:
        log = f"{service.environment['HOME']}/Library/Logs/codexdrv.log"
        print(launchd_plist(service, log=log), end="")
    for line in _warnings(config, service):
        print(f"codexdrv service-template: {line}", file=sys.stderr)
    if not sys.stdout.isatty():
        # On a terminal they stand above, in the unit itself.
        print("To install it:", file=sys.stderr)
        steps = INSTALL_AGENT if args.manager == "launchd" else install_steps(service)
        print(*(f"  {step}" for step in steps), sep="\n", file=sys.stderr)
    return ExitCode.OK


def _describe(config: Config, *, is_system: bool) -> Service:
    """Write down what this shell has.

    Raises:
        ConfigurationError, NoCodex: no codex can be started with that.
    """
    environment = _environment(config)
    spawn = config.server.spawn
    if spawn is not None:
        find_binary(config.server.codex, environment["PATH"])
    home = environment["HOME"]
    base = f"{environment.get('XDG_CONFIG_HOME', f'{home}/.config')}/codexdrv"
    named = os.path.abspath(config.path) if config.path else None
    options = ("--config", named) if named else ()
    return Service(
        (*_command(environment), *options, "supervise"),
        environment,
        spawn.stop_grace_s if spawn else None,
        secrets=f"{os.path.dirname(named) if named else base}/service.env",
        user=_user() if is_system else None,
    )


def _environment(config: Config) -> dict[str, str]:
    ours = config.server.environment
    kept = {name: ours[name] for name in KEPT if os.path.isabs(ours.get(name, ""))}
    return {
        "HOME": os.path.abspath(ours.get("HOME") or os.path.expanduser("~")),
        "PATH": service_path(config),
        "CODEX_HOME": config.server.codex_home,
        **kept,
    }


def service_path(config: Config) -> str:
    """Say the directories of $PATH that a service finds as well, in their order.

    One that a shell has for itself (fnm's, in /run) is written as what it leads to.
    """
    server = config.server
    found: dict[str, None] = {}
    for entry in server.search_path.split(":"):
        if not os.path.isabs(entry) or not os.path.isdir(entry):
            continue
        place = os.path.normpath(entry)
        if is_fleeting(place, server.environment):
            place = os.path.realpath(place)
        # Codex puts a directory of its own, for as long as it runs, on the PATH of its commands.
        is_inside = place.startswith(f"{server.codex_home}/")
        if not is_inside and not is_fleeting(place, server.environment):
            found[place] = None
    return ":".join(found) or PATH_DEFAULT


def _command(environment: dict[str, str]) -> tuple[str, ...]:
    """Find the words that start this codexdrv in a service.

    Raises:
        ConfigurationError: none do: it runs from a checkout, for one.
    """
    is_venv = sys.prefix != sys.base_prefix
    python = os.path.join(sys.prefix, "bin", "python") if is_venv else sys.executable
    # With `-I`, what `pip install --user` has installed is not found.
    commands: list[tuple[str, ...]] = [(python, flag, "-m", "codexdrv") for flag in ("-I", "-P")]
    script = os.path.abspath(sys.argv[0])
    if os.path.basename(script) == "codexdrv":
        commands.append((script,))
    for command in commands:
        try:
            if ask_version(command, environment) == __version__:
                return command
        except NotFound:
            continue
    raise ConfigurationError(
        f"A service cannot start this codexdrv: {python} does not find it without $PYTHONPATH.",
        hint=FOR_GOOD,
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _warnings(config: Config, service: Service) -> list[str]:
    lines = []
    if offence := place_offence(service.command[0], config.server.environment):
        lines.append(f"{offence.sentence}; the service cannot start then.\n  {offence.hint}")
    private = [name for name in PRIVATE if config.server.environment.get(name)]
    if config.server.spawn and private:
        lines.append(
            f"set here, and not in the unit: {', '.join(private)}.\n"
            f"  If the server needs them, put them into {service.secrets} (chmod 600)."
        )
    if os.geteuid() == 0 and service.user is None:
        lines.append("you are root, who seldom has a manager of its own.\n  See --system.")
    return lines
