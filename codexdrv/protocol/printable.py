"""Texts of strangers, made fit for a terminal: nothing moves the cursor, hides, or has no end.

What a server asks comes from a model, or from whoever wrote what the model has read.
"""

import json
import shlex
from typing import Any
from unicodedata import east_asian_width


HEAD_CHARACTERS, TAIL_CHARACTERS = 3000, 1000
"""Of one text that is shown: nearly every command, whole."""
PARTS_MAX = 50
"""Of a list that is shown: files, questions, options."""
WHOLE_CHARACTERS = 12_000
"""Of all that is shown at once: the status file holds a hundred."""

CUT = "✂"
"""Stands where something is left out; no text that is shown can hold it."""

_RESERVED = {"\\", "“", "”", CUT}
# These print, and nothing is seen of them.
_BLANK_RANGES = (
    *((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800)),
    *((0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF)),
)
_BLANK = {chr(code) for first, last in _BLANK_RANGES for code in range(first, last + 1)}


def shown(text: str) -> str:
    """Write out what is not seen, and what would end a quotation or pass for a cut."""
    # A backslash, too: else nobody could tell `\n` from a line that ends.
    return "".join(
        each if _is_seen(each) and each not in _RESERVED else each.encode("unicode_escape").decode()
        for each in text
    )


def quoted(text: str) -> str:
    """Show a text in quotes that it cannot hold; a long one is cut in its middle."""
    cut = len(text) - HEAD_CHARACTERS - TAIL_CHARACTERS
    if cut <= 0:
        return f"“{shown(text)}”"
    head, tail = text[:HEAD_CHARACTERS], text[-TAIL_CHARACTERS:]
    return f"“{shown(head)}” {CUT} {cut} characters more {CUT} “{shown(tail)}”"


def listed(texts: list[str]) -> str:
    """Show the first of some texts, and how many there are more."""
    more = len(texts) - PARTS_MAX
    rest = [f"{CUT} and {more} more"] if more > 0 else []
    return ", ".join([*map(quoted, texts[:PARTS_MAX]), *rest])


def compact(value: Any) -> str:
    """Show a JSON value."""
    try:
        return quoted(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    except (RecursionError, ValueError):
        return f"{CUT} too deep to show"


def limited(said: str) -> str:
    """Cut what is too long as a whole."""
    more = len(said) - WHOLE_CHARACTERS
    return said if more <= 0 else f"{said[:WHOLE_CHARACTERS]} {CUT} {more} characters more"


def folded(said: str, columns: int) -> list[str]:
    """Break a line before a terminal does: it would let a stranger's text begin a line.

    Before a blank, where there is one: joined, the lines are the text, and a reader sees which of
    them begins a word and which goes on in the midst of one.
    """
    lines, used = [""], 0
    for each in said:
        if used + _columns_of(each) > columns:
            blank = len(lines[-1]) if each == " " else lines[-1].rfind(" ", 1)
            rest = lines[-1][blank:] if blank > 0 else ""
            lines[-1:] = [lines[-1].removesuffix(rest), rest]
            used = sum(map(_columns_of, rest))
        lines[-1] += each
        used += _columns_of(each)
    return lines


def _columns_of(character: str) -> int:
    # As wide as any terminal makes it.
    return 1 if east_asian_width(character) in {"Na", "H", "N"} else 2


def word(text: str) -> str:
    """Write a text as one word of a shell; what is not seen, as bash, zsh and ksh read it."""
    if all(map(_is_seen, text)):
        return shlex.quote(text)
    return f"$'{''.join(map(_in_dollar_quotes, text))}'"


def _in_dollar_quotes(character: str) -> str:
    if _is_seen(character) and character not in "\\'":
        return character
    # A byte of a path that is no UTF-8 is a surrogate here.
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))


def _is_seen(character: str) -> bool:
    return character.isprintable() and character not in _BLANK
