"""The text of a message: where it is read from, and what no thread could take."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from codexdrv.errors import BadInput, NotFound


TEXT_SCALARS_MAX = 1_048_576
"""The server's own limit for one input (WIRE-FACTS, "Handshake and errors"): it never passes."""
TEXT_BYTES_MAX = 4 * TEXT_SCALARS_MAX
"""No character takes more in UTF-8; so a wrong --file does not fill the memory."""


def check_text(text: str) -> str:
    """Refuse what no thread could take; nothing is trimmed.

    Raises:
        BadInput: blank, too long, or with lone surrogates.
    """
    if not text.strip():
        raise BadInput(
            "The message is empty or blank.",
            hint="Give it as TEXT, with --file, or on stdin with -.",
        )
    if len(text) > TEXT_SCALARS_MAX:
        raise _too_long(f"{len(text):,} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"The message is not valid UTF-8 at character {error.start + 1}.",
            hint="Convert it to UTF-8 first.",
        ) from error
    return text


def read_text(text: str | None, path: str | None) -> str:
    """Read the message from where the caller has it: TEXT, `-` for standard input, or a file.

    Raises:
        BadInput: too long, or not UTF-8.
        NotFound: it cannot be read.
    """
    if path is None and text != "-":
        return str(text)
    with open_input(path) as file:
        raw = file.read(TEXT_BYTES_MAX + 1)
    if len(raw) > TEXT_BYTES_MAX:
        raise _too_long(f"over {TEXT_BYTES_MAX:,} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadInput(
            f"The message is not valid UTF-8 at byte {error.start + 1}.",
            hint="Convert it to UTF-8 first.",
        ) from error


@contextmanager
def open_input(path: str | None) -> Iterator[IO[bytes]]:
    """Open a file, or standard input.

    Raises:
        NotFound: it cannot be opened, or not be read inside the block.
    """
    try:
        # By its number: `sys.stdin` is None when a daemon has closed it.
        with open(0 if path is None else path, "rb", closefd=path is not None) as file:
            yield file
    except OSError as error:
        name, hint = (
            ("Standard input", "Open it, or use --file.")
            if path is None
            else (f"The file {path}", "Check --file.")
        )
        raise NotFound(f"{name} cannot be read: {error.strerror}.", hint=hint) from error


def _too_long(size: str) -> BadInput:
    return BadInput(
        f"The message has {size}; {TEXT_SCALARS_MAX:,} characters are the most.",
        hint="Leave it in a file, and deliver a message that names the file.",
    )
