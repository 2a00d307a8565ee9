"""Rules turned wrong, as a careless maintainer might: each must make a law fail.

They are patched in, by one context manager: a wrong rule has no place in an argument of the engine.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from codexdrv.engine import dispatching, reconciliation
from codexdrv.engine.dispatching import Dispatching
from codexdrv.engine.ledger import Ledger
from codexdrv.engine.record import RecordWatch
from codexdrv.engine.watch import ThreadWatch
from codexdrv.errors import DeadlinePassed, LinkError
from codexdrv.ids import TurnId
from codexdrv.protocol.events import ThreadStatus
from codexdrv.protocol.methods import read_thread
from codexdrv.protocol.results import read_thread_view
from codexdrv.rules.answers import read_answer
from codexdrv.rules.evidence import Fence, History, Record, Testimony, Verdict, verdict
from codexdrv.rules.lifecycle import News
from codexdrv.rules.ownership import Fact
from tests.sim.processes import Processes


SEED_MAX = 3000
"""A wrong rule that so many worlds do not show needs a richer world."""


class Patch(NamedTuple):
    """A rule, by its owner and its name there, and the wrong one."""

    owner: Any
    name: str
    wrong: Callable[..., Any]


class Mutant(NamedTuple):
    """What is wrong, and seeds that show it."""

    patches: tuple[Patch, ...]
    #: Several: a change of the engine or of the world can make one of them show nothing any more.
    seeds: tuple[int, ...]


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Put the wrong rules in place of the real ones for as long as the block lasts."""
    real = [getattr(patch.owner, patch.name) for patch in mutant.patches]
    try:
        for patch in mutant.patches:
            setattr(patch.owner, patch.name, patch.wrong)
        yield
    finally:
        for patch, rule in zip(mutant.patches, real, strict=True):
            setattr(patch.owner, patch.name, rule)


async def believe_the_status(watch: ThreadWatch) -> bool:
    """Take `idle` for quiet."""
    view = read_thread_view(await watch.session.call(read_thread(watch.thread)))
    if view.status is ThreadStatus.ACTIVE:
        return await _fence(watch)
    return True


def read_todays_path_only(record: RecordWatch, path_now: str | None) -> Record:
    """Search the file that is the record now, as if there had never been another."""
    if path_now is not None:
        record._files, record._noted = {}, None
    return _read_record(record, path_now)


def believe_a_cold_no(seen: Testimony, *, settle_s: float) -> Verdict:
    """Let the history of a thread that is not loaded say no by itself."""
    if seen.fence is Fence.NOT_LOADED:
        seen = seen._replace(record=Record(is_readable=True))
    return verdict(seen, settle_s=settle_s)


def believe_one_fence(seen: Testimony, *, settle_s: float) -> Verdict:
    quiet_s = settle_s if seen.quiet_s is None else seen.quiet_s
    return verdict(seen._replace(quiet_s=quiet_s), settle_s=settle_s)


async def ask_no_history(_reconciliation: Any, *_asked: Any) -> History:
    """Call absent what the record does not show, whatever history says."""
    return History(is_complete=True)


def overlook_ghosts(seen: Testimony, *, settle_s: float) -> Verdict:
    return verdict(seen._replace(record=seen.record._replace(ghosts=())), settle_s=settle_s)


def overlook_reverts(seen: Testimony, *, settle_s: float) -> Verdict:
    history = seen.history._replace(has_anchor=True)
    record = seen.record._replace(is_noted=True, sightings=())
    return verdict(seen._replace(record=record, history=history), settle_s=settle_s)


def compare_pids(processes: Processes, peer: Any) -> bool:
    """Take a process for alive as long as its pid is somebody's."""
    return processes.has_pid(peer.pid)


def resend_on_deadline(answer: Any) -> News:
    if isinstance(answer, DeadlinePassed):
        return News(Fact.HELD, "late", "no answer in time")
    return read_answer(answer)


def resend_on_link_loss(answer: Any) -> News:
    if isinstance(answer, LinkError):
        return News(Fact.HELD, "link", "the link was lost")
    return read_answer(answer)


def believe_the_answer(answer: Any) -> News:
    """Take success for delivery."""
    if isinstance(answer, str):
        return News(Fact.SURFACED, "answered", turn=TurnId(answer))
    return read_answer(answer)


async def keep_back(pen: Ledger, delivery: Any, news: News, *, revision: Any = None) -> Any:
    """Write all but the dispatch, which is written when the request was answered."""
    if news.fact is not Fact.DISPATCHED:
        return await _record(pen, delivery, news, revision=revision)
    _late[pen] = (delivery, news, revision)
    return await pen.ask(lambda journal: journal.delivery(delivery))


async def send_first(dispatcher: Dispatching, head: Any, dispatch: Any) -> Any:
    refused = await _call(dispatcher, head, dispatch)
    delivery, news, revision = _late.pop(dispatcher._ledger)
    await _record(dispatcher._ledger, delivery, news, revision=revision)
    return refused


_fence = ThreadWatch.fence
_read_record = RecordWatch.read
_call = Dispatching._call
_record = Ledger.record
_late: dict[Ledger, Any] = {}


def _weigh(wrong: Callable[..., Verdict]) -> tuple[Patch]:
    return (Patch(reconciliation, "verdict", wrong),)


def _answer(wrong: Callable[..., News]) -> tuple[Patch]:
    return (Patch(dispatching, "read_answer", wrong),)


MUTANTS = {
    "idle instead of the fence": Mutant(
        (Patch(ThreadWatch, "fence", believe_the_status),), (3, 18, 34)
    ),
    "today's path only": Mutant((Patch(RecordWatch, "read", read_todays_path_only),), (3932, 4093)),
    "a cold no counts": Mutant(_weigh(believe_a_cold_no), (42, 694)),
    "one fence": Mutant(_weigh(believe_one_fence), (1014,)),
    "pid without start ticks": Mutant((Patch(Processes, "is_alive", compare_pids),), (71, 199)),
    "absent after the record only": Mutant(
        (Patch(reconciliation.Reconciliation, "_read_history", ask_no_history),), (2587, 3430, 4875)
    ),
    "ghosts are overlooked": Mutant(_weigh(overlook_ghosts), (42, 57, 107)),
    "reverts are overlooked": Mutant(_weigh(overlook_reverts), (231, 449)),
    "resend on deadline": Mutant(_answer(resend_on_deadline), (257, 390)),
    "resend on link loss": Mutant(_answer(resend_on_link_loss), (257, 376)),
    "success is delivery": Mutant(_answer(believe_the_answer), (0, 1)),
    "write ahead after the send": Mutant(
        (Patch(Ledger, "record", keep_back), Patch(Dispatching, "_call", send_first)), (0, 1)
    ),
}
"""The first five are those that the design names."""
