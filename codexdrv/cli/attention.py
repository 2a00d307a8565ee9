"""`codexdrv attention`: what the server has asked, and how each question can be answered."""

import argparse
import json
import shlex
import sys
from collections.abc import Iterator

from codexdrv.cli.open_questions import Question, is_out_of_reach, load_open
from codexdrv.clock import now_ms
from codexdrv.config import Config, load_config
from codexdrv.errors import ExitCode
from codexdrv.protocol.printable import shown
from codexdrv.protocol.questions import YES, posture_of


EPILOG = """\
examples:
  codexdrv attention
  codexdrv attention --json | jq -r .id

What is asked was written by a model: read it before you accept it. A decline lets
the turn go on without it, a cancel ends the turn.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def run(args: argparse.Namespace) -> ExitCode:
    """List the open questions, oldest first."""
    config = load_config(args.config)
    known = load_open(config)
    if known.warning is not None:
        print(f"codexdrv: {known.warning}.", file=sys.stderr)
    if args.json:
        for question in known.questions:
            print(json.dumps(question))
    else:
        for line in _lines(known.questions, config, args.config):
            print(line)
    return ExitCode.OK if known.warning is None else ExitCode.FAILED


def _lines(questions: list[Question], config: Config, path: str | None) -> Iterator[str]:
    if not questions:
        yield "No question of the server is open."
    names = {target.thread: name for name, target in config.targets.items()}
    now = now_ms()
    for question in questions:
        thread = question["thread"]
        where = f"thread {shown(thread)}" if thread else "no thread"
        if thread in names:
            where = f"target {names[thread]}, {where}"
        since = age(now - question["since_ms"])
        yield f"{question['id']}  {question['kind']}, open for {since}, {where}"
        yield f"  {question['summary'] or shown(question['method'])}"
        yield from _ways(question, config, path)


def _ways(question: Question, config: Config, path: str | None) -> Iterator[str]:
    posture = posture_of(question["method"])
    if is_out_of_reach(config):
        yield "  no command can answer it: the server talks to its supervisor alone"
    elif question["decisions"]:
        command = f"codexdrv {'' if path is None else f'--config {shlex.quote(path)} '}answer"
        for decision in question["decisions"]:
            flags = _flags(question) if decision in YES else ""
            yield f"  {command} {question['id']} --decision {decision}{flags}"
    elif posture.decisions:
        yield "  no command can answer it: nobody can say which server process asks"
    else:
        yield f"  no operator can answer it: only {posture.others} can"


def _flags(question: Question) -> str:
    replies = [f" --reply {shlex.quote(shown(name))}=TEXT" for name in question["questions"]]
    members = ", ".join(f"{json.dumps(name)}: …" for name in question["required"])
    content = f" --content {shlex.quote('{' + members + '}')}" if members else ""
    return "".join(replies) + content


def age(milliseconds: int) -> str:
    """Say an age in its largest unit."""
    seconds = max(0, milliseconds) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
