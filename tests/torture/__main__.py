"""`python -m tests.torture`: torture the real thing, and say what it came to."""

import argparse
import json
import logging
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.acceptance.binaries import VERSIONS, find_binary
from tests.torture.drill import torture
from tests.torture.plan import Way, draw_inputs
from tests.torture.reckoning import Toll
from tests.torture.report import as_json, table
from tests.torture.scenes import SCENES


def main() -> int:
    """Run what the arguments say; 1, if anything is lost, twice, untrue or out of order."""
    args = _parser().parse_args()
    # A connection that is cut in its first words is what we do here all the time.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    if args.what == "scenes":
        return _play_scenes(args)
    args.way = args.way or list(Way)
    tolls = []
    for version in args.version or VERSIONS:
        for toll in _torture_version(version, args):
            tolls.append(toll)
            for story in toll.stories:
                _say(story)
    _say(table(tolls))
    if args.json:
        args.json.write_text(json.dumps([as_json(toll) for toll in tolls], indent=1))
    return int(any(toll.wrong or toll.stories for toll in tolls))


def _play_scenes(args: argparse.Namespace) -> int:
    """Play each scene on each version; say what came of it in one line."""
    failed = 0
    for version in args.version or VERSIONS:
        binary = find_binary(version).path
        for scene in SCENES:
            if args.scene not in scene.name:
                continue
            root, began = Path(tempfile.mkdtemp(prefix="torture-", dir=args.dir)), time.monotonic()
            try:
                said = scene.play(root, binary, version)
            except Exception:  # noqa: BLE001  the others are still worth playing
                failed += 1
                traceback.print_exc()
                said = f"FAILED; kept: {root}"
            else:
                shutil.rmtree(root)
            took_s = time.monotonic() - began
            _say(f"{version}  {scene.name}: {said} ({took_s:.0f} s)")
    return int(failed > 0)


def _torture_version(version: str, args: argparse.Namespace) -> Iterator[Toll]:
    """Torture each way of one version, one after the other."""
    binary = find_binary(version).path
    share, rest = divmod(args.deliveries, len(args.way))
    for place, way in enumerate(args.way):
        inputs = draw_inputs(
            args.seed,
            way,
            deliveries=share + (place < rest),
            threads=args.threads,
            faults=args.faults,
            slow_s=args.slow,
        )
        root = Path(tempfile.mkdtemp(prefix="torture-", dir=args.dir))
        try:
            toll = torture(
                root, binary=binary, version=version, way=way, inputs=inputs, seed=args.seed
            )
        except BaseException:
            sys.stderr.write(f"left as it is: {root}\n")
            raise
        if toll.stories:
            _say(f"{version} {way}: {len(toll.stories)} to look into; kept: {root}")
        else:
            shutil.rmtree(root)
        sys.stderr.write(f"{table([toll])}\n")
        yield toll


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["run", "scenes"], default="run")
    parser.add_argument("--scene", default="", metavar="WORDS", help="only those named so")
    parser.add_argument("--version", action="append", metavar="V", help="default: all three")
    parser.add_argument("--deliveries", type=int, default=1000, metavar="N", help="a version")
    parser.add_argument("--faults", type=float, default=0.3, metavar="P", help="a delivery")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=8, metavar="N")
    parser.add_argument("--way", action="append", type=Way, choices=list(Way))
    parser.add_argument("--slow", type=float, default=1.0, metavar="X", help="of 20 to 40 s locks")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where worlds are made")
    parser.set_defaults(way=None)
    return parser


if __name__ == "__main__":
    sys.exit(main())
