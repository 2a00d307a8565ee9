"""`codexdrv status`: how the machine stands; with an id, how one delivery does, and why."""

import argparse
import importlib
import itertools
import json
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from codexdrv import __version__
from codexdrv.cli.machine import machine_lines
from codexdrv.cli.shapes import Scene, delivery_object, delivery_sentence, look_around
from codexdrv.cli.usage import tell_usage
from codexdrv.clock import now_ms
from codexdrv.config import Config, load_config
from codexdrv.errors import CodexdrvError, ExitCode
from codexdrv.health import Machine, Problem, changed_keys, judge_health, server_table, tell_changed
from codexdrv.ids import name_delivery
from codexdrv.journal.journal import Journal
from codexdrv.journal.rows import RecordedFact
from codexdrv.paths import disk_offence
from codexdrv.rules.ownership import Phase
from codexdrv.snapshot import load_snapshot
from codexdrv.story import tell_story, utc


IN_DOUBT_SHOWN = 10
"""`codexdrv list --phase uncertain` shows all."""

EPILOG = """\
examples:
  codexdrv status                      the machine; exit 1 when it is unhealthy
  codexdrv status 0199…                one delivery
  codexdrv status mail/4711 --explain  its whole story, fact by fact
  codexdrv status --openmetrics        for Prometheus (node_exporter's textfile collector)

Unhealthy is what does not get through: no supervisor while deliveries wait, no
server, one that answers nothing for a minute, a target that cannot be loaded, a
delivery that is live, or a question that is open, for more than 15 minutes, a
full disk. Each stands there as a sentence.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument("id", metavar="ID", nargs="?", help="a delivery; default: the machine")
    parser.add_argument("--explain", action="store_true", help="tell the delivery fact by fact")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--openmetrics", action="store_true", help="print the machine for Prometheus"
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Look, and say."""
    if args.explain and args.id is None:
        return tell_usage("status", "--explain wants an ID")
    if args.openmetrics and (args.json or args.id is not None):
        return tell_usage("status", "--openmetrics is about the machine, and is no JSON")
    try:
        return _look(args)
    except CodexdrvError:
        # What reads it alarms on what it says, and nobody on an empty file.
        if args.openmetrics:
            print(_openmetrics().render_unknown(), end="")
        raise


def _look(args: argparse.Namespace) -> ExitCode:
    config = load_config(args.config)
    with Journal(config.state.directory) as journal:
        if args.id is None:
            return _tell_machine(journal, config, args)
        delivery = journal.delivery(name_delivery(args.id))
        facts = journal.story(delivery.order.id) if args.explain else []
        scene = look_around(config, journal, rings=False)
    if args.json:
        body = delivery_object(delivery, scene)
        print(
            json.dumps(body | ({"facts": list(map(_fact_object, facts))} if args.explain else {}))
        )
        return ExitCode.OK
    print(delivery_sentence(delivery, scene))
    if args.explain:
        for line in tell_story(delivery, facts):
            print(f"  {line}")
    return ExitCode.OK


def _fact_object(fact: RecordedFact) -> dict[str, Any]:
    news = fact.news
    return {
        "fact": news.fact,
        "at": utc(fact.at_ms),
        "reason": news.reason,
        "why": news.why,
        "turn": news.turn,
        "outcome": news.outcome,
        "attempt": news.attempt,
        "dispatch": json.loads(news.dispatch) if news.dispatch else None,
        "witness": json.loads(news.witness) if news.witness else None,
        "life": fact.life,
        "generation": fact.generation,
    }


def _tell_machine(journal: Journal, config: Config, args: argparse.Namespace) -> ExitCode:
    scene = look_around(config, journal, rings=False)
    machine = Machine(
        journal.summary(),
        load_snapshot(config.state.directory),
        scene.is_up,
        now_ms(),
        __version__,
        disk_offence(os.statvfs(config.state.directory)),
    )
    problems = judge_health(machine)
    snapshot = None if machine.is_stale else machine.snapshot
    changed = changed_keys(snapshot, config.server) if snapshot else []
    if args.openmetrics:
        print(_openmetrics().render(machine, problems), end="")
    elif args.json:
        ours = {
            "state": config.state.directory,
            "mode": server_table(config.server)["mode"],
            "changed": changed,
        }
        print(json.dumps(_machine_object(machine, problems, scene) | ours))
    else:
        print(f"state       {config.state.directory}")
        if changed:
            print(f"restart     {tell_changed(changed)}: restart it")
        print("\n".join(machine_lines(machine, list(map(_told, problems)), scene)))
        for found in itertools.islice(journal.deliveries(Phase.UNCERTAIN), IN_DOUBT_SHOWN):
            print(f"IN DOUBT    {delivery_sentence(found, scene)}")
    return ExitCode.FAILED if problems else ExitCode.OK


def _openmetrics() -> ModuleType:
    # Its library is loaded for this alone: 60 ms.
    return importlib.import_module("codexdrv.cli.openmetrics")


def _told(problem: Problem) -> str:
    """Lay a problem out under its word, the remedy below."""
    return f"\n{'':12}".join((problem.sentence, *problem.remedy.splitlines()))


def _machine_object(machine: Machine, problems: Sequence[Problem], scene: Scene) -> dict[str, Any]:
    body = machine.snapshot.body if machine.snapshot else {}
    summary = machine.summary
    return {
        "healthy": not problems,
        "problems": [problem.sentence for problem in problems],
        "remedies": [problem.remedy for problem in problems],
        "supervisor": "up" if machine.is_up else "down",
        "pid": body.get("pid"),
        "life": body.get("life"),
        "began_at": utc(body["began_at_ms"]) if body else None,
        "server": body.get("server"),
        "journal_problem": body.get("journal_problem"),
        "threads": body.get("threads", {}),
        "questions": body.get("questions", []),
        "live": summary.live,
        "depths": summary.depths,
        "oldest": delivery_object(summary.oldest, scene) if summary.oldest else None,
    }
