"""Identifiers: whose they are, what they may hold, and how ours are minted."""

import re
from typing import NewType

from codexdrv.errors import BadInput


ThreadId = NewType("ThreadId", str)
"""The server's id of a thread: a UUID, lower case."""
TurnId = NewType("TurnId", str)
"""The server's id of a turn."""
DeliveryId = NewType("DeliveryId", str)
"""Our id of a delivery; on the wire it is the `clientUserMessageId`."""

NIL_TURN = TurnId("00000000-0000-0000-0000-000000000000")
"""No turn ever has this id: steering it is the fence (WIRE-FACTS, "The fence tells the truth")."""

DELIVERY_ID_CHARACTERS_MAX = 200
"""Long enough for an RFC 5322 Message-ID, short enough for a line of `list`."""

_DELIVERY_ID = re.compile(rf"[A-Za-z0-9._:@/-]{{1,{DELIVERY_ID_CHARACTERS_MAX}}}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SOURCE = re.compile(r"[A-Za-z0-9._:@-]{1,100}")
_LETTERS = "A-Z a-z 0-9 . _ : @ / -"


def parse_thread_id(text: str) -> ThreadId:
    """Read a thread id as a caller wrote it.

    Raises:
        BadInput: it is no UUID.
    """
    lower = text.lower()
    if not _UUID.fullmatch(lower):
        raise BadInput(
            f"{text!r} is not a thread id: a thread id is a UUID.",
            hint="`codexdrv threads` lists the threads of the server.",
        )
    return ThreadId(lower)


def parse_delivery_id(text: str, *, source: str | None = None) -> DeliveryId:
    """Read a delivery id as a caller wrote it; a source makes it `SOURCE/ID`.

    A source has no slash, so that one delivery id never has two readings.

    Raises:
        BadInput: a letter that is not allowed, an empty part, or more than 200 characters.
    """
    if source is not None and not _SOURCE.fullmatch(source):
        raise BadInput(
            f"{source!r} is not a source: 1 to 100 of {_LETTERS.replace(' /', '')}.",
            hint="Name the bridge, for example --source mail.",
        )
    full = text if source is None else f"{source}/{text}"
    if not text or not _DELIVERY_ID.fullmatch(full):
        raise BadInput(
            f"{full[:60]!r} is not a delivery id: 1 to {DELIVERY_ID_CHARACTERS_MAX} of {_LETTERS}.",
            hint="Leave out --id to have one made.",
        )
    return DeliveryId(full)


def name_delivery(text: str) -> DeliveryId:
    """Take a delivery id from somebody who asks for it; what no id may hold finds nothing."""
    # A lone surrogate (bytes that are no UTF-8, on a command line) could not even be asked for.
    return DeliveryId(text.encode(errors="replace").decode())


def mint_delivery_id(now_ms: int, chance: bytes) -> str:
    """Make a UUIDv7 (RFC 9562, section 5.7) from the time and ten random bytes.

    Written out here because `import uuid` costs `deliver` 4 ms.
    """
    number = int.from_bytes(now_ms.to_bytes(6, "big") + chance[:10], "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    digits = f"{number:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
