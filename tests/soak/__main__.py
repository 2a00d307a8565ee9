"""`python -m tests.soak`: an hour of faults, what keeps a thread loaded, what idling costs."""

import argparse
import contextlib
import logging
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.acceptance.binaries import BUNDLED, VERSIONS, find_binary
from tests.soak.idle import idle
from tests.soak.keepalive import is_as_promised, watch_with_us, watch_without_us
from tests.soak.laws import Toll, find_broken
from tests.soak.plan import Fault, Mode
from tests.soak.report import report
from tests.soak.soak import Plan, Soak, soak_in


ON = {Mode.ATTACH: "0.171.0", Mode.SPAWN: BUNDLED}
"""Two worlds at the same time; which version each runs on."""

TELL_S = 60.0
POLL_S = 0.2
INTERRUPTED = 130


def main() -> int:
    """Do what the arguments say; 1, if something is not as it should be."""
    args = _parser().parse_args()
    # A connection that is cut in its first words is what we do here all the time.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        return INTERRUPTED


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _soak_supervisor(args: argparse.Namespace) -> int:
    plans = [
        Plan(
            version=args.codex or ON[mode],
            mode=mode,
            seed=args.seed,
            minutes=args.minutes,
            every_s=args.every,
            among=frozenset(args.fault or Fault),
            behind_s=place * args.every / len(args.mode or Mode),
        )
        for place, mode in enumerate(args.mode or Mode)
    ]
    tolls = _soak_all(plans, args.dir)
    said = report(tolls, f"python -m tests.soak {shlex.join(sys.argv[1:])}")
    sys.stdout.write(f"{said}\n")
    if args.report:
        args.report.write_text(f"{said}\n")
    return int(any(map(find_broken, tolls)))


def _keep_alive(args: argparse.Namespace) -> int:
    """Watch two threads at the same time, one with a supervisor; say what became of them."""
    binary = find_binary(args.codex).path
    with (
        tempfile.TemporaryDirectory(prefix="kept-") as kept,
        tempfile.TemporaryDirectory(prefix="left-") as left,
        ThreadPoolExecutor(2, "watch") as workers,
    ):
        watches = [
            workers.submit(watch_with_us, Path(kept), binary),
            workers.submit(watch_without_us, Path(left), binary),
        ]
        with_us, without_us = (each.result() for each in watches)
    sys.stdout.write(f"{args.codex}, without us: {without_us.words}\n")
    sys.stdout.write(f"{args.codex}, with a supervisor: {with_us.words}\n")
    return int(not is_as_promised(with_us, without_us))


def _idle(args: argparse.Namespace) -> int:
    """Measure each version, one after the other."""
    is_cheap = True
    for version in args.codex or (BUNDLED, VERSIONS[-1]):
        with tempfile.TemporaryDirectory(prefix="idle-") as root:
            found = idle(Path(root), binary=find_binary(version).path, version=version)
        sys.stdout.write(f"{found.words}\n")
        sys.stdout.flush()
        is_cheap = is_cheap and found.is_cheap
    return int(not is_cheap)


def _soak_all(plans: list[Plan], directory: Path | None) -> list[Toll]:
    """Soak all worlds at the same time; Ctrl-C ends each of them, and every process of theirs."""
    roots = [Path(tempfile.mkdtemp(prefix=f"soak-{plan.mode}-", dir=directory)) for plan in plans]
    running: list[Soak] = []
    sys.stderr.write(f"worlds: {', '.join(map(str, roots))}; pid {os.getpid()}\n")
    with ThreadPoolExecutor(len(plans), "world") as workers:
        work = [
            workers.submit(
                soak_in, root, binary=find_binary(plan.version).path, plan=plan, running=running
            )
            for root, plan in zip(roots, plans, strict=True)
        ]
        try:
            with _telling(running):
                while not all(each.done() for each in work):
                    time.sleep(POLL_S)
                    if any(each.done() and each.exception() for each in work):
                        _end(running)
        except BaseException:
            while not all(each.done() for each in work):
                _end(running)
                time.sleep(POLL_S)
            sys.stderr.write("left as they are\n")
            raise
        tolls = [each.result() for each in work]
    for root, toll in zip(roots, tolls, strict=True):
        if find_broken(toll):
            sys.stderr.write(f"left as it is: {root}\n")
        else:
            shutil.rmtree(root)
    return tolls


def _end(running: list[Soak]) -> None:
    for each in list(running):
        each.world.is_over.set()


@contextlib.contextmanager
def _telling(running: list[Soak]) -> Iterator[None]:
    is_over = threading.Event()

    def tell() -> None:
        while not is_over.wait(TELL_S):
            for each in list(running):
                sys.stderr.write(f"{time.strftime('%H:%M:%S')} {each.tell()}\n")

    thread = threading.Thread(target=tell, name="teller")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where worlds are made")
    parts = parser.add_subparsers(required=True)
    soak = parts.add_parser("supervisor", help="a fault a minute, in two worlds at a time")
    soak.set_defaults(run=_soak_supervisor, fault=None, mode=None)
    soak.add_argument("--minutes", type=float, default=60.0, metavar="N")
    soak.add_argument("--seed", type=int, default=1)
    soak.add_argument("--every", type=float, default=60.0, metavar="S", help="between faults")
    soak.add_argument("--codex", metavar="V", help="one version for both modes")
    soak.add_argument("--mode", action="append", type=Mode, choices=list(Mode))
    soak.add_argument("--fault", action="append", type=Fault, choices=list(Fault), metavar="WORDS")
    soak.add_argument("--report", type=Path, metavar="FILE")
    kept = parts.add_parser("keepalive", help="a thread stays loaded while a supervisor runs")
    kept.set_defaults(run=_keep_alive)
    kept.add_argument("--codex", default=VERSIONS[-1], metavar="V")
    idling = parts.add_parser("idle", help="what a supervisor takes that has nothing to do")
    idling.set_defaults(run=_idle)
    idling.add_argument("--codex", action="append", metavar="V", help="default: two versions")
    return parser


if __name__ == "__main__":
    sys.exit(main())
