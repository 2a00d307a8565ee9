"""Record what the real servers write into rollout files: `make record`, or `python -m` this module.

Each function plays one scene; what it leaves in the thread's files is kept. `hello` with the id
`m1` is always ours, everything else is another client's.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from codexdrv.demo.script import Hold
from codexdrv.demo.server import AppServer
from tests.acceptance.binaries import VERSIONS, find_binary
from tests.acceptance.kit import Rig, ServerError, Truth
from tests.acceptance.scenes import COMPACT, enter
from tests.recording.stable import SECONDS, make_stable
from tests.recording.tap import Line


ROLLOUTS = Path(__file__).parents[2] / "fixtures" / "rollouts"
Scene = Callable[[Rig, Truth], None]

OURS, TEXT = "m1", "hello"
THEIRS = "theirs"
OLDEST = VERSIONS[0]

_TIMES = re.compile(r"(_at|_ms|_time)$")
_DAY = re.compile(r"20\d\d-\d\d-\d\d(?!T08:00:00)")


def start(rig: Rig, truth: Truth) -> None:
    say(truth, truth.start_thread(rig.cwd))


def steer(rig: Rig, truth: Truth) -> None:
    thread, turn = held_thread(rig, truth, "busy", "u1")
    truth.steer(thread, turn, TEXT, client_id=OURS)
    rig.model.release("busy")
    truth.wait_for_turn(turn)


def twins(rig: Rig, truth: Truth) -> None:
    # The same text under another id, under none, and in two parts.
    thread, turn = held_thread(rig, truth, TEXT, OURS)
    truth.steer(thread, turn, TEXT, client_id=THEIRS)
    truth.steer(thread, turn, TEXT)
    parts = [{"type": "text", "text": text} for text in (TEXT[:3], TEXT[3:])]
    truth.call("turn/steer", threadId=thread, expectedTurnId=turn, input=parts)
    rig.model.release(TEXT)
    truth.wait_for_turn(turn)


def image(rig: Rig, truth: Truth) -> None:
    thread = truth.start_thread(rig.cwd)
    dot = (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
        "rkJggg=="
    )
    parts = [
        {"type": "image", "url": f"data:image/png;base64,{dot}"},
        {"type": "text", "text": TEXT},
    ]
    begun = truth.call("turn/start", threadId=thread, input=parts, clientUserMessageId=THEIRS)
    truth.wait_for_turn(begun["turn"]["id"])


def twice(rig: Rig, truth: Truth) -> None:
    thread = truth.start_thread(rig.cwd)
    say(truth, thread)
    say(truth, thread)


def other_text(rig: Rig, truth: Truth) -> None:
    say(truth, truth.start_thread(rig.cwd), "hello!")


def compaction(rig: Rig, truth: Truth) -> None:
    thread = truth.start_thread(rig.cwd)
    say(truth, thread)
    truth.wait_for_turn(enter(truth, thread, COMPACT))
    say(truth, thread, "after", "u1")


def reverted(rig: Rig, truth: Truth) -> None:
    # Ours is taken out; a newer file, where the version begins one, has what came later.
    thread = truth.start_thread(rig.cwd)
    say(truth, thread, "before", "u1")
    turn = say(truth, thread)
    try:
        truth.call("thread/revert", threadId=thread, beforeTurnId=turn)
    except ServerError:  # 0.144.5 has the older way
        truth.call("thread/rollback", threadId=thread, numTurns=1)
    truth.resume(thread)
    say(truth, thread, "after", "u2")


def archived(rig: Rig, truth: Truth) -> None:
    thread = truth.start_thread(rig.cwd)
    say(truth, thread)
    truth.call("thread/archive", threadId=thread)


def ghost(rig: Rig, truth: Truth) -> None:
    # Where the second line of the pair was not written; then the same text by another client.
    thread = truth.start_thread(rig.cwd)
    say(truth, thread)
    cut_behind_the_model_input(rig, newline=True)
    say_on(rig, thread, TEXT, THEIRS)


def unended(rig: Rig, truth: Truth) -> None:
    # The same, and not even the newline was: 0.144.5 writes the next line right behind it.
    thread = truth.start_thread(rig.cwd)
    say(truth, thread)
    cut_behind_the_model_input(rig, newline=False)
    say_on(rig, thread, "after", "u1")


def legacy(rig: Rig, truth: Truth) -> None:
    # A thread that the oldest version made, and this one goes on with.
    rig.server.stop()
    socket_path = rig.root / "older.sock"
    older = AppServer(find_binary(OLDEST).path, rig.home, socket_path, rig.root / "older.log")
    with older, Truth(socket_path) as theirs:
        thread = theirs.start_thread(rig.cwd)
        say(theirs, thread, "before", "u1")
    say_on(rig, thread, TEXT, OURS)


SCENES: tuple[Scene, ...] = (
    archived,
    compaction,
    ghost,
    image,
    legacy,
    other_text,
    reverted,
    start,
    steer,
    twice,
    twins,
    unended,
)


def say(truth: Truth, thread: str, text: str = TEXT, client_id: str = OURS) -> str:
    """Let a whole turn pass; return its id."""
    turn = truth.start_turn(thread, text, client_id=client_id)
    truth.wait_for_turn(turn)
    return turn


def say_on(rig: Rig, thread: str, text: str, client_id: str) -> None:
    """Start the server again, and let a turn pass in a thread that it has to load."""
    rig.server.start()
    truth = rig.truth()
    truth.resume(thread)
    say(truth, thread, text, client_id)


def held_thread(rig: Rig, truth: Truth, text: str, client_id: str) -> tuple[str, str]:
    """Start a thread whose first turn runs until the model releases its text."""
    thread = truth.start_thread(rig.cwd)
    rig.model.script[text] = Hold("free")
    turn = truth.start_turn(thread, text, client_id=client_id)
    truth.wait_for_input(client_id)
    rig.model.wait_for_prompt(text)
    return thread, turn


def cut_behind_the_model_input(rig: Rig, *, newline: bool) -> None:
    """Leave the files as a kill between the two lines of the pair would."""
    rig.server.kill()
    (path,) = files_of(rig.home)
    first = f'"text":"{TEXT}"'.encode()
    rows = path.read_bytes().splitlines(keepends=True)
    kept = next(number for number, row in enumerate(rows, 1) if first in row)
    os.truncate(path, sum(map(len, rows[:kept])) - (not newline))


def files_of(home: Path) -> list[Path]:
    """Find the rollout files of a home, older first."""
    # A revert's file has its forerunner's name and more.
    return sorted(home.glob("*sessions/**/rollout-*.jsonl"), key=lambda path: path.stem)


def record(version: str, scene: Scene, directory: Path) -> None:
    """Play a scene and keep its files, the second one as `NAME.2.jsonl`."""
    with tempfile.TemporaryDirectory(prefix="codexdrv-rollout-") as root:
        with Rig(Path(root), binary=find_binary(version).path) as rig:
            scene(rig, rig.truth())
        files = [path.read_bytes().decode() for path in files_of(rig.home)]
    rows = [row for text in files for row in text.split("\n")]
    stable = iter(make_stable([Line("<", row) for row in map(parse, rows)], root))
    for number, text in enumerate(files, 1):
        kept = [write(next(stable).frame) for _ in text.split("\n")]
        (directory / name_of(scene, number)).write_text("".join(kept), "utf-8")


def parse(row: str) -> list[Any]:
    """Read a line; one of two glued objects is read as two."""
    found, position = [], 0
    while position < len(row):
        value, position = json.JSONDecoder().raw_decode(row, position)
        found.append(value)
    return found


def write(objects: list[Any]) -> str:
    """Write a line as it was; nothing, if it is not about a message."""
    if not any(is_about_a_message(value) for value in objects):
        return ""
    texts = (
        json.dumps(steady(value), ensure_ascii=False, separators=(",", ":")) for value in objects
    )
    return _DAY.sub("2027-01-15", "".join(texts)) + "\n"


def is_about_a_message(row: Any) -> bool:
    """Say whether a line is kept: what only the server needs is left out."""
    if row["type"] == "event_msg":
        return row["payload"]["type"] not in {"token_count", "thread_settings_applied"}
    return row["type"] in {"response_item", "compacted"} and row["payload"].get("role") not in {
        "developer",
        "assistant",
    }


def steady(value: Any, key: str = "") -> Any:
    """Give times and durations fixed values."""
    match value:
        case dict():
            return {name: steady(each, name) for name, each in value.items()}
        case list():
            return [steady(each) for each in value]
        case int() | float() if _TIMES.search(key) and not isinstance(value, bool):
            return steady_time(value)
        case _:
            return value


def steady_time(value: float) -> int:
    """Keep the unit: a duration, milliseconds, or seconds."""
    if value < SECONDS // 2:
        return 1
    return SECONDS * 1000 if value > SECONDS * 100 else SECONDS


def names_of(version: str) -> Iterator[str]:
    """Name the files of a version."""
    for scene in SCENES:
        yield name_of(scene, 1)
        if scene is reverted and version != OLDEST:
            yield name_of(scene, 2)


def name_of(scene: Scene, number: int) -> str:
    """Name one of a scene's files."""
    name = scene.__name__.replace("_", "-")
    return f"{name}.jsonl" if number == 1 else f"{name}.{number}.jsonl"


def record_rollouts(version: str) -> None:
    """Record every scene on a version, in place of what was there."""
    directory = ROLLOUTS / version
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    for scene in SCENES:
        record(version, scene, directory)


def main() -> int:
    """Record every scene on every version."""
    for version in VERSIONS:
        record_rollouts(version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
