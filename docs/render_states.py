#!/usr/bin/env python3
"""Write `docs/states.md` from the tables that the program runs on: `python docs/render_states.py`.

A test compares the file with a fresh rendering, so the page never says other than the code does.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from codexdrv.rules import routing
from codexdrv.rules.backoff import PARK_S, SETTLE_S
from codexdrv.rules.evidence import OBSTACLES, OBSTACLES_WHILE_ALIVE
from codexdrv.rules.lifecycle import WhenBusy
from codexdrv.rules.ownership import FORCED, TERMINAL, TRANSITIONS, Fact, Phase, TooLate, duty
from codexdrv.rules.reconciling import ABSENCES_MAX, LOSSES_MAX
from codexdrv.rules.thread import Subscription


Word = TypeVar("Word", bound=StrEnum)

PAGE = Path(__file__).with_name("states.md")
DASH = "\N{EN DASH}"
LATE = {(Phase.UNCERTAIN, Fact.HELD), (Phase.UNCERTAIN, Fact.REFUSED)}
"""Cells that the footnote on late answers explains."""

INTRODUCTION = """\
# States

Three tables decide what becomes of a message. They are rendered from the code by
`python docs/render_states.py`; do not edit this page by hand.
"""

OWNERSHIP = """\
## Who owns a message

A *phase* says who owns the message now; it is stored. A *fact* is something that became true of
it; each one is stored too, in one transaction with the phase that it leads to.

To read the grid, take the row of the fact and the column of the phase that the message is in: the
cell is the phase after it. *stays* means that the phase does not change. A dash is an illegal
move: it cannot happen, and if it is tried, the program refuses with a named error. The phases in
bold are ends.

Three things to look for. *surfaced* is legal everywhere and nothing leaves it: once the server has
put a message into a turn, no later word takes that back. A message that is *uncertain* is queued
again only by proof that it is not in the thread, by the late answer to its own request, or by an
operator. And doubt never ends a message: nothing in the row *in_doubt* leads to an end.
"""

FOOTNOTES = """\
- ¹ Too late: an answer to the caller, no error. Nothing is stored; the message may be on its way,
  and to take it back could be a lie.
- ² Too late: it has ended as the column says. Nothing is stored.
- ³ Only if an operator forces it: what is on its way, or had ended, is sent.
- ⁴ The late answer to the request that is still open. It is the best proof there is.
"""

EVIDENCE = """\
## When is a message that is in doubt absent?

Three witnesses are asked, the fence first: the *record* is the thread's rollout file, read from the
size that the dispatch noted on; *history* is what the server lists, newest first, through the
whole turn that was newest then; the *fence* is the server's own queue for the thread.

Record or history that shows the message (our id, our text) proves that it is there. While the
server that it was sent to lives and the fence finds a turn, it may still come. It is proved absent,
and only then queued again, if both say no, nothing of the table below stands, and either the
server that it was sent to is gone, or the fence was quiet in two looks, at least {settle_s:g} s
apart on one connection, with both others asked after each. Taken and vanished {absences} times, it
has failed (`swallowed`); so has what was lost {losses} times with its connection or its server
(`lost`).

Otherwise it stays in doubt with the first reason that stands, and is looked at again, for ever:
often in the first minute, then once a minute, and at once when something moves or somebody rings.
In doubt for {park_min:g} minutes while the thread is quiet, it is *parked*: the messages behind it
go on without it (`hold_in_doubt = true` for a target keeps them).
"""

OBSTACLES_END = """\
The last {count} do not stand in the way once the server that it was sent to is gone.
"""

PHASES = """\
What the dispatcher owes a message follows from its stored phase, so a restart is no special path:
every connection has ended then. A phase that this version does not know counts as alive, and
nothing is done with it.
"""

ROUTING = """\
## What is done with the message at the head of a thread's queue

The rules are tried from the top, and the first one that matches decides. *any* matches
everything. Four columns are the whole situation:

- *thread*: whether this connection gets the thread's turns and items, and if not, why not;
- *activity*: what the thread does, as far as we know;
- *when busy*: what the caller wants while a turn runs;
- *attempt*: what this attempt may still do: {fences} fences, {resumes} resumes and {sends} sends
  at most. It sends again only after a refusal that proves that nothing was admitted.

To *fence* is to ask the server, in its own queue, what the thread does; it changes nothing. After
*resume* and *fence* the table is walked again with what was learned. *reason* is the stable word
that `codexdrv status` shows, *why* the sentence.
"""


def render() -> str:
    """Return the whole page."""
    budgets = ROUTING.format(
        fences=routing.FENCES_MAX, resumes=routing.RESUMES_MAX, sends=routing.SENDS_MAX
    )
    situation = ("thread", "activity", "when busy", "attempt")
    parts = (
        INTRODUCTION,
        OWNERSHIP,
        _table(("fact", *map(_phase, Phase), "what it says"), _ownership_rows()),
        FOOTNOTES,
        PHASES,
        _table(("phase", "what it says", "what is owed"), _phase_rows()),
        EVIDENCE.format(
            settle_s=SETTLE_S,
            absences=ABSENCES_MAX,
            losses=LOSSES_MAX,
            park_min=PARK_S / 60,
        ),
        _table(("reason", "why it is not proved absent"), _obstacle_rows()),
        OBSTACLES_END.format(count=len(OBSTACLES_WHILE_ALIVE)),
        budgets,
        _table(("", *situation, "action", "reason", "why"), _routing_rows()),
        "The words that do not speak for themselves:\n",
        _table(("column", "word", "what it says"), _legend_rows()),
    )
    return "\n".join(parts)


def _ownership_rows() -> Iterator[list[str]]:
    for fact, meaning in _meanings(Fact):
        yield [fact, *(_cell(phase, fact) for phase in Phase), meaning]


def _cell(phase: Phase, fact: Fact) -> str:
    after = TRANSITIONS.get((phase, fact))
    if after is None:
        return DASH
    if isinstance(after, TooLate):
        return "too late ¹" if after is TooLate.ON_ITS_WAY else "too late ²"
    mark = " ³" if (phase, fact) in FORCED else " ⁴" if (phase, fact) in LATE else ""
    return ("stays" if after is phase else after) + mark


def _phase_rows() -> Iterator[list[str]]:
    for phase, meaning in _meanings(Phase):
        here, elsewhere = duty(phase, is_open=True), duty(phase, is_open=False)
        owed = here if here is elsewhere else f"{here}; {elsewhere} if the connection has ended"
        yield [_phase(phase), meaning, owed]


def _phase(phase: Phase) -> str:
    return f"**{phase}**" if phase in TERMINAL else phase


def _obstacle_rows() -> Iterator[list[str]]:
    yield ["other_text", "the thread shows its id with another text"]
    yield ["ghost", "the record has its text without an id, and not in the turn of its answer"]
    for obstacle in (*OBSTACLES, *OBSTACLES_WHILE_ALIVE):
        yield [obstacle.reason, obstacle.why]


def _routing_rows() -> Iterator[list[str]]:
    for number, rule in enumerate(routing.RULES, 1):
        yield [str(number), *("any" if cell is None else cell for cell in rule)]


def _legend_rows() -> Iterator[list[str]]:
    columns = {
        "thread": Subscription,
        "activity": routing.Activity,
        "when busy": WhenBusy,
        "attempt": routing.Budget,
        "action": routing.Action,
    }
    for column, words in columns.items():
        yield from ([column, word, meaning] for word, meaning in _meanings(words) if meaning)


def _meanings(words: type[Word]) -> Iterator[tuple[Word, str]]:
    """Read what the source says above each member in its `#:` lines."""
    above: list[str] = []
    for line in inspect.getsource(words).splitlines():
        if said := re.fullmatch(r" *#: (.*)", line):
            above.append(said[1])
        elif member := re.fullmatch(r" *([A-Z_]+) = .*", line):
            yield words[member[1]], " ".join(above)
            above = []


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
