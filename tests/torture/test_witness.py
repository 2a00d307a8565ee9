"""The witness of the torture reads rollout files as kills and full disks leave them."""

import json
from pathlib import Path

from tests.acceptance.kit import Said
from tests.torture.witness import RolloutLine, read_lines


def line(kind: str, payload: dict) -> str:
    return json.dumps({"timestamp": "T", "type": kind, "payload": payload}).replace(": ", ":", 1)


def model_line(text: str) -> str:
    content = [{"type": "input_text", "text": text}]
    return line("response_item", {"type": "message", "role": "user", "content": content})


def legacy_line(delivery: str, text: str) -> str:
    return line("event_msg", {"type": "user_message", "client_id": delivery, "message": text})


def paginated_line(delivery: str, text: str) -> str:
    content = [{"type": "text", "text": text}]
    item = {"type": "UserMessage", "client_id": delivery, "content": content}
    return line("event_msg", {"type": "item_completed", "item": item})


def read(tmp_path: Path, *lines: str) -> list[RolloutLine]:
    path = tmp_path / "rollout.jsonl"
    path.write_text("\n".join(lines))
    return read_lines(path)


def test_both_halves_of_a_pair_are_read(tmp_path: Path):
    lines = [model_line("one"), legacy_line("m1", "one"), model_line("two")]
    assert read(tmp_path, *lines, paginated_line("m2", "two")) == [
        RolloutLine(Said(None, "one"), is_models=True),
        RolloutLine(Said("m1", "one"), is_models=False),
        RolloutLine(Said(None, "two"), is_models=True),
        RolloutLine(Said("m2", "two"), is_models=False),
    ]


def test_a_line_without_its_end_takes_nothing_with_it(tmp_path: Path):
    cut = model_line("cut")[:40]
    lines = [cut + legacy_line("m1", "one"), legacy_line("m2", "two"), cut]
    assert [found.said for found in read(tmp_path, *lines)] == [
        Said("m1", "one"),
        Said("m2", "two"),
    ]


def test_a_text_may_look_like_a_line(tmp_path: Path):
    text = legacy_line("m9", "not said")
    assert [found.said for found in read(tmp_path, legacy_line("m1", text))] == [Said("m1", text)]


def test_other_lines_and_other_roles_say_nothing(tmp_path: Path):
    lines = [
        line("session_meta", {"id": "x"}),
        line("response_item", {"type": "message", "role": "assistant", "content": []}),
        line("event_msg", {"type": "task_started"}),
        line("compacted", {"message": "", "replacement_history": []}),
    ]
    assert read(tmp_path, *lines) == []
