"""Is an input in its thread? What the witnesses say, and the verdict that follows (DESIGN.md).

Three witnesses: the record (the rollout file), history (what the server lists), and the fence (the
server's own queue for the thread). Each says yes, no, or that it cannot say. Presence is easy: one
that shows the input is enough. Absence must be proved: only then may the input be sent again.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from codexdrv.ids import TurnId
from codexdrv.rules.backoff import SETTLE_S


class Sighting(NamedTuple):
    """A user message under our id."""

    #: None where the witness names none (legacy records).
    turn: TurnId | None
    #: Its text is ours, code point by code point.
    is_equal: bool


class Record(NamedTuple):
    """What the rollout file says, from the size that the dispatch noted on."""

    #: Whether it could be read; if not, it says neither yes nor no.
    is_readable: bool
    sightings: tuple[Sighting, ...] = ()
    #: Turns in which our text stands without the line that would carry an id: the server was
    #: killed between the two.
    ghosts: tuple[TurnId | None, ...] = ()
    #: The thread's record is still the file that the dispatch noted, by name: no revert since.
    is_noted: bool = True


class History(NamedTuple):
    """What the server lists, newest first, through the turn that was newest at the dispatch."""

    #: Whether it was read that far; if not, it says yes or nothing.
    is_complete: bool
    sightings: tuple[Sighting, ...] = ()
    #: The turn that was newest at the dispatch is still listed; true where there was none.
    has_anchor: bool = True


class Fence(StrEnum):
    """What the server's own queue says of the thread (WIRE-FACTS, "The fence tells the truth")."""

    #: No turn runs, and nothing that was sent before it waits.
    QUIET = "quiet"
    #: A turn runs.
    BUSY = "busy"
    #: The thread is not loaded: nothing waits in it, and history is read cold.
    NOT_LOADED = "not_loaded"


class Fate(StrEnum):
    """What became of the server process that the input was sent to."""

    ALIVE = "alive"
    #: No such pid, other start ticks, or a zombie; the host runs as it did.
    GONE = "gone"
    #: The host was started since: the record may have lost its last seconds.
    HOST_RESTARTED = "host_restarted"
    #: Nobody noted which process it was.
    UNKNOWN = "unknown"


class Testimony(NamedTuple):
    """All that was seen in one look at one input."""

    record: Record
    history: History
    fence: Fence
    fate: Fate
    #: Seconds since an earlier look of this connection at which the fence was quiet, too, and both
    #: others said no; None: there was none.
    quiet_s: float | None
    #: No other process has the thread's record open, or could have.
    is_sole_writer: bool
    #: The server has not said that it cannot save, and there is room to.
    can_save: bool
    #: The turn that the answer to the request named.
    answered_turn: TurnId | None


class Finding(StrEnum):
    """What is proved."""

    #: It is in the thread.
    SURFACED = "surfaced"
    #: It is not, and never will be by this attempt.
    ABSENT = "absent"
    #: It may still come: look again.
    PENDING = "pending"
    #: Neither can be proved now.
    UNKNOWN = "unknown"


class Verdict(NamedTuple):
    """The finding, why, and the turn that took the input where one is known."""

    finding: Finding
    reason: str
    why: str
    turn: TurnId | None = None


class Obstacle(NamedTuple):
    """Why an input that nobody shows is not proved absent."""

    reason: str
    why: str
    stands: Callable[[Testimony], bool]


OBSTACLES = (
    Obstacle(
        "host_restarted",
        "the host was started since it was sent, and the record may have lost its last seconds",
        lambda seen: seen.fate is Fate.HOST_RESTARTED,
    ),
    Obstacle(
        "record_unreadable",
        "the thread's record cannot be read, so it cannot say no",
        lambda seen: not seen.record.is_readable,
    ),
    Obstacle(
        "moved",
        "the thread has another record file than when it was sent: a revert may have taken it out",
        lambda seen: not seen.record.is_noted,
    ),
    Obstacle(
        "history_incomplete",
        "the thread's history could not be read back to the turn before it",
        lambda seen: not seen.history.is_complete,
    ),
    Obstacle(
        "anchor_gone",
        "the turn that was newest when it was sent is in the thread's history no more",
        lambda seen: not seen.history.has_anchor,
    ),
    Obstacle(
        "cannot_save",
        "the server cannot save the thread's record now, so the record cannot say no",
        lambda seen: not seen.can_save,
    ),
)
"""What stands in the way of every proof of absence; the first one that does is the reason."""

OBSTACLES_WHILE_ALIVE = (
    Obstacle(
        "not_sole_writer",
        "the thread's record is not open in this server alone: it writes elsewhere, or others do",
        lambda seen: not seen.is_sole_writer,
    ),
    Obstacle(
        "not_loaded",
        "the server has not loaded the thread, so its queue cannot be asked",
        lambda seen: seen.fence is Fence.NOT_LOADED,
    ),
)
"""What else does, unless the server that it was sent to is gone."""


BUSY = Verdict(Finding.PENDING, "busy", "a turn runs, and may still take it")
_SETTLING = Verdict(Finding.PENDING, "settling", "the thread is quiet; one more look is due")


def verdict(seen: Testimony, *, settle_s: float = SETTLE_S) -> Verdict:
    """Say what is proved of an input by one look at it."""
    if shown := (*seen.record.sightings, *seen.history.sightings):
        return _of_sightings(seen, shown)
    is_alive = seen.fate in {Fate.ALIVE, Fate.UNKNOWN}
    # Also where the server is gone: "gone" is what we see from here, and the turn will end.
    if seen.fence is Fence.BUSY:
        return BUSY
    if seen.record.ghosts:
        return _of_ghosts(seen)
    for obstacle in (*OBSTACLES, *(OBSTACLES_WHILE_ALIVE if is_alive else ())):
        if obstacle.stands(seen):
            return Verdict(Finding.UNKNOWN, obstacle.reason, obstacle.why)
    return _of_silence(seen, settle_s)


def is_settling(found: Verdict) -> bool:
    """Say whether one more look, a little later, will do."""
    return found.reason == _SETTLING.reason


def shows_nothing(seen: Testimony) -> bool:
    """Say whether record and history both say no."""
    record, history = seen.record, seen.history
    is_shown = record.sightings or record.ghosts or history.sightings
    return record.is_readable and history.is_complete and not is_shown


def _of_silence(seen: Testimony, settle_s: float) -> Verdict:
    if seen.fate is Fate.GONE:
        why = "the server that it was sent to is gone, and neither record nor history shows it"
        return Verdict(Finding.ABSENT, "server_gone", why)
    if seen.quiet_s is None or seen.quiet_s < settle_s:
        return _SETTLING
    why = "the thread was quiet, twice, and neither record nor history shows it"
    return Verdict(Finding.ABSENT, "quiet", why)


def _of_sightings(seen: Testimony, shown: tuple[Sighting, ...]) -> Verdict:
    equal = [sighting for sighting in shown if sighting.is_equal]
    if not equal:
        why = "the thread shows this id with another text: an operator has to look"
        return Verdict(Finding.UNKNOWN, "other_text", why)
    turn = next((sighting.turn for sighting in equal if sighting.turn), None)
    where = f"in turn {turn}" if turn else "in a turn that is not named"
    witness = "record" if any(each.is_equal for each in seen.record.sightings) else "history"
    # Each witness alone: both show the same message.
    copies = max(
        sum(each.is_equal for each in said)
        for said in (seen.record.sightings, seen.history.sightings)
    )
    if copies > 1:
        why = f"the thread's {witness} shows it {copies} times, first {where}"
        return Verdict(Finding.SURFACED, "duplicate_seen", why, turn)
    return Verdict(Finding.SURFACED, "surfaced", f"the thread's {witness} shows it {where}", turn)


def _of_ghosts(seen: Testimony) -> Verdict:
    if seen.answered_turn is not None and seen.answered_turn in seen.record.ghosts:
        why = (
            f"the record has its text in turn {seen.answered_turn}, which took it, without its id:"
            " the model sees it, history never will"
        )
        return Verdict(Finding.SURFACED, "ghost", why, seen.answered_turn)
    why = "the record has its text without an id, and it may be another's: an operator has to look"
    return Verdict(Finding.UNKNOWN, "ghost", why)
