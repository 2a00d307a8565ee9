"""What `status` says of the machine, for people: a line a thing, the word first."""

from collections.abc import Iterator, Sequence
from typing import Any

from codexdrv.cli.shapes import Scene, delivery_sentence
from codexdrv.health import Machine, answered_ms
from codexdrv.snapshot import Snapshot
from codexdrv.story import tell_span, utc


def machine_lines(machine: Machine, problems: Sequence[str], scene: Scene) -> list[str]:
    """Lay the machine out; what is wrong comes last, where it is read first."""
    summary, snapshot = machine.summary, machine.snapshot
    lines = [f"supervisor  {'up' if machine.is_up else 'down'}"]
    if snapshot is not None:
        lines = [*_snapshot_lines(snapshot, machine)]
    counted = ", ".join(f"{count} {phase}" for phase, count in sorted(summary.live.items()))
    lines.append(f"deliveries  {counted or 'none is live'}")
    if summary.oldest is not None:
        age = _age(machine, summary.oldest.order.admitted_at_ms)
        lines.append(f"oldest      {age} old: {delivery_sentence(summary.oldest, scene)}")
    lines += [f"UNHEALTHY   {problem}" for problem in problems] or ["healthy"]
    return lines


def _snapshot_lines(snapshot: Snapshot, machine: Machine) -> Iterator[str]:
    body = snapshot.body
    since = f"since {utc(body['began_at_ms'])} ({_age(machine, body['began_at_ms'])})"
    yield f"supervisor  up, pid {body['pid']}, life {body['life']}, {since}"
    yield from _server_lines(body["server"], machine)
    for thread, state in body["threads"].items():
        yield _thread_line(thread, state, machine)
    for question in body["questions"]:
        about = f"{question['kind']}, open for {_age(machine, question['since_ms'])}"
        yield f"question    {question['id']} {about}, thread {question['thread'] or 'unknown'}"
    if body["questions"]:
        yield "            `codexdrv attention` shows what is asked, and how to answer"


def _server_lines(server: dict[str, Any], machine: Machine) -> Iterator[str]:
    restarts = f", restarts {server['restarts']}" if server["restarts"] else ""
    if not server["connected"]:
        yield f"server      none{restarts}"
        return
    assert machine.snapshot is not None, "that is where the server stands"
    answered = tell_span((answered_ms(machine.snapshot, machine.now_ms) or 0) / 1000)
    yield (
        f"server      codex {server['version'] or 'unknown'}, pid {server['pid']},"
        f" generation {server['generation']} for {_age(machine, server['since_ms'])}{restarts},"
        f" answered {answered} ago"
    )
    if server["outdated"]:
        yield (
            f"            on disk lies codex {server['version_on_disk']}: a server of our own is"
            " restarted with it when all is quiet, if it lies in the same place and is not older;"
            " else that is up to you"
        )


def _thread_line(thread: str, state: dict[str, Any], machine: Machine) -> str:
    name = f"{', '.join(state['targets'])} = " if state["targets"] else ""
    parts = [state["status"], state["subscription"]]
    parts += [f"held by pid {', '.join(map(str, state['holders']))}"] if state["holders"] else []
    parts += [f"turn {state['turn']}"] if state["turn"] else []
    parts += ["waits for an answer"] if state["waiting"] else []
    depth = {str(each): count for each, count in machine.summary.depths.items()}.get(thread, 0)
    parts += [f"{depth} live"] if depth else []
    # What keeps it from being loaded is a word already.
    if state["problem"] and state["subscription"] in {"none", "subscribed"}:
        parts.append(f"held up: {state['problem'].rstrip('.')}")
    return f"thread      {name}{thread}: {', '.join(parts)}"


def _age(machine: Machine, since_ms: int) -> str:
    return tell_span((machine.now_ms - since_ms) / 1000)
