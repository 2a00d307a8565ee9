"""What codexdrv says of its deliveries, held against the truth; pure.

The truth was read by another client, from history, from every rollout file and from what the model
was shown. Nothing in here trusts codexdrv.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from tests.acceptance.kit import Said


class Claim(NamedTuple):
    """How codexdrv says that a delivery stands, in the end."""

    id: str
    #: Its place among those of its thread.
    seq: int
    text: str
    phase: str
    reason: str | None = None
    stored: bool = True
    #: It was parked once, so that others may have overtaken it.
    is_out_of_order: bool = False
    #: What may have kept the server from storing it when it had shown it: a full disk, a kill.
    excuse: str | None = None


class ThreadTruth(NamedTuple):
    """What became of one thread."""

    #: Every user message that the server lists, oldest first.
    history: tuple[Said, ...]
    #: Those of each rollout file that the thread ever had.
    records: tuple[tuple[Said, ...], ...]
    #: How often the rollout files have a text that carries no id: the model sees it, history not.
    ghosts: Mapping[str, int]
    #: The user messages of the last prompt.
    prompt: tuple[str, ...]
    #: The most often that any prompt had a text.
    shown: Mapping[str, int]
    #: The ids that another client took out of the thread.
    reverted: frozenset[str] = frozenset()
    #: The last prompt need not have all that history has: a summary stands for the older ones, or
    #: another client took a turn out (0.144.5 then forgets by inputs, and lists by turns).
    is_abridged: bool = False


class Count(StrEnum):
    """What is counted: each delivery is one of the first group, and may be wrong besides."""

    SURFACED = "surfaced"
    #: Surfaced, and then taken out by another client.
    REVERTED = "reverted"
    #: Surfaced as a ghost: the model has it, history never will.
    GHOST = "ghost"
    #: The server showed it, said so, never stored it, and it is gone; said to be not stored.
    NOT_STORED = "not stored"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNCERTAIN = "uncertain"
    #: Neither sent nor given up.
    LIVE = "left live"

    LOST = "lost"
    TWICE = "twice"
    DISORDER = "out of order"
    #: Said not to be in the thread, or in doubt, and it is there; or stored, without its id.
    UNTRUE = "untrue"


WRONG = (Count.LOST, Count.TWICE, Count.DISORDER, Count.UNTRUE, Count.LIVE, Count.FAILED)
"""One of these and the run has failed; nothing that the torture says is refused for good."""


class Ruling(NamedTuple):
    """What is found of one delivery."""

    id: str
    count: Count
    why: str = ""


def judge(claims: Iterable[Claim], truth: ThreadTruth) -> list[Ruling]:
    """Judge the deliveries of one thread."""
    claims = sorted(claims, key=lambda claim: claim.seq)
    return [
        *(_rule(claim, truth) for claim in claims),
        *_find_untrue(claims, truth),
        *_find_twice(claims, truth),
        *_find_unshown(claims, truth),
        *_find_disorder(claims, truth),
    ]


def _rule(claim: Claim, truth: ThreadTruth) -> Ruling:
    match claim.phase:
        case "surfaced":
            return _rule_surfaced(claim, truth)
        case "failed" | "cancelled" | "uncertain":
            return Ruling(claim.id, Count(claim.phase), claim.reason or "")
    return Ruling(claim.id, Count.LIVE, f"{claim.phase} ({claim.reason})")


def _rule_surfaced(claim: Claim, truth: ThreadTruth) -> Ruling:
    if _copies(claim, truth.history):
        return Ruling(claim.id, Count.SURFACED)
    if claim.id in truth.reverted:
        return Ruling(claim.id, Count.REVERTED)
    if truth.ghosts.get(claim.text):
        return Ruling(claim.id, Count.GHOST, claim.excuse or "")
    in_record = any(_copies(claim, record) for record in truth.records)
    if not claim.stored and not in_record and claim.excuse:
        return Ruling(claim.id, Count.NOT_STORED, claim.excuse)
    where = "a rollout file alone" if in_record else "nowhere"
    return Ruling(claim.id, Count.LOST, f"surfaced, stored={claim.stored}, and it is {where}")


def _find_untrue(claims: list[Claim], truth: ThreadTruth) -> Iterator[Ruling]:
    for claim in claims:
        is_ghost = _rule(claim, truth).count is Count.GHOST
        if is_ghost and claim.stored and claim.reason != "ghost":
            yield Ruling(claim.id, Count.UNTRUE, "said to be stored, and no record has its id")
        if claim.phase != "surfaced" and _copies(claim, truth.history):
            yield Ruling(claim.id, Count.UNTRUE, f"{claim.phase} ({claim.reason}), and it is there")
        texts = {said.text for said in truth.history if said.client_id == claim.id}
        if texts - {claim.text}:
            yield Ruling(claim.id, Count.UNTRUE, f"it is there as {texts}")


def _find_twice(claims: list[Claim], truth: ThreadTruth) -> Iterator[Ruling]:
    admitted = Counter(claim.text for claim in claims)
    for claim in claims:
        for name, said in (("history", truth.history), *_named(truth.records)):
            if (copies := _copies(claim, said)) > 1:
                yield Ruling(claim.id, Count.TWICE, f"{name} has it {copies} times")
        # Of equal texts, as many as were admitted.
        if (shown := truth.shown.get(claim.text, 0)) > admitted[claim.text]:
            yield Ruling(claim.id, Count.TWICE, f"one prompt has its text {shown} times")


def _find_unshown(claims: list[Claim], truth: ThreadTruth) -> Iterator[Ruling]:
    """Find what history has and the model does not see, or never saw where it need not now."""
    wanted = Counter(said.text for said in truth.history)
    prompt = Counter(truth.prompt)
    for claim in claims:
        listed = wanted[claim.text]
        seen = prompt[claim.text]
        if truth.is_abridged and truth.shown.get(claim.text):
            continue
        if seen < listed and _copies(claim, truth.history):
            why = f"history has its text {listed} times, the last prompt {seen}"
            yield Ruling(claim.id, Count.LOST, why)


def _find_disorder(claims: list[Claim], truth: ThreadTruth) -> Iterator[Ruling]:
    places = {claim.id: claim.seq for claim in claims if not claim.is_out_of_order}
    for name, said in (("history", truth.history), *_named(truth.records)):
        last = ("", 0)
        for each in said:
            if each.client_id not in places:
                continue
            place = places[each.client_id]
            if place < last[1]:
                yield Ruling(each.client_id, Count.DISORDER, f"{name} has it after {last[0]}")
            last = max(last, (each.client_id, place), key=lambda found: found[1])


def _copies(claim: Claim, said: Iterable[Said]) -> int:
    return sum(each.client_id == claim.id for each in said)


def _named(records: tuple[tuple[Said, ...], ...]) -> Iterator[tuple[str, tuple[Said, ...]]]:
    for number, record in enumerate(records, 1):
        yield f"rollout file {number}", record
