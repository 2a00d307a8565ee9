"""`codexdrv supervise`: the resident dispatcher, in the foreground."""

import argparse

import anyio

from codexdrv import __version__
from codexdrv.config import load_config
from codexdrv.errors import ExitCode
from codexdrv.logs import configure_logs
from supervisor.service import serve


EPILOG = """\
examples:
  codexdrv supervise
  codexdrv --config ./codexdrv.toml supervise --verbose

It attaches to a running `codex app-server`, by default on Codex's own control
socket (`codex app-server --listen unix://` listens there), comes back when the
server does, and never stops a server. SIGTERM or Ctrl-C stops it in good order;
a second one at once. Logs go to stderr, as JSON unless that is a terminal. One
supervisor serves a state directory.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument("--verbose", action="store_true", help="log every decision")


def run(args: argparse.Namespace) -> ExitCode:
    """Supervise until a signal."""
    config = load_config(args.config)
    configure_logs(is_verbose=args.verbose)
    anyio.run(lambda: serve(config, version=__version__))
    return ExitCode.OK
