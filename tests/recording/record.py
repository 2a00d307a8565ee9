"""Record every behaviour on every version, and extract each version's schema: `make record`.

What is written is compared by tests, and read by a person before it is committed: an expected
file says what our code made of a recording, not what it should have made of it.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.acceptance.binaries import VERSIONS, NoBinary, find_binary
from tests.acceptance.kit import Rig
from tests.recording.replay import Replay
from tests.recording.rollouts import record_rollouts
from tests.recording.server_schemas import extract_schemas
from tests.recording.stable import make_stable, read_lines, write_lines
from tests.recording.stage import Stage
from tests.recording.threads import THREADS
from tests.recording.turns import TURNS
from tests.recording.used import find_used


FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDINGS = FIXTURES / "recordings"
SCHEMAS = FIXTURES / "schemas"

BEHAVIOURS: dict[str, Callable[[Stage], None]] = {
    play.__name__.replace("_", "-"): play for play in (*THREADS, *TURNS)
}
"""Name of the recording → how it is played."""


class Schemas(NamedTuple):
    """What we use of one version's schema; see `server_schemas`."""

    requests: dict[str, Any]
    notifications: dict[str, Any]


def load_schemas(version: str) -> Schemas:
    """Read what was extracted."""
    texts = ((SCHEMAS / version / f"{name}.json").read_text("utf-8") for name in Schemas._fields)
    return Schemas(*map(json.loads, texts))


def main(arguments: Sequence[str]) -> int:
    """Record what is asked for; 1 if a binary is missing."""
    parser = argparse.ArgumentParser(description="Record the wire of the real servers.")
    parser.add_argument("--version", action="append", choices=VERSIONS, help="default: all")
    parser.add_argument("--only", action="append", choices=sorted(BEHAVIOURS), help="default: all")
    parser.add_argument("--retell", action="store_true", help="only the .txt files, from what is")
    args = parser.parse_args(arguments)
    if args.retell:
        for path in RECORDINGS.glob("*/*.jsonl"):
            tell(path)
        return 0
    try:
        binaries = [find_binary(version) for version in args.version or VERSIONS]
    except NoBinary as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for version, binary in binaries:
        began = time.monotonic()
        names = args.only or sorted(BEHAVIOURS)
        for name in names:
            record(name, binary, RECORDINGS / version)
        if not args.only:
            sweep(RECORDINGS / version)
            record_rollouts(version)
        took_s = time.monotonic() - began
        sys.stdout.write(f"codex {version}: {len(names)} recordings, {took_s:.0f} s\n")
    news, results = find_used(RECORDINGS)
    # All recordings first: what we read of one version must be looked for in the others too.
    for version, binary in binaries:
        extract_schemas(binary, SCHEMAS / version, news=news, results=results)
    return 0


def record(name: str, binary: str, directory: Path) -> None:
    """Play one behaviour; write its recording, and what our code makes of it."""
    with tempfile.TemporaryDirectory(prefix="codexdrv-record-") as root:
        with Rig(Path(root), binary=binary) as rig:
            stage = Stage(rig)
            BEHAVIOURS[name](stage)
        lines = make_stable(stage.lines, root)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.jsonl"
    path.write_text(write_lines(lines), "utf-8")
    tell(path)


def tell(path: Path) -> None:
    """Write beside a recording what our code makes of it."""
    story = Replay().tell(read_lines(path.read_text("utf-8")))
    path.with_suffix(".txt").write_text(story, "utf-8")


def sweep(directory: Path) -> None:
    """Remove recordings of behaviours that are no longer played."""
    for path in directory.iterdir():
        if path.stem not in BEHAVIOURS:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
