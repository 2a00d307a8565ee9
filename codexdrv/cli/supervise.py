"""`codexdrv supervise`: the dispatcher, in the foreground: resident, or once."""

import argparse
import itertools
import sys
from functools import partial

import anyio

from codexdrv import __version__
from codexdrv.cli.shapes import Scene, delivery_sentence
from codexdrv.cli.usage import seconds, tell_usage
from codexdrv.config import Config, load_config, manager_words
from codexdrv.errors import ExitCode
from codexdrv.journal.journal import Journal
from codexdrv.logs import configure_logs
from codexdrv.rules.lifecycle import is_live
from supervisor.service import Terms, serve


ONCE_TIMEOUT_S = 60.0
"""As long as `deliver --wait surfaced` waits."""

LEFT_SHOWN = 10
"""`codexdrv list` shows all."""

EPILOG = """\
examples:
  codexdrv supervise
  codexdrv --config ./codexdrv.toml supervise --verbose
  codexdrv supervise --once            dispatch what waits, then leave (cron)

It attaches to a running `codex app-server`, by default on Codex's own control
socket (`codex app-server --listen unix://` listens there), comes back when the
server does, and never stops a server that it did not start. With
[server] mode = "spawn" in the configuration it runs a server of its own.

SIGTERM or Ctrl-C stops it in good order; a second one at once. Logs go to
stderr, as JSON unless that is a terminal. One supervisor serves a state
directory.

--once ends when every message is in its thread (exit 0), or after --timeout,
or when there is no server; exit 3 when something is still queued or in doubt.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument("--verbose", action="store_true", help="log every decision")
    parser.add_argument(
        "--once", action="store_true", help="dispatch what can be dispatched now, then leave"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        help=f"with --once: wait so long for what is held up (default {ONCE_TIMEOUT_S:g}; or none)",
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Supervise until a signal, or once."""
    if args.timeout is not None and not args.once:
        return tell_usage("supervise", "--timeout is for --once")
    config = load_config(args.config)
    configure_logs(is_verbose=args.verbose)
    once_s = None
    if args.once:
        once_s = ONCE_TIMEOUT_S if args.timeout is None else args.timeout
    # A file that was there stays the one that counts: gone, it is an error, and no empty one.
    reload = partial(load_config, config.path or args.config)
    terms = Terms(__version__, reload, manager_words(), once_s)
    problem = anyio.run(lambda: serve(config, terms))
    return _tell_left(config, problem) if args.once else ExitCode.OK


def _tell_left(config: Config, problem: str | None) -> ExitCode:
    """Say what is still live; that is what `--once` could not do."""
    with Journal(config.state.directory) as journal:
        # As it was when the supervisor, which is down by now, left it.
        scene = Scene(True, problem, journal.heads())
        live = (found for found in journal.deliveries() if is_live(found.standing.phase))
        left = list(itertools.islice(live, LEFT_SHOWN + 1))
    for found in left[:LEFT_SHOWN]:
        print(f"LEFT  {delivery_sentence(found, scene)}", file=sys.stderr)
    if len(left) > LEFT_SHOWN:
        print("LEFT  and more: `codexdrv list` shows all.", file=sys.stderr)
    return ExitCode.IN_DOUBT if left else ExitCode.OK
