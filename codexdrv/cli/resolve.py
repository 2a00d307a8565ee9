"""`codexdrv resolve`: settle a delivery by an operator's word."""

import argparse
import json

from codexdrv.cli.shapes import delivery_object, delivery_sentence, look_around
from codexdrv.clock import now_ms
from codexdrv.config import load_config
from codexdrv.engine.record import RecordWatch
from codexdrv.errors import BadInput, ExitCode, NotResolvable
from codexdrv.ids import name_delivery
from codexdrv.journal.dispatch import decode_dispatch
from codexdrv.journal.journal import Journal
from codexdrv.rules.evidence import BUSY
from codexdrv.rules.lifecycle import OPERATOR, Delivery, News
from codexdrv.rules.ownership import FORCED, TRANSITIONS, Fact, Phase


WORDS = {
    "surfaced": Fact.RESOLVED_SURFACED,
    "absent": Fact.RESOLVED_ABSENT,
    "failed": Fact.RESOLVED_FAILED,
}

STATES = {"surfaced": Phase.SURFACED, "absent": Phase.QUEUED, "failed": Phase.FAILED}
"""The phase that a word leads to; what is there already is success."""

EPILOG = """\
examples:
  codexdrv resolve 0199… --as surfaced --why "I see it in the thread"
  codexdrv resolve 0199… --as absent --why "the thread lacks it"
  codexdrv resolve 0199… --as failed --why "no longer wanted"

surfaced: it is in the thread. absent: it is not, so it is sent again. failed:
it is given up, and not sent. What the thread's record contradicts is refused,
unless you --force it.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument("id", metavar="ID", help="the delivery")
    parser.add_argument(
        "--as", dest="word", choices=sorted(WORDS), required=True, help="what you know of it"
    )
    parser.add_argument("--why", metavar="TEXT", required=True, help="how you know; it is kept")
    parser.add_argument(
        "--force",
        action="store_true",
        help="against what the record says; with --as absent also what has failed, was cancelled"
        " or is on its way",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    """Write the operator's word, and ring."""
    config = load_config(args.config)
    why = _check_why(args.why)
    with Journal(config.state.directory) as journal:
        found = journal.delivery(name_delivery(args.id))
        delivery = found if found.standing.phase is STATES[args.word] else None
        if delivery is None:
            delivery = _resolve(journal, found, args, why)
        scene = look_around(config, journal)
    if args.json:
        print(json.dumps(delivery_object(delivery, scene)))
    else:
        print(delivery_sentence(delivery, scene))
    return ExitCode.OK


def _resolve(journal: Journal, found: Delivery, args: argparse.Namespace, why: str) -> Delivery:
    phase, fact = found.standing.phase, WORDS[args.word]
    if (phase, fact) in FORCED and not args.force:
        hint = "Add --force to send it after all."
        if phase is Phase.PENDING:
            hint = f"It may still arrive: wait until it is in doubt. {hint}"
        raise _refusal(found, args.word, hint)
    if (phase, fact) not in TRANSITIONS:
        words = [word for word in sorted(WORDS) if (phase, WORDS[word]) in TRANSITIONS]
        story = f"`codexdrv status {found.order.id} --explain` tells its story."
        hint = f"It can be resolved as {' or '.join(words)}." if words else story
        raise _refusal(found, args.word, hint)
    if not args.force and (contradiction := _contradict(found, fact)):
        raise NotResolvable(
            f"{found.order.id} cannot be resolved as {args.word}: {contradiction}.",
            hint="If you know better, add --force.",
        )
    resolved = journal.resolve(
        found.order.id,
        News(fact, OPERATOR, why),
        revision=found.standing.revision,
        now_ms=now_ms(),
    )
    if resolved is None:
        raise NotResolvable(
            f"{found.order.id} has just moved on, so nothing was written.",
            hint="Look at it again, then decide again.",
        )
    return resolved


def _contradict(found: Delivery, fact: Fact) -> str | None:
    """Say what the thread's record has against an operator's word; None: nothing, or no record."""
    standing, order = found.standing, found.order
    if standing.reason == BUSY.reason and fact is not Fact.RESOLVED_SURFACED:
        return BUSY.why
    mark = decode_dispatch(standing.dispatch).mark if standing.dispatch else None
    if mark is None or mark.path is None:
        return None
    record = RecordWatch(order.id, order.text, mark).read(mark.path)
    shown = [each for each in record.sightings if each.is_equal]
    if shown and fact is not Fact.RESOLVED_SURFACED:
        return f"the thread's record shows it in turn {shown[0].turn or '(not named)'}"
    if record.is_readable and not (shown or record.ghosts) and fact is Fact.RESOLVED_SURFACED:
        return "the thread's record does not show it"
    return None


def _check_why(why: str) -> str:
    # A lone surrogate stands for bytes that are no UTF-8.
    if why.strip() and why == why.encode(errors="replace").decode():
        return why
    raise BadInput(
        f"The reason {why!r} is blank, or is not valid UTF-8.",
        hint="Say with --why how you know; it is kept for whoever asks later.",
    )


def _refusal(found: Delivery, word: str, hint: str) -> NotResolvable:
    return NotResolvable(
        f"{found.order.id} is {found.standing.phase}: it cannot be resolved as {word}.", hint=hint
    )
