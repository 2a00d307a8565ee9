"""`python -m codexdrv`, and the console script."""

import sys

from codexdrv.cli.main import main


def run() -> None:
    """Run the command line and exit with its code."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
