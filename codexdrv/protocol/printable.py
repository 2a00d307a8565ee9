"""Texts of strangers, made fit for a terminal: nothing moves the cursor, hides, or has no end.

What a server asks comes from a model, or from whoever wrote what the model has read.
"""

import json
from typing import Any


HEAD_CHARACTERS, TAIL_CHARACTERS = 400, 200
"""Of one text that is shown: the end, too, lest it be pushed out of sight."""
PARTS_MAX = 10
"""Of a list that is shown: files, questions, options."""


def shown(text: str) -> str:
    """Write out what does not print, and what would end a quotation."""
    # A backslash, too: else nobody could tell `\n` from a line that ends.
    return "".join(
        each
        if each.isprintable() and each not in "\\“”"
        else each.encode("unicode_escape").decode()
        for each in text
    )


def quoted(text: str) -> str:
    """Show a text in quotes that it cannot hold; a long one is cut in its middle."""
    cut = len(text) - HEAD_CHARACTERS - TAIL_CHARACTERS
    if cut <= 0:
        return f"“{shown(text)}”"
    head, tail = text[:HEAD_CHARACTERS], text[-TAIL_CHARACTERS:]
    return f"“{shown(head)}” ({cut} characters more) “{shown(tail)}”"


def listed(texts: list[str]) -> str:
    """Show the first of some texts, and how many there are more."""
    more = len(texts) - PARTS_MAX
    rest = [f"and {more} more"] if more > 0 else []
    return ", ".join([*map(quoted, texts[:PARTS_MAX]), *rest])


def compact(value: Any) -> str:
    """Show a JSON value."""
    try:
        return quoted(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    except (RecursionError, ValueError):
        return "(too deep to show)"
