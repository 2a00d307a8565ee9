"""`codexdrv cancel`: take a delivery back, if it was not sent."""

import argparse
import json

from codexdrv.cli.shapes import delivery_object, delivery_sentence, look_around
from codexdrv.clock import now_ms
from codexdrv.config import load_config
from codexdrv.errors import ExitCode, NotCancellable
from codexdrv.ids import name_delivery
from codexdrv.journal.journal import Journal


EPILOG = """\
examples:
  codexdrv cancel 0199…
  codexdrv cancel mail/4711 --json

Exit 0: it is cancelled, and will not be sent. Exit 1: too late, and what it is
instead.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument("id", metavar="ID", help="the delivery")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    """Cancel, or say why not."""
    config = load_config(args.config)
    with Journal(config.state.directory) as journal:
        delivery, too_late = journal.cancel(name_delivery(args.id), now_ms=now_ms())
        scene = look_around(config, journal)
    if too_late is not None:
        raise NotCancellable(
            f"{delivery_sentence(delivery, scene)} {too_late.capitalize()}.",
            hint=f"`codexdrv status {args.id} --explain` tells its story.",
        )
    if args.json:
        print(json.dumps(delivery_object(delivery, scene)))
    else:
        print(delivery_sentence(delivery, scene))
    return ExitCode.OK
