"""`codexdrv list`: all deliveries, oldest first."""

import argparse
import json

from codexdrv.cli.shapes import delivery_object, look_around, one_line
from codexdrv.config import load_config
from codexdrv.errors import ExitCode
from codexdrv.journal.journal import Journal
from codexdrv.rules.ownership import Phase


EPILOG = """\
examples:
  codexdrv list
  codexdrv list --phase uncertain
  codexdrv list --json | jq -r 'select(.phase == "failed") | .id'
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    phases = [str(phase) for phase in Phase]
    parser.add_argument(
        "--phase", choices=phases, metavar="PHASE", help=f"only these: {', '.join(phases)}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def run(args: argparse.Namespace) -> ExitCode:
    """Print a line a delivery."""
    config = load_config(args.config)
    with Journal(config.state.directory) as journal:
        scene = look_around(config, journal, rings=False)
        for delivery in journal.deliveries(args.phase):
            if args.json:
                print(json.dumps(delivery_object(delivery, scene)))
            else:
                print(one_line(delivery, scene))
    return ExitCode.OK
