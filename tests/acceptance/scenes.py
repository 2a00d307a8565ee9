"""Scenes in which a message finds its thread, and what became of it as every witness tells."""

from codexdrv.demo.script import Hold
from tests.acceptance.kit import Rig, Said, Truth


FIRST = Said("u1", "first")
BUSY = Said("u2", "busy")


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


def agreed(rig: Rig, thread: str) -> list[Said]:
    """Read the user messages of a thread, of which history, record and model must agree."""
    truth = rig.truth()
    truth.resume(thread)  # a cold read may be stale
    said = truth.history(thread)
    assert rig.rollout(thread) == said
    seen = {text: rig.model.occurrences(text) for _, text in said}
    assert seen == dict.fromkeys(seen, 1)
    return said
