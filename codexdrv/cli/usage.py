"""A command line that is wrong: one sentence, where to look, and exit 2."""

import sys

from codexdrv.errors import ExitCode


def tell_usage(command: str, problem: str, *, hint: str = "") -> ExitCode:
    """Say what is wrong with the flags of a command, before anything is done."""
    advice = f"{hint} See `codexdrv {command} --help`.".lstrip()
    print(f"codexdrv {command}: {problem}.\n  {advice}", file=sys.stderr)
    return ExitCode.USAGE
