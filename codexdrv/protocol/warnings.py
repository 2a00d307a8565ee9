"""What the server warns of that evidence has to know."""

from codexdrv.protocol.events import Event, Warned


UNSAVED = "Failed to save the conversation transcript"
"""How it says that a thread's record lacks what it shows (WIRE-FACTS, "What an answer proves")."""


def is_unsaved(event: Event) -> bool:
    """Say whether the server tells that it could not write a thread's record."""
    return isinstance(event, Warned) and UNSAVED in event.message
