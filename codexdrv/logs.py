"""Logging: structlog, JSON lines unless stderr is a terminal; events are `noun.past_participle`."""

import logging
import sys
from typing import Any, TextIO

import orjson
import structlog


def configure_logs(*, is_verbose: bool = False, stream: TextIO | None = None) -> None:
    """Set up logging for a process that stays; commands that answer and end do not log."""
    out = stream or sys.stderr
    level = logging.DEBUG if is_verbose else logging.INFO
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if out.isatty():
        structlog.configure(
            processors=[*shared, structlog.dev.ConsoleRenderer()],
            wrapper_class=structlog.make_filtering_bound_logger(level),
            logger_factory=structlog.PrintLoggerFactory(out),
            cache_logger_on_first_use=True,
        )
        return
    structlog.configure(
        processors=[
            *shared,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=orjson.dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.BytesLoggerFactory(out.buffer),
        cache_logger_on_first_use=True,
    )
