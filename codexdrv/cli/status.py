"""`codexdrv status`: how the machine stands; with an id, how one delivery does, and why."""

import argparse
import itertools
import json
import os
from typing import Any, NamedTuple

from codexdrv.cli.shapes import Scene, delivery_object, delivery_sentence, look_around
from codexdrv.cli.usage import tell_usage
from codexdrv.clock import now_ms
from codexdrv.config import Config, load_config
from codexdrv.errors import ExitCode
from codexdrv.ids import name_delivery
from codexdrv.journal.journal import Journal
from codexdrv.journal.rows import RecordedFact, Summary
from codexdrv.paths import Offence, disk_offence
from codexdrv.rules.ownership import Phase
from codexdrv.snapshot import Snapshot, load_snapshot
from codexdrv.story import tell_story, utc


OLD_MS = 15 * 60 * 1000
"""A live delivery of that age is reported: somebody should look (DESIGN.md, "Ownership")."""

IN_DOUBT_SHOWN = 10
"""`codexdrv list --phase uncertain` shows all."""

EPILOG = """\
examples:
  codexdrv status                      the machine; exit 1 when it is unhealthy
  codexdrv status 0199…                one delivery
  codexdrv status mail/4711 --explain  its whole story, fact by fact
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument("id", metavar="ID", nargs="?", help="a delivery; default: the machine")
    parser.add_argument("--explain", action="store_true", help="tell the delivery fact by fact")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    """Look, and say."""
    if args.explain and args.id is None:
        return tell_usage("status", "--explain wants an ID")
    config = load_config(args.config)
    with Journal(config.state.directory) as journal:
        if args.id is None:
            return _tell_machine(journal, config, as_json=args.json)
        delivery = journal.delivery(name_delivery(args.id))
        facts = journal.story(delivery.order.id) if args.explain else []
        scene = look_around(config, journal)
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


class Health(NamedTuple):
    """What is wrong; nothing is the best answer."""

    problems: tuple[str, ...]


def judge_health(
    summary: Summary,
    snapshot: Snapshot | None,
    *,
    is_up: bool,
    now_ms: int,
    disk: Offence | None = None,
) -> Health:
    """Say what is wrong with a machine: never "a pid exists", always what does not get through."""
    problems = []
    if disk is not None:
        problems.append(f"nothing can be stored, so nothing is sent: {disk.sentence}")
    if not is_up and summary.oldest is not None:
        problems.append("no supervisor is running, and deliveries wait: run `codexdrv supervise`")
    if is_up and (snapshot is None or snapshot.is_stale(now_ms)):
        problems.append("the supervisor is up but has not written its status for 15 s")
    elif is_up and snapshot is not None and not snapshot.body["server"]["connected"]:
        problems.append(str(snapshot.body["server"]["problem"]).rstrip("."))
    oldest = summary.oldest
    if oldest is not None and now_ms - oldest.order.admitted_at_ms > OLD_MS:
        minutes = (now_ms - oldest.order.admitted_at_ms) // 60_000
        held = oldest.standing.why or "nobody has tried yet"
        problems.append(
            f"{oldest.order.id} is {oldest.standing.phase} for {minutes} minutes: {held}"
        )
    return Health(tuple(problems))


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


def _tell_machine(journal: Journal, config: Config, *, as_json: bool) -> ExitCode:
    now = now_ms()
    scene = look_around(config, journal)
    summary = journal.summary()
    snapshot = load_snapshot(config.state.directory) if scene.is_up else None
    disk = disk_offence(os.statvfs(config.state.directory))
    health = judge_health(summary, snapshot, is_up=scene.is_up, now_ms=now, disk=disk)
    if as_json:
        print(json.dumps(_machine_object(summary, snapshot, health, scene)))
    else:
        print(f"state       {config.state.directory}")
        for line in _machine_lines(summary, snapshot, health, scene):
            print(line)
        for found in itertools.islice(journal.deliveries(Phase.UNCERTAIN), IN_DOUBT_SHOWN):
            print(f"IN DOUBT    {delivery_sentence(found, scene)}")
    return ExitCode.FAILED if health.problems else ExitCode.OK


def _machine_object(
    summary: Summary, snapshot: Snapshot | None, health: Health, scene: Scene
) -> dict[str, Any]:
    body = snapshot.body if snapshot else {}
    return {
        "healthy": not health.problems,
        "problems": list(health.problems),
        "supervisor": "up" if scene.is_up else "down",
        "pid": body.get("pid"),
        "life": body.get("life"),
        "began_at": utc(body["began_at_ms"]) if body else None,
        "server": body.get("server"),
        "threads": body.get("threads", {}),
        "live": summary.live,
        "oldest": delivery_object(summary.oldest, scene) if summary.oldest else None,
    }


def _machine_lines(
    summary: Summary, snapshot: Snapshot | None, health: Health, scene: Scene
) -> list[str]:
    lines = []
    if snapshot is None:
        lines.append(f"supervisor  {'up' if scene.is_up else 'down'}")
    else:
        body = snapshot.body
        server = body["server"]
        since = utc(body["began_at_ms"])
        lines.append(f"supervisor  up, pid {body['pid']}, life {body['life']}, since {since}")
        if server["connected"]:
            lines.append(
                f"server      codex {server['version'] or 'unknown'}, pid {server['pid']},"
                f" generation {server['generation']}, last heard {server['silent_s']:.0f} s ago"
            )
        else:
            lines.append("server      none")
        for thread, state in body["threads"].items():
            turn = f", turn {state['turn']}" if state["turn"] else ""
            lines.append(f"thread      {thread}: {state['status']}, {state['subscription']}{turn}")
    counted = ", ".join(f"{count} {phase}" for phase, count in sorted(summary.live.items()))
    lines.append(f"deliveries  {counted or 'none is live'}")
    if summary.oldest is not None:
        lines.append(f"oldest      {delivery_sentence(summary.oldest, scene)}")
    lines += [f"UNHEALTHY   {problem}" for problem in health.problems] or ["healthy"]
    return lines
