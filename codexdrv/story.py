"""A delivery's story, fact by fact, in words: when, what, why, and who wrote it."""

from datetime import UTC, datetime

from codexdrv.journal.dispatch import decode_dispatch
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
        server = f"server {dispatch.peer.pid}" if dispatch.peer else "server unknown"
        said += f": turn/{dispatch.route} goes out, attempt {news.attempt}, {server}"
        return said
    if news.outcome is not None:
        said += f": {news.outcome}"
    return f"{said}: {news.why}" if news.why else said


def _tell_steps(fact: RecordedFact) -> list[tuple[int, str]]:
    """Say a fact, and before it the decisions that led to it."""
    trail = decode_dispatch(fact.news.dispatch).trail if fact.news.dispatch else ()
    steps = [(step.at_ms, f"decided to {step.action}: {step.why}") for step in trail]
    return [*steps, (fact.at_ms, tell_fact(fact))]


def _writer(fact: RecordedFact) -> str:
    if fact.life is None:
        return "a command"
    generation = f", generation {fact.generation}" if fact.generation is not None else ""
    return f"life {fact.life}{generation}"


def utc(unix_ms: int) -> str:
    """Write a time as RFC 3339, UTC, with milliseconds."""
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _since(at_ms: int, start_ms: int) -> str:
    return f"{(at_ms - start_ms) / 1000:+8.3f} s"
