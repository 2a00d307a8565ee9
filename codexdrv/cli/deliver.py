"""`codexdrv deliver`: store a message durably, ring the supervisor, and wait if asked to.

It never talks to the server, and imports nothing that takes long to import.
"""

import argparse
import json
import sys
import time
from typing import NamedTuple

from codexdrv.cli.message import open_input, read_text
from codexdrv.cli.ndjson import deliver_lines
from codexdrv.cli.shapes import Scene, delivery_object, delivery_sentence, look_around
from codexdrv.cli.usage import positive_seconds, seconds, tell_usage
from codexdrv.cli.wish import Wish, make_order
from codexdrv.config import Config, load_config
from codexdrv.errors import ExitCode
from codexdrv.journal.journal import Admission, Journal
from codexdrv.rules.lifecycle import Delivery, WhenBusy, is_live
from codexdrv.rules.ownership import Phase


WAIT_TIMEOUT_S = 60.0
"""Of `--wait surfaced`: an idle thread takes a second, a long model response minutes."""
STORED_TIMEOUT_S = 5.0
"""The server writes its record before it tells; later than that, something is wrong with it."""
POLL_S = 0.02
"""`PRAGMA data_version` costs microseconds."""

EPILOG = """\
examples:
  codexdrv deliver --thread 0199… "The build is green."
  codexdrv deliver --target ops --source mail --id 4711 --file body.txt
  git log -1 | codexdrv deliver --thread 0199… --wait surfaced --json -
  codexdrv deliver --thread 0199… -- "--starts with a dash"
  codexdrv deliver --ndjson < messages.ndjson

When it exits 0 the message is on disk; the supervisor does the rest. The same
id with the same message is a duplicate: exit 0, and nothing is sent twice.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--target", metavar="NAME", help="a thread named in the configuration")
    where.add_argument(
        "--thread",
        metavar="ID",
        help="any thread of the server, by its id; `codexdrv threads` lists them",
    )
    parser.add_argument("--id", metavar="ID", help="your id of the message; default: a new UUIDv7")
    parser.add_argument("--source", metavar="NAME", help="the bridge: the id becomes NAME/ID")
    parser.add_argument(
        "--when-busy",
        choices=[str(word) for word in WhenBusy],
        help="while a turn runs: put it into that turn (steer), wait for its end, or interrupt it;"
        " default: the target's, else steer",
    )
    parser.add_argument(
        "--expires",
        type=positive_seconds,
        metavar="S",
        help="if it is still queued after S seconds it fails and is not sent; default: never",
    )
    parser.add_argument(
        "--wait",
        choices=["admitted", "surfaced"],
        default="admitted",
        help="return when it is on disk (admitted, the default), or in the thread and read back",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        help=f"seconds that --wait surfaced waits, or 'none'; default {WAIT_TIMEOUT_S:g}",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    _declare_input(parser)


def _declare_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", metavar="PATH", help="read the message from a file")
    parser.add_argument(
        "--ndjson",
        action="store_true",
        help="read messages from standard input, a JSON object a line, and print one for each:"
        ' {"thread" or "target", "text", "id"?, "source"?, "when_busy"?}',
    )
    parser.add_argument(
        "text", nargs="?", metavar="TEXT", help="the message; - reads it from standard input"
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Admit, ring, say so; then wait for what was asked."""
    problem = usage_problem(args)
    if problem is not None:
        return tell_usage("deliver", problem)
    config = load_config(args.config)
    if args.ndjson:
        defaults = Wish(None, None, "", when_busy=args.when_busy, expires_s=args.expires)
        with open_input(None) as lines, Journal(config.state.directory) as journal:
            return deliver_lines(lines, journal, config, defaults)
    text = read_text(args.text, args.file)
    wish = Wish(args.target, args.thread, text, args.id, args.source, args.when_busy, args.expires)
    order = make_order(wish, config)
    with Journal(config.state.directory) as journal:
        admission = journal.admit(order, live_max=config.limits.live_per_thread)
        try:
            return _ring_and_wait(journal, admission, args, config)
        except KeyboardInterrupt:
            scene = look_around(config, journal)
            sentence = delivery_sentence(journal.delivery(order.id), scene)
            print(
                f"\ncodexdrv: stopped waiting; {sentence}\n"
                f"  Take it back with `codexdrv cancel {order.id}`.",
                file=sys.stderr,
            )
            return ExitCode.INTERRUPTED


def usage_problem(args: argparse.Namespace) -> str | None:
    """Say what is wrong with flags that are right one by one."""
    of_one = (args.text, args.file, args.target, args.thread, args.id, args.source)
    has_flag_of_one = any(value is not None for value in of_one) or args.wait != "admitted"
    is_one = not args.ndjson
    problems = (
        (
            args.ndjson and has_flag_of_one,
            "--ndjson goes with no other flag than --when-busy and --expires",
        ),
        (
            is_one and args.target is None and args.thread is None,
            "one of the arguments --target --thread is required",
        ),
        (
            is_one and args.text is None and args.file is None,
            "no message: give TEXT, --file or -",
        ),
        (args.text is not None and args.file is not None, "give either TEXT or --file, not both"),
        (
            args.timeout is not None and args.wait != "surfaced",
            "--timeout is for --wait surfaced",
        ),
    )
    return next((problem for is_so, problem in problems if is_so), None)


def _ring_and_wait(
    journal: Journal, admission: Admission, args: argparse.Namespace, config: Config
) -> ExitCode:
    scene = look_around(config, journal)
    if not scene.is_up and is_live(admission.delivery.standing.phase):
        print(
            "codexdrv: no supervisor is running; the message waits on disk.\n"
            "  Start one with `codexdrv supervise`.",
            file=sys.stderr,
        )
    if args.wait == "admitted":
        _print(admission, scene, as_json=args.json)
        return ExitCode.OK
    timeout_s = WAIT_TIMEOUT_S if args.timeout is None else args.timeout
    found, verdict = _wait(journal, admission.delivery, timeout_s=timeout_s)
    if verdict.reason is not None:
        standing = found.standing._replace(reason=verdict.reason, why=verdict.why)
        found = found._replace(standing=standing)
    shown = admission._replace(delivery=found)
    _print(shown, look_around(config, journal), as_json=args.json)
    if verdict.why is not None:
        print(
            f"codexdrv: {verdict.why}.\n"
            f"  `codexdrv status {found.order.id} --explain` tells its story.",
            file=sys.stderr,
        )
    return verdict.code


class _Verdict(NamedTuple):
    """Why a wait is over."""

    code: ExitCode
    #: Shown instead of the delivery's own reason.
    reason: str | None = None
    why: str | None = None


def _wait(journal: Journal, found: Delivery, *, timeout_s: float) -> tuple[Delivery, _Verdict]:
    began = time.monotonic()
    surfaced_at = None
    version = None
    while True:
        now = time.monotonic()
        if found.standing.phase is Phase.SURFACED and surfaced_at is None:
            surfaced_at = now
        stored_s = None if surfaced_at is None else now - surfaced_at
        verdict = judge(found, waited_s=now - began, timeout_s=timeout_s, surfaced_s=stored_s)
        if verdict is not None:
            return found, verdict
        time.sleep(POLL_S)
        if (seen := journal.data_version()) != version:
            version = seen
            found = journal.delivery(found.order.id)


def judge(
    found: Delivery, *, waited_s: float, timeout_s: float, surfaced_s: float | None
) -> _Verdict | None:
    """Say whether a wait for `surfaced` is over, and how; None: wait on. Doubt is not an end.

    Args:
        found: the delivery as it stands.
        waited_s: how long the caller has waited.
        timeout_s: how long it wants to.
        surfaced_s: how long ago it surfaced; None: it has not.
    """
    standing = found.standing
    if standing.phase is Phase.SURFACED and standing.stored:
        return _Verdict(ExitCode.OK)
    if standing.phase is Phase.CANCELLED:
        return _Verdict(ExitCode.FAILED)
    if standing.phase is Phase.FAILED:
        is_unknown = standing.reason == "no_rollout"
        return _Verdict(ExitCode.NOT_FOUND if is_unknown else ExitCode.FAILED)
    if surfaced_s is not None and surfaced_s >= STORED_TIMEOUT_S:
        why = "it is in the thread, but could not be read back from the thread's record"
        return _Verdict(ExitCode.IN_DOUBT, "not_stored", why)
    if waited_s >= timeout_s:
        missed = "not surfaced" if surfaced_s is None else "in the thread, but not read back"
        return _Verdict(ExitCode.IN_DOUBT, None, f"{missed} within {timeout_s:g} s; it goes on")
    return None


def _print(admission: Admission, scene: Scene, *, as_json: bool) -> None:
    delivery, is_duplicate = admission
    if as_json:
        print(json.dumps(delivery_object(delivery, scene, is_duplicate=is_duplicate)))
        return
    note = " It was here before: nothing new was stored." if is_duplicate else ""
    print(delivery_sentence(delivery, scene) + note)
