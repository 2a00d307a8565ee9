"""Logging: structlog, JSON lines unless stderr is a terminal; events are `noun.past_participle`."""

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import IO, Any, BinaryIO, TextIO, cast

import orjson
import structlog

from codexdrv.config import wants_color


def configure_logs(
    *, is_verbose: bool = False, is_quiet: bool = False, stream: TextIO | None = None
) -> None:
    """Set up logging: for a process that stays, or, quiet, for a command that answers and ends.

    Args:
        is_verbose: every decision.
        is_quiet: only what somebody has to know.
        stream: where to; default: stderr.
    """
    out = stream or sys.stderr
    level = logging.DEBUG if is_verbose else logging.ERROR if is_quiet else logging.INFO
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if out.isatty():
        structlog.configure(
            processors=[
                *shared,
                structlog.dev.ConsoleRenderer(sort_keys=False, colors=wants_color()),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
            logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Lossy(out))),
            cache_logger_on_first_use=True,
        )
        return
    # Nothing may be left over for the end of the process: a flush that fails there is an exit code.
    unbuffered = getattr(out.buffer, "raw", out.buffer)
    structlog.configure(
        processors=[
            *shared,
            structlog.processors.format_exc_info,
            _lead,
            structlog.processors.JSONRenderer(serializer=_dump),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.BytesLoggerFactory(cast("BinaryIO", _Lossy(unbuffered))),
        cache_logger_on_first_use=True,
    )


def _dump(event: Mapping[str, Any], **options: Any) -> bytes:
    try:
        return orjson.dumps(event, **options)
    except TypeError:
        # A path may hold bytes that are no UTF-8; in Python they are lone surrogates.
        return json.dumps(event, **options).encode("ascii")


class _Lossy:
    """A stream that may fail: a full disk or a reader that has gone costs lines, not deliveries."""

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream

    def write(self, line: Any) -> None:
        with suppress(OSError):
            self._stream.write(line)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def _lead(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Put first what a person reads first; the fields follow as they were given."""
    first = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
    return first | dict(event)
