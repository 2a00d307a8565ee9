"""What the server's errors mean for an input: one table, first match wins.

The server has few codes and says the rest in words, so the words are matched (WIRE-FACTS,
"Handshake and errors", "Turns"). An error that no row knows is `UNKNOWN`: the request may have
been admitted, and the delivery is in doubt.
"""

import re
from enum import StrEnum
from typing import Any, NamedTuple

from codexdrv.errors import Refused
from codexdrv.ids import TurnId


class Meaning(StrEnum):
    """What a refusal says; each one but `UNKNOWN` proves that the input was not admitted."""

    #: Too many requests; nothing was admitted.
    OVERLOADED = "overloaded"
    #: The server finishes what runs and goes away.
    DRAINING = "draining"
    #: Another server process writes this thread.
    ACTIVE_WRITER = "active_writer"
    #: The thread is archived.
    ARCHIVED = "archived"
    #: Compaction or review runs.
    NOT_STEERABLE = "not_steerable"
    #: No turn runs: the session is quiet.
    NO_ACTIVE_TURN = "no_active_turn"
    #: Another turn runs than the one that was named.
    OTHER_TURN = "other_turn"
    #: The session is not loaded.
    NOT_LOADED = "not_loaded"
    #: There is no record of the thread: never used, or deleted.
    NO_ROLLOUT = "no_rollout"
    #: The server does not know the thread at all.
    UNKNOWN_THREAD = "unknown_thread"
    #: The thread or this server has no such method.
    NOT_SUPPORTED = "not_supported"
    #: Over the server's limit for one input; it always will be.
    INPUT_TOO_LARGE = "input_too_large"
    #: The turn that was named runs and takes input, but there was none.
    EMPTY_INPUT = "empty_input"
    #: No row of the table matches.
    UNKNOWN = "unknown"


class Understood(NamedTuple):
    """A refusal, understood."""

    meaning: Meaning
    #: The turn that runs instead, for `OTHER_TURN`.
    turn: TurnId | None = None
    #: What kind of turn it is, for `NOT_STEERABLE`: "compact", "review", or "".
    turn_kind: str = ""


class Row(NamedTuple):
    """One row of the table: a code, and what the words must contain."""

    meaning: Meaning
    rpc_code: int
    words: str


_UUID = r"`?(?P<turn>[0-9a-fA-F-]{36})`?"

TABLE = (
    Row(Meaning.OVERLOADED, -32001, r""),
    Row(Meaning.DRAINING, -32600, r"^Server is draining"),
    Row(Meaning.ACTIVE_WRITER, -32600, r"already has an active writer"),
    Row(Meaning.ARCHIVED, -32600, r"session \S+ is archived"),
    Row(Meaning.NOT_STEERABLE, -32603, r"ActiveTurnNotSteerable \{ turn_kind: (?P<kind>\w+)"),
    Row(Meaning.NOT_STEERABLE, -32600, r"^cannot steer a (?P<kind>\w+) turn"),
    Row(Meaning.NO_ACTIVE_TURN, -32600, r"^no active turn to (steer|interrupt)"),
    Row(Meaning.OTHER_TURN, -32600, r"^expected active turn id \S+ but found " + _UUID),
    Row(Meaning.EMPTY_INPUT, -32600, r"^input must not be empty"),
    Row(Meaning.NOT_LOADED, -32600, r"^thread not found: "),
    Row(Meaning.UNKNOWN_THREAD, -32600, r"^thread not loaded: "),
    Row(Meaning.NO_ROLLOUT, -32600, r"^no rollout found for thread id "),
    Row(Meaning.NO_ROLLOUT, -32600, r"^thread \S+ is not materialized yet"),
    Row(Meaning.NOT_SUPPORTED, -32600, r"^Invalid request: unknown variant "),
    Row(Meaning.NOT_SUPPORTED, -32601, r""),
)
"""Code and words → meaning; `read_refusal` looks at the structured `data` first."""


def read_refusal(refused: Refused) -> Understood:
    """Say what an error of the server means."""
    data = refused.data if isinstance(refused.data, dict) else {}
    if data.get("input_error_code") == "input_too_large":
        return Understood(Meaning.INPUT_TOO_LARGE)
    if data.get("reason") == "serverShuttingDown":
        return Understood(Meaning.DRAINING)
    kind = _unsteerable_kind(data)
    if kind is not None:
        return Understood(Meaning.NOT_STEERABLE, turn_kind=kind.lower())
    for row in TABLE:
        found = re.search(row.words, refused.message)
        if found and row.rpc_code == refused.rpc_code:
            named = found.groupdict()
            turn = named.get("turn")
            return Understood(
                row.meaning, TurnId(turn) if turn else None, (named.get("kind") or "").lower()
            )
    return Understood(Meaning.UNKNOWN)


def _unsteerable_kind(data: dict[str, Any]) -> str | None:
    info = data.get("codexErrorInfo")
    detail = info.get("activeTurnNotSteerable") if isinstance(info, dict) else None
    return str(detail.get("turnKind") or "") if isinstance(detail, dict) else None
