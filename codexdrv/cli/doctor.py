"""`codexdrv doctor`: what is wrong with this machine, each thing with its remedy."""

import argparse
import json
from collections.abc import Sequence

from codexdrv import __version__
from codexdrv.config import load_config
from codexdrv.doctor.examination import examine, look
from codexdrv.doctor.finding import Finding, State
from codexdrv.errors import ExitCode


EPILOG = """\
examples:
  codexdrv doctor
  codexdrv --config ./codexdrv.toml doctor
  codexdrv doctor --json | jq '.checks[] | select(.state == "wrong")'

It changes nothing and makes nothing. Each line is ok, WRONG or a note; what is
wrong comes with its remedy. Exit 1 when something is WRONG, else 0.
"""

WORDS = {State.OK: "ok", State.WRONG: "WRONG", State.NOTE: "note"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    """Examine the machine, and say what was found."""
    findings = examine(look(load_config(args.config), version=__version__))
    wrongs = sum(finding.state is State.WRONG for finding in findings)
    if args.json:
        checks = [
            {
                "name": finding.name,
                "state": finding.state,
                "found": finding.found,
                "remedy": " ".join(finding.remedy.splitlines()) or None,
            }
            for finding in findings
        ]
        print(json.dumps({"healthy": not wrongs, "checks": checks}))
    else:
        print("\n".join(tell(findings)))
    return ExitCode.FAILED if wrongs else ExitCode.OK


def tell(findings: Sequence[Finding]) -> list[str]:
    """Lay findings out for people: aligned, a remedy under its finding, and the sum at the end."""
    width = max(len(finding.name) for finding in findings)
    lines = []
    for name, state, found, remedy in findings:
        start = f"{WORDS[state]:5}  {name:{width}}  "
        lines.append(f"{start}{found.rstrip('.')}")
        lines += [f"{'':{len(start)}}{line}" for line in remedy.splitlines()]
    wrongs = sum(finding.state is State.WRONG for finding in findings)
    lines.append("all is well" if not wrongs else f"{_count(wrongs)} wrong")
    return lines


def _count(wrongs: int) -> str:
    return "1 thing is" if wrongs == 1 else f"{wrongs} things are"
