"""`python -m codexdrv`, and the console script."""

import importlib
import sys

from codexdrv.cli.interrupt import leave_on_interrupt


def run() -> None:
    """Run the command line and exit with its code."""
    leave_on_interrupt()
    # Loading it takes as long as an impatient finger.
    sys.exit(importlib.import_module("codexdrv.cli.main").main(sys.argv[1:]))


if __name__ == "__main__":
    run()
