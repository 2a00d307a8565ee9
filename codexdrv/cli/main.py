"""Find the command, load its module, run it; turn every error into one sentence and a code."""

import argparse
import importlib
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from codexdrv import __version__
from codexdrv.cli.interrupt import SENTENCE, raise_on_interrupt
from codexdrv.cli.output import Unwritten, guarded_output
from codexdrv.cli.usage import tell_usage
from codexdrv.errors import CodexdrvError, ExitCode


class Command(NamedTuple):
    """One command; its module has `arguments(parser)` and `run(args) -> ExitCode`."""

    name: str
    help: str
    module: str


COMMANDS = (
    Command("deliver", "put a message into a thread, once", "deliver"),
    Command("status", "say how the machine, or one delivery, stands", "status"),
    Command("list", "list all deliveries, oldest first", "listing"),
    Command("threads", "list the threads of the server", "threads"),
    Command("cancel", "take a delivery back that was not sent", "cancel"),
    Command("reconcile", "settle what is in doubt, by asking the server", "reconcile"),
    Command("resolve", "settle a delivery by an operator's word", "resolve"),
    Command("attention", "list what the server has asked and nobody has answered", "attention"),
    Command("answer", "answer a question of the server", "answer"),
    Command("supervise", "run the supervisor that dispatches", "supervise"),
    Command("doctor", "say what is wrong with this machine, and how to mend it", "doctor"),
    Command("service-template", "print a unit that runs the supervisor", "service_template"),
    Command("demo", "see it work: a real server, a scripted model, four messages", "demo"),
)

CONFIG_HELP = (
    "configuration file; default: $CODEXDRV_CONFIG, else ~/.config/codexdrv/config.toml, if any"
)

HELP_COLUMNS = 100
"""Longer lines are hard to read, however wide the terminal."""

EPILOG = """\
examples:
  codexdrv demo                          see it work, in a few seconds
  codexdrv supervise                     run the dispatcher
  codexdrv threads                       find the id of a thread
  codexdrv deliver --thread ID "Hello"   on disk when it exits 0
  codexdrv status ID --explain           where it stands, and why, fact by fact
  codexdrv doctor                        what is wrong here, and how to mend it

exit codes: 0 done; 1 failed or unhealthy; 2 usage; 3 in doubt or timed out;
65 bad input or a conflict; 66 not found; 69 no server or codex binary; 70 a
server of our own keeps dying; 73 journal; 75 try later; 78 configuration;
130 interrupted
"""


def main(argv: Sequence[str]) -> int:
    """Run one command line; return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A letter that the terminal lacks must not cost the answer.
        sys.stdout.reconfigure(errors="backslashreplace")
    with guarded_output():
        code: int = ExitCode.OK
        try:
            code = _run(argv)
            # An output that takes no more shows itself only here.
            print(end="", flush=True)
        except KeyboardInterrupt:
            print(SENTENCE, file=sys.stderr)
            return ExitCode.INTERRUPTED
        except Unwritten as failed:
            return code if failed.is_unheard else _tell_unwritten(failed, code)
        return code


def _run(argv: Sequence[str]) -> int:
    try:
        args, extra = _make_parser(_named_command(argv)).parse_known_args(argv)
    except SystemExit as end:
        # argparse has said all: the help, or what is wrong.
        return int(end.code or ExitCode.OK)
    if extra:
        return _tell_extra(args.command, extra)
    raise_on_interrupt()
    try:
        return ExitCode(named_module(args.command).run(args))
    except CodexdrvError as error:
        return tell_error(error, as_json=getattr(args, "json", False))


def _tell_unwritten(failed: Unwritten, code: int) -> int:
    print(f"codexdrv: The result cannot be written: {failed.why}.", file=sys.stderr)
    print("  What was done until then stands.", file=sys.stderr)
    # With the same id, a message can be delivered again.
    return code or ExitCode.TRY_LATER


def _tell_extra(command: str, extra: list[str]) -> ExitCode:
    quote = "A message with blanks needs quotes; one that begins with - comes after --."
    hint = quote if command == "deliver" else ""
    return tell_usage(command, f"not expected here: {' '.join(extra)}", hint=hint)


def tell_error(error: CodexdrvError, *, as_json: bool) -> ExitCode:
    """Say what is wrong and what to do; the sentence on stderr, the object on stdout."""
    if as_json:
        print(json.dumps({"error": error.as_object()}))
    print(f"codexdrv: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"  {error.hint}", file=sys.stderr)
    return error.exit_code


def named_module(name: str) -> Any:
    """Load the module of a command."""
    module = next(command.module for command in COMMANDS if command.name == name)
    return importlib.import_module(f"codexdrv.cli.{module}")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Examples stay as they are; the width is asked for without `shutil`, which costs 3 ms."""

    def __init__(self, prog: str) -> None:
        try:
            columns = os.get_terminal_size().columns or HELP_COLUMNS
        except OSError:
            columns = HELP_COLUMNS
        super().__init__(prog, max_help_position=26, width=min(columns, HELP_COLUMNS) - 2)

    def add_argument(self, action: argparse.Action) -> None:
        """Leave room for the longest command: argparse forgets how far in they stand."""
        super().add_argument(action)
        for command in self._iter_indented_subactions(action):
            length = self._current_indent + len(self._format_action_invocation(command))
            self._action_max_length = max(self._action_max_length, length)


class _Parser(argparse.ArgumentParser):
    """Usage errors are one sentence and where to look."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}.\n  See `{self.prog} --help`.\n")


def _make_parser(named: str | None) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="codexdrv",
        description="Deliver messages into Codex threads, once, and say truthfully where they are.",
        epilog=EPILOG,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"codexdrv {__version__}")
    parser.add_argument("--config", metavar="PATH", help=CONFIG_HELP)
    # With `prog` given, argparse does not format a usage to find it out: 3 ms.
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="codexdrv"
    )
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.help,
            description=command.help[0].upper() + command.help[1:] + ".",
            formatter_class=_Help,
            allow_abbrev=False,
        )
        sub.add_argument("--config", metavar="PATH", default=argparse.SUPPRESS, help=CONFIG_HELP)
        # Only the command that runs is loaded: `deliver` must not pay for the others.
        if command.name == named:
            named_module(command.name).arguments(sub)
    return parser


def _named_command(argv: Sequence[str]) -> str | None:
    names = {command.name for command in COMMANDS}
    words = iter(argv)
    for word in words:
        if word == "--config":
            next(words, None)
        elif not word.startswith("-"):
            return word if word in names else None
    return None
