"""`codexdrv reconcile`: settle what is in doubt, by asking the server; nothing is sent."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping

import anyio

from codexdrv import __version__
from codexdrv.cli.shapes import Scene, delivery_object, delivery_sentence, look_around
from codexdrv.cli.usage import seconds
from codexdrv.config import Config, load_config
from codexdrv.engine.reconciliation import Patience
from codexdrv.errors import CodexdrvError, ExitCode, NotFound
from codexdrv.ids import DeliveryId, name_delivery, parse_thread_id
from codexdrv.inquiry import Inquiry, Opinion
from codexdrv.journal.journal import Journal
from codexdrv.logs import configure_logs
from codexdrv.rules.lifecycle import Delivery
from codexdrv.rules.ownership import Fact, Phase
from supervisor.errand import server_to_ask, settle
from supervisor.spawning import connecting


TIMEOUT_S = 30.0
"""Proof takes two looks, 2 s apart; what is not proved by then needs a person, or time."""

POLL_S = 0.1
IN_DOUBT = (Phase.PENDING, Phase.UNCERTAIN)

EPILOG = """\
examples:
  codexdrv reconcile                       settle all that is in doubt
  codexdrv reconcile --dry-run             say what would be settled, and how
  codexdrv reconcile --id mail/4711 --json

For each delivery that is on its way or in doubt, the thread's record, its
history and the server's own queue are asked: it is in the thread, or it is
proved absent (then the supervisor sends it again), or it stays in doubt, with
the reason. With a supervisor up, this rings it and watches. With none, it asks
the server by itself; with no server either, it runs one on the same home for
as long as that takes. Exit 0 when nothing of it is in doubt any more, else 3.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--thread", metavar="ID", help="only what is for this thread")
    which.add_argument("--target", metavar="NAME", help="only what is for this target's thread")
    which.add_argument("--id", metavar="ID", help="only this delivery")
    parser.add_argument("--dry-run", action="store_true", help="ask, say, and write nothing")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        default=TIMEOUT_S,
        help=f"go on for so long, or 'none'; default {TIMEOUT_S:g}",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--verbose", action="store_true", help="log what is asked")


def run(args: argparse.Namespace) -> ExitCode:
    """Find what is in doubt, settle it, and say how it stands."""
    config = load_config(args.config)
    configure_logs(is_verbose=args.verbose, is_quiet=not args.verbose)
    with Journal(config.state.directory) as journal:
        wanted = _choose(config, journal, args)
        doubtful = [found for found in wanted if found.standing.phase in IN_DOUBT]
        scene = look_around(config, journal)
        if args.dry_run and doubtful:
            return _tell_opinions(_inquire(config, journal, doubtful), as_json=args.json)
        if doubtful:
            _settle(config, journal, doubtful, scene, timeout_s=args.timeout)
        after = [journal.delivery(found.order.id) for found in wanted]
        absences = {found.order.id: _absence(journal, found) for found in after}
        return _tell(after, absences, look_around(config, journal), as_json=args.json)


def _choose(config: Config, journal: Journal, args: argparse.Namespace) -> list[Delivery]:
    if args.id is not None:
        return [journal.delivery(name_delivery(args.id))]
    thread = parse_thread_id(args.thread) if args.thread is not None else None
    if args.target is not None:
        if args.target not in config.targets:
            known = ", ".join(sorted(config.targets)) or "none"
            raise NotFound(
                f"There is no target {args.target!r} in {config.path or 'the configuration'}.",
                hint=f"Known targets: {known}.",
            )
        thread = config.targets[args.target].thread
    found = [each for phase in IN_DOUBT for each in journal.deliveries(phase)]
    return [each for each in found if thread in {None, each.order.thread}]


def _settle(
    config: Config,
    journal: Journal,
    doubtful: list[Delivery],
    scene: Scene,
    *,
    timeout_s: float,
) -> None:
    names = [found.order.id for found in doubtful]
    if scene.is_up:
        # `look_around` has rung it.
        _wait(journal, names, timeout_s=timeout_s)
        return

    def wait() -> None:
        # In a thread of its own, so on a connection of its own.
        with Journal(config.state.directory) as own:
            _wait(own, names, timeout_s=timeout_s)

    scope = {found.order.thread for found in doubtful}
    anyio.run(lambda: settle(config, version=__version__, scope=scope, wait=wait))


def _wait(journal: Journal, names: list[DeliveryId], *, timeout_s: float) -> None:
    """Wait until none of them is in doubt, or the time is up; show how far it is."""
    deadline = time.monotonic() + timeout_s
    show = _progress(len(names))
    while True:
        left = sum(journal.delivery(name).standing.phase in IN_DOUBT for name in names)
        show(left)
        if not left or time.monotonic() >= deadline:
            return
        time.sleep(POLL_S)


def _progress(total: int) -> Callable[[int], None]:
    if not sys.stderr.isatty():
        return lambda _: None

    def show(left: int) -> None:
        end = "\n" if not left else ""
        print(f"\r{total - left} of {total} settled", end=end, file=sys.stderr, flush=True)

    return show


def _inquire(config: Config, journal: Journal, doubtful: list[Delivery]) -> list[Opinion]:
    async def inquire() -> list[Opinion]:
        server = await server_to_ask(config.server)
        async with connecting(server) as connect:
            return await Inquiry(journal, Patience(config.limits.settle_s)).run(
                connect, doubtful, codex_home=server.codex_home, version=__version__
            )

    return anyio.run(inquire)


def _tell_opinions(opinions: list[Opinion], *, as_json: bool) -> ExitCode:
    for found, opinion in opinions:
        if isinstance(opinion, CodexdrvError):
            finding, reason, why = "unknown", opinion.code, opinion.message.rstrip(".")
        else:
            finding, reason, why = opinion.finding, opinion.reason, opinion.why
        if as_json:
            body = {"id": found.order.id, "thread": found.order.thread}
            body |= {"finding": finding, "reason": reason, "why": why}
            print(json.dumps(body))
        else:
            print(f"{found.order.id} would be {finding}: {why}.")
    settled = {"surfaced", "absent"}
    is_done = all(
        not isinstance(opinion, CodexdrvError) and opinion.finding in settled
        for _, opinion in opinions
    )
    return ExitCode.OK if is_done else ExitCode.IN_DOUBT


def _absence(journal: Journal, found: Delivery) -> str | None:
    """Say why it was proved absent, if that is the last thing that is known of it."""
    if found.standing.phase is not Phase.QUEUED:
        return None
    last = journal.story(found.order.id)[-1:]
    return next((fact.news.why for fact in last if fact.news.fact is Fact.ABSENT), None)


def _tell(
    after: list[Delivery], absences: Mapping[DeliveryId, str | None], scene: Scene, *, as_json: bool
) -> ExitCode:
    for found in after:
        if as_json:
            print(json.dumps(delivery_object(found, scene)))
        elif why := absences[found.order.id]:
            print(f"{found.order.id} is queued again, for it was proved absent: {why}.")
        else:
            print(delivery_sentence(found, scene))
    if not after and not as_json:
        print("Nothing is in doubt.")
    is_left = any(found.standing.phase in IN_DOUBT for found in after)
    return ExitCode.IN_DOUBT if is_left else ExitCode.OK
