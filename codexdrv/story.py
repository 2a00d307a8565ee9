"""A delivery's story, fact by fact, in words: when, what, why, and who wrote it."""

import json
from datetime import UTC, datetime
from typing import Any

from codexdrv.journal.dispatch import Peer, decode_dispatch
from codexdrv.journal.rows import RecordedFact
from codexdrv.rules.lifecycle import Delivery


def tell_story(delivery: Delivery, facts: list[RecordedFact]) -> list[str]:
    """Tell everything: a line a fact, with the time of day and the seconds since admission."""
    start = delivery.order.admitted_at_ms
    lines = [f"{utc(start)}  {_since(start, start)}  admitted: it is on disk"]
    for fact in facts:
        lines += [
            f"{utc(at_ms)}  {_since(at_ms, start)}  {told} ({_writer(fact)})"
            for at_ms, told in _tell_steps(fact)
        ]
    return lines


def tell_briefly(delivery: Delivery, facts: list[RecordedFact]) -> list[str]:
    """Tell what happened and why, with the seconds since admission."""
    start = delivery.order.admitted_at_ms
    lines = [f"{_since(start, start)}  admitted: it is on disk"]
    for fact in facts:
        lines += [f"{_since(at_ms, start)}  {told}" for at_ms, told in _tell_steps(fact)]
    return lines


def tell_fact(fact: RecordedFact) -> str:
    """Say one fact and its reason."""
    news = fact.news
    said = news.fact.replace("_", " ")
    if news.dispatch is not None:
        dispatch = decode_dispatch(news.dispatch)
        server = tell_server(dispatch.peer) if dispatch.peer else "server unknown"
        said += f": turn/{dispatch.route} goes out, attempt {news.attempt}, {server}"
        return said
    if news.outcome is not None:
        said += f": {news.outcome}"
    return f"{said}: {news.why}" if news.why else said


def tell_server(peer: Peer) -> str:
    """Say which process it is: a pid alone may be another's by now."""
    return f"server {peer.pid} (ticks {peer.start_ticks}, boot {peer.boot_id[:8]})"


_FATES = {
    "alive": "the server that it was sent to lives",
    "gone": "the server that it was sent to is gone",
    "host_restarted": "the host was restarted since it was sent",
    "unknown": "nobody knows which server process it was sent to",
}


def tell_witness(text: str) -> str:
    """Say what the witnesses said, as the evidence was written down with its fact."""
    seen = json.loads(text)
    record, history = seen["record"], seen["history"]
    said = [
        f"the record {_answer(record['is_readable'], record)}",
        f"history {_answer(history['is_complete'], history)}",
        f"the fence says {seen['fence'].replace('_', ' ')}",
        _FATES[seen["fate"]],
    ]
    if seen["quiet_s"] is not None:
        said.append(f"{seen['quiet_s']:.1f} s after a first look that was quiet, too")
    return "; ".join(said)


def _answer(can_say_no: bool, witness: dict[str, Any]) -> str:  # noqa: FBT001 - one of two words
    times = len(witness["sightings"])
    if times:
        return "shows it" if times == 1 else f"shows it {times} times"
    if witness.get("ghosts"):
        return "has its text without its id"
    return "says no" if can_say_no else "cannot say"


def _tell_steps(fact: RecordedFact) -> list[tuple[int, str]]:
    """Say a fact, and before it the decisions that led to it."""
    trail = decode_dispatch(fact.news.dispatch).trail if fact.news.dispatch else ()
    steps = [(step.at_ms, f"decided to {step.action}: {step.why}") for step in trail]
    if fact.news.witness is not None:
        steps.append((fact.at_ms, f"asked: {tell_witness(fact.news.witness)}"))
    return [*steps, (fact.at_ms, tell_fact(fact))]


def _writer(fact: RecordedFact) -> str:
    if fact.life is None:
        return "a command"
    generation = f", generation {fact.generation}" if fact.generation is not None else ""
    return f"life {fact.life}{generation}"


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def tell_span(seconds: float) -> str:
    """Say how long something lasts, in two units at most: "40 s", "5 min", "2 h 3 min"."""
    left = max(0, int(seconds))
    for place, (size, unit) in enumerate(_UNITS):
        if left >= size:
            more, rest = _UNITS[place + 1 :][:1], left % size
            below = [f"{rest // small} {name}" for small, name in more if rest >= small]
            return " ".join([f"{left // size} {unit}", *below])
    return f"{left} s"


def utc(unix_ms: int) -> str:
    """Write a time as RFC 3339, UTC, with milliseconds."""
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _since(at_ms: int, start_ms: int) -> str:
    return f"{(at_ms - start_ms) / 1000:+8.3f} s"
