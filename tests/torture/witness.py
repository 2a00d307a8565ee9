"""Read what became of the threads, when all is over: no line of codexdrv's engine has a part in it.

History as the server lists it, every rollout file, and what the model was shown.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from codexdrv.demo.script import Prompt
from tests.acceptance.kit import Message, Said, Truth, _said
from tests.torture.judge import ThreadTruth


BEGIN = '{"timestamp":'
"""How a line begins; a kill may leave one without its end, and the next right behind it."""

TURN_S = 30.0


class RolloutLine(NamedTuple):
    """A user message in a rollout file: the model's half of the pair, or the one with the id."""

    said: Said
    is_models: bool


def read_thread(
    truth: Truth,
    thread: str,
    *,
    home: Path,
    prompts: Iterable[Prompt],
    reverted: frozenset[str],
    is_abridged: bool,
) -> ThreadTruth:
    """Read one thread, loaded and asked once more, so that the model is shown all of it."""
    truth.resume(thread)  # a cold read may be stale
    files = [read_lines(path) for path in rollout_files(home, thread)]
    return ThreadTruth(
        history=tuple(truth.history(thread)),
        records=tuple(tuple(line.said for line in lines if not line.is_models) for lines in files),
        ghosts=_ghosts(files),
        prompt=_newest_prompt(prompts, probe_of(thread)),
        shown=_most_shown(prompts),
        reverted=reverted,
        is_abridged=is_abridged,
    )


def probe(truth: Truth, thread: str) -> None:
    """Say a last word in a thread, so that the model is shown all of it."""
    truth.resume(thread)
    truth.wait_for_turn(truth.start_turn(thread, probe_of(thread)), timeout_s=TURN_S)


def probe_of(thread: str) -> str:
    """Name the last word of a thread."""
    return f"the end of {thread}"


def rollout_files(home: Path, thread: str) -> list[Path]:
    """Find every record of a thread, oldest first."""
    return sorted(home.glob(f"*sessions/**/rollout-*{thread}*.jsonl"))


def read_lines(path: Path) -> list[RolloutLine]:
    """Read the user messages of a rollout file; of a broken line, what is whole."""
    rows = (row for line in path.read_text(errors="replace").split("\n") for row in _rows(line))
    return [found for found in map(_read_row, rows) if found is not None]


def _rows(line: str) -> Iterator[Message]:
    pieces = line.split(BEGIN)[1:]
    while pieces:
        # The text of a message may hold the words that a line begins with.
        for size in range(1, len(pieces) + 1):
            try:
                yield json.loads(BEGIN + BEGIN.join(pieces[:size]))
            except ValueError:
                continue
            pieces = pieces[size:]
            break
        else:
            pieces = pieces[1:]


def _read_row(row: Message) -> RolloutLine | None:
    payload = row["payload"]
    if row["type"] == "event_msg":
        said = _said(payload)
        return RolloutLine(said, is_models=False) if said is not None else None
    if row["type"] == "response_item" and payload.get("role") == "user":
        parts = [part for part in payload["content"] if part["type"] == "input_text"]
        text = "".join(part["text"] for part in parts)
        return RolloutLine(Said(None, text), is_models=True)
    return None


def _ghosts(files: list[list[RolloutLine]]) -> Mapping[str, int]:
    most: Counter[str] = Counter()
    for lines in files:
        models = Counter(line.said.text for line in lines if line.is_models)
        named = Counter(line.said.text for line in lines if not line.is_models)
        most |= models - named
    return most


def _newest_prompt(prompts: Iterable[Prompt], text: str) -> tuple[str, ...]:
    found = [prompt.texts for prompt in prompts if text in prompt.texts]
    return found[-1] if found else ()


def _most_shown(prompts: Iterable[Prompt]) -> Mapping[str, int]:
    most: Counter[str] = Counter()
    for prompt in prompts:
        most |= Counter(prompt.texts)
    return most
