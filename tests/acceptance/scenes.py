"""Scenes in which a message finds its thread, and what became of it as every witness tells."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from codexdrv.demo.script import COMPACTION, Hold, RunCommand
from codexdrv.demo.server import AppServer
from tests.acceptance.binaries import by_version
from tests.acceptance.kit import Message, Rig, Said, Truth
from tests.acceptance.machine import Machine


FIRST = Said("u1", "first")
BUSY = Said("u2", "busy")
ASK = Said("u3", "ask")

REFUSES_WHILE_DRAINING = {"0.144.5": False, "0.163.0": True}
"""0.144.5 takes new work until its last turn has ended."""

STEER_CUTS_THE_ANSWER = {"0.144.5": False, "0.163.0": True}
"""Where it does not, a steer becomes an item only when the current model response ends."""


class Boundary(NamedTuple):
    """A state in which a thread takes no input."""

    method: str
    params: Message
    #: The item by which it shows itself, and what the model is asked.
    item: str
    key: str
    #: What it says by itself, by version.
    said: dict[str, list[Said]]


COMPACT = Boundary("thread/compact/start", {}, "contextCompaction", COMPACTION, {"0.144.5": []})
LOOK = Said(None, "look at it")
REVIEW = Boundary(
    "review/start",
    {"target": {"type": "custom", "instructions": LOOK.text}},
    "enteredReviewMode",
    LOOK.text,
    # 0.144.5 writes the review's own words twice, into history and record alike.
    {"0.144.5": [LOOK, LOOK], "0.163.0": [LOOK]},
)


def used_thread(rig: Rig, truth: Truth) -> str:
    """Start a thread of another client that has had a turn, in which FIRST was said."""
    thread = truth.start_thread(rig.cwd)
    truth.wait_for_turn(truth.start_turn(thread, FIRST.text, client_id=FIRST.client_id))
    return thread


def held_turn(rig: Rig, truth: Truth, thread: str) -> str:
    """Start a turn of another client by saying BUSY; it runs until the model releases that."""
    rig.model.script[BUSY.text] = Hold("free")
    turn = truth.start_turn(thread, BUSY.text, client_id=BUSY.client_id)
    truth.wait_for_input(BUSY.client_id)
    rig.model.wait_for_prompt(BUSY.text)
    return turn


def enter(truth: Truth, thread: str, boundary: Boundary) -> str:
    """Bring a thread to a boundary; return the turn that is its own."""
    truth.call(boundary.method, threadId=thread, **boundary.params)
    started = truth.wait_for(
        lambda message: (
            message["method"] == "item/started"
            and message["params"]["item"]["type"] == boundary.item
        )
    )
    turn: str = started["params"]["turnId"]
    return turn


def wait_for_steer(rig: Rig, machine: Machine, delivery: str, *, held: str, version: str) -> None:
    """Block until a steer is in the turn whose model response this text holds.

    Where a steer waits for that response, its end is let come; the steer keeps the turn running.
    """
    if not by_version(STEER_CUTS_THE_ANSWER, version):
        machine.wait_for(delivery, lambda found: found.answered_turn is not None)
        rig.model.release(held)
    machine.wait_for(delivery, lambda found: found.phase == "surfaced" and found.stored)


def asking_turn(rig: Rig, truth: Truth, thread: str) -> Message:
    """Start a turn that waits for an approval: a steer is answered, and no item until then."""
    rig.model.script[ASK.text] = RunCommand("touch asked", then="done")
    truth.start_turn(thread, ASK.text, client_id=ASK.client_id)
    return truth.wait_for(
        lambda message: message["method"] == "item/commandExecution/requestApproval"
    )


@contextlib.contextmanager
def second_server(rig: Rig) -> Iterator[Truth]:
    """Run another server on the rig's home; yield a witness of it."""
    root = rig.root
    other = AppServer(rig.server.binary, rig.home, root / "other.sock", root / "other.log")
    with other, Truth(other.socket_path) as theirs:
        yield theirs


def agreed(rig: Rig, thread: str) -> list[Said]:
    """Read the user messages of a thread, of which history, record and model must agree."""
    truth = rig.truth()
    truth.resume(thread)  # a cold read may be stale
    said = truth.history(thread)
    assert rig.rollout(thread) == said
    seen = {text: rig.model.occurrences(text) for _, text in said}
    assert seen == dict.fromkeys(seen, 1), f"how often one prompt has each: {seen}"
    return said
