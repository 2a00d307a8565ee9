"""`codexdrv threads`: what threads the server has; the id is what `deliver --thread` wants."""

import argparse
import json

import anyio

from codexdrv import __version__
from codexdrv.client import ask_configured
from codexdrv.config import load_config
from codexdrv.engine.session import Session
from codexdrv.errors import ExitCode
from codexdrv.protocol.methods import list_threads
from codexdrv.protocol.results import ThreadView, read_thread_list


LIMIT = 100
PAGE_MAX = 1000
"""Threads a request. As many as are wanted, where possible: the cursor of older servers has whole
seconds, and at the border of a page threads of the same second are lost (0.144.5, 0.163)."""
PREVIEW_CHARACTERS = 60

EPILOG = """\
examples:
  codexdrv threads
  codexdrv threads --limit 500 --json | jq -r .id
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument(
        "--limit",
        type=_count,
        default=LIMIT,
        metavar="N",
        help=f"at most so many, the newest; default {LIMIT}",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def run(args: argparse.Namespace) -> ExitCode:
    """Ask the server, and print a line a thread, newest first."""
    server = load_config(args.config).server
    views = anyio.run(
        lambda: ask_configured(
            server, lambda session: fetch_threads(session, args.limit), version=__version__
        )
    )
    for view in views:
        if args.json:
            body = {
                "id": view.id,
                "status": view.status,
                "cwd": view.cwd,
                "preview": view.preview,
            }
            print(json.dumps(body))
        else:
            preview = " ".join(view.preview.split())[:PREVIEW_CHARACTERS]
            print(f"{view.id}  {view.status}  {view.cwd}  {preview}")
    return ExitCode.OK


async def fetch_threads(session: Session, limit: int) -> list[ThreadView]:
    """Read the newest threads of a server.

    Raises:
        Refused, LinkError: the server did not answer.
    """
    views: list[ThreadView] = []
    cursor: str | None = None
    while len(views) < limit:
        result = await session.call(list_threads(cursor, min(PAGE_MAX, limit - len(views))))
        page, cursor = read_thread_list(result)
        views += page
        if cursor is None or not page:
            break
    return views


def _count(text: str) -> int:
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
