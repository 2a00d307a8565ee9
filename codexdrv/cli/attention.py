"""`codexdrv attention`: what the server has asked, and how each question can be answered."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterator

from codexdrv.cli.open_questions import Question, is_out_of_reach, load_open
from codexdrv.clock import now_ms
from codexdrv.config import Config, load_config, named_columns
from codexdrv.errors import ExitCode
from codexdrv.protocol.printable import folded, shown, word
from codexdrv.protocol.questions import YES, Decision, posture_of
from codexdrv.story import tell_span


BAR = "  | "
"""Stands before every line of what somebody else wrote."""

COLUMNS = 80
"""Where there is no terminal, and $COLUMNS says nothing."""

EPILOG = """\
examples:
  codexdrv attention
  codexdrv attention --json | jq -r .id

What is asked was written by a model: read it before you accept it. It stands behind a
bar, in quotes that it cannot hold; what is not seen is written out (\\n), and ✂ stands
where something is left out. A decline lets the turn go on without it, a cancel ends it.
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
        yield "No question of the server is open in the threads that codexdrv serves."
    names = {target.thread: name for name, target in config.targets.items()}
    now, columns = now_ms(), _columns()
    for question in questions:
        thread = question["thread"]
        where = f"thread {shown(thread)}" if thread else "no thread"
        if thread in names:
            where = f"target {shown(names[thread])}, {where}"
        since = tell_span((now - question["since_ms"]) / 1000)
        yield f"{question['id']}  {question['kind']}, open for {since}, {where}"
        said = question["summary"] or shown(question["method"])
        yield from (f"{BAR}{line}" for line in folded(said, columns - len(BAR)))
        yield from _ways(question, config, path)


def _columns() -> int:
    try:
        real = os.get_terminal_size().columns
    except OSError:
        real = 0
    # A line wider than the terminal would be broken by it.
    known = [each for each in (named_columns(), real) if each]
    return max(min(known, default=COLUMNS), 2 * len(BAR))


def _ways(question: Question, config: Config, path: str | None) -> Iterator[str]:
    posture, decisions = posture_of(question["method"]), question["decisions"]
    if is_out_of_reach(config):
        yield "  no command can answer it: the server talks to its supervisor alone"
    elif decisions:
        command = f"codexdrv {'' if path is None else f'--config {word(path)} '}answer"
        if Decision.ACCEPT not in decisions:
            yield "  only another client can accept it"
        for decision in decisions:
            said = _said(question) if decision in YES else ""
            yield f"  {command} {question['id']} --decision {decision}{said}"
    elif posture.decisions:
        yield "  no command can answer it: nobody can say which server process asks"
    else:
        yield f"  no operator can answer it: only {posture.others} can"


def _said(question: Question) -> str:
    """Write what goes with a yes, a name a line: no terminal has to break one."""
    # With its sign, a name that begins with - is no flag.
    replies = "".join(f" \\\n    --reply={word(name)}=…" for name in question["questions"])
    members = ",".join(f"\n    {json.dumps(name)}: …" for name in question["required"])
    content = f" \\\n    --content {shlex.quote(f'{{{members}}}')}" if members else ""
    return replies + content
