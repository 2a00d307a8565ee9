"""`codexdrv deliver --ndjson`: a message a line in, an object a line out."""

import json
from collections.abc import Iterator
from typing import IO, Any

from codexdrv.cli.shapes import delivery_object, look_around
from codexdrv.cli.wish import Wish, make_order
from codexdrv.config import Config
from codexdrv.errors import BadInput, CallerError, ExitCode, Full
from codexdrv.journal.journal import Journal
from codexdrv.rules.lifecycle import WhenBusy


LINE_BYTES_MAX = 33_554_432
"""32 MiB: the longest message, with every letter of it escaped."""

KEYS = ("id", "thread", "target", "text", "source", "when_busy")


def deliver_lines(lines: IO[bytes], journal: Journal, config: Config, defaults: Wish) -> ExitCode:
    """Admit line by line; a bad line does not stop the rest.

    Args:
        lines: where they come from.
        journal: where they go.
        config: the targets.
        defaults: what the command line said for lines that do not say it.

    Returns:
        OK, or the exit code of the first line that was refused.

    Raises:
        JournalError: nothing more can be stored; what was printed is.
    """
    code = ExitCode.OK
    for number, line in enumerate(_read_lines(lines), 1):
        if not line.strip():
            continue
        try:
            order = make_order(read_wish(line, defaults), config)
            admission = journal.admit(order, live_max=config.limits.live_per_thread)
        except (CallerError, Full) as error:
            code = code or error.exit_code
            body = {"line": number, "error": error.as_object()}
        else:
            scene = look_around(config, journal)
            body = delivery_object(admission.delivery, scene, is_duplicate=admission.is_duplicate)
        print(json.dumps(body), flush=True)
    return code


def read_wish(line: bytes, defaults: Wish) -> Wish:
    """Read one line.

    Raises:
        BadInput: it is no object, or has a key that is unknown, missing, or of the wrong kind.
    """
    wish = _parse(line)
    for key, value in wish.items():
        if key not in KEYS:
            raise _wrong(f"the key {key!r} is not known", f"Known keys: {', '.join(KEYS)}.")
        if not isinstance(value, str):
            raise _wrong(f"{key!r} is no string", "Put it in quotes.")
    if ("thread" in wish) is ("target" in wish):
        raise _wrong("it needs either 'thread' or 'target'", "Name one of them.")
    if "text" not in wish:
        raise _wrong("it has no 'text'", "Give the message as 'text'.")
    words = [str(word) for word in WhenBusy]
    if wish.get("when_busy", words[0]) not in words:
        raise _wrong(f"'when_busy' is not one of {', '.join(words)}", "Leave it out for steer.")
    return defaults._replace(**wish)


def _read_lines(lines: IO[bytes]) -> Iterator[bytes]:
    while line := lines.readline(LINE_BYTES_MAX + 1):
        if len(line) <= LINE_BYTES_MAX:
            yield line
            continue
        yield line
        while line and not line.endswith(b"\n"):
            line = lines.readline(LINE_BYTES_MAX)


def _parse(line: bytes) -> dict[str, Any]:
    if len(line) > LINE_BYTES_MAX:
        raise _wrong(f"it is longer than {LINE_BYTES_MAX:,} bytes", "Split it.")
    try:
        wish = json.loads(line)
    except ValueError as error:
        raise _wrong(f"it is not JSON: {error}", "Write one JSON object a line.") from error
    if not isinstance(wish, dict):
        raise _wrong("it is no JSON object", "Write one JSON object a line.")
    return wish


def _wrong(what: str, hint: str) -> BadInput:
    return BadInput(f"The line cannot be taken: {what}.", hint=hint)
