"""What a command line says: its numbers; and where it is wrong, one sentence and exit 2."""

import argparse
import sys

from codexdrv.errors import ExitCode


def tell_usage(command: str, problem: str, *, hint: str = "") -> ExitCode:
    """Say what is wrong with the flags of a command, before anything is done."""
    advice = f"{hint} See `codexdrv {command} --help`.".lstrip()
    print(f"codexdrv {command}: {problem}.\n  {advice}", file=sys.stderr)
    return ExitCode.USAGE


def seconds(text: str) -> float:
    """Read a time to wait; 'none' is for ever."""
    if text == "none":
        return float("inf")
    return _number(text, f"{text!r} is neither a number of seconds nor 'none'", least=0)


def positive_seconds(text: str) -> float:
    """Read a time that must pass."""
    # A thousandth is as fine as the journal's times.
    return _number(text, f"{text!r} is no number of seconds above 0", least=0.001)


def _number(text: str, problem: str, *, least: float) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(problem) from None
    if not least <= number < float("inf"):
        raise argparse.ArgumentTypeError(problem)
    return number
