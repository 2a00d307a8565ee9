"""What the server warns of that evidence has to know."""

from codexdrv.wire.message import Notification


UNSAVED = "Failed to save the conversation transcript"
"""How it says that a thread's record lacks what it shows (WIRE-FACTS, "What an answer proves")."""


def is_unsaved(news: Notification) -> bool:
    """Say whether the server tells that it could not write a thread's record."""
    return news.method == "warning" and UNSAVED in str(news.params.get("message"))
