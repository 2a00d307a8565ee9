"""What a check says: well, wrong or worth a word; what was found, and what to do about it."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, TypeVar

from codexdrv.errors import CodexdrvError
from codexdrv.paths import Offence


Found = TypeVar("Found")


class State(StrEnum):
    """How a check ended; only `WRONG` makes the machine unwell."""

    #: As it must be.
    OK = "ok"
    #: Something does not work, or is not safe, until somebody mends it.
    WRONG = "wrong"
    #: Worth knowing, or a check that does not apply here.
    NOTE = "note"


class Finding(NamedTuple):
    """One line of the doctor."""

    name: str
    state: State
    found: str
    #: A command to run or a key to change, a line for each way; empty: nothing is to be done.
    remedy: str = ""


def ok(name: str, found: str) -> Finding:
    """Say that all is as it must be."""
    return Finding(name, State.OK, found)


def note(name: str, found: str, remedy: str = "") -> Finding:
    """Say what is worth knowing."""
    return Finding(name, State.NOTE, found, remedy)


def wrong(name: str, found: str, remedy: str) -> Finding:
    """Say what must be mended, and how."""
    return Finding(name, State.WRONG, found, remedy)


def failed(name: str, offence: Offence) -> Finding:
    """Say why something could not be looked at, or may not be used."""
    is_command = offence.hint.startswith("chmod ")
    # What a process said last comes in lines.
    sentence = " ".join(offence.sentence.split())
    return wrong(name, sentence, f"`{offence.hint}`" if is_command else offence.hint)


def look_at(look: Callable[[], Found]) -> Found | Offence:
    """Look at something; where that fails, what failed is what was seen."""
    try:
        return look()
    except CodexdrvError as error:
        return Offence(error.message, error.hint)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return Offence(
            f"{where}{error.strerror or error}.", "Run codexdrv as the user whose files they are."
        )
    except Exception as error:  # noqa: BLE001 - whatever breaks one look, the others go on
        return Offence(
            f"The check itself failed: {error!r}.", "This is a bug of codexdrv: tell its authors."
        )
