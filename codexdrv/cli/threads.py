"""`codexdrv threads`: what threads the server has; the id is what `deliver --thread` wants."""

import argparse
import json

import anyio

from codexdrv import __version__
from codexdrv.config import Config, load_config
from codexdrv.engine.session import Pace, Session
from codexdrv.errors import CodexdrvError, ExitCode
from codexdrv.protocol.events import Event
from codexdrv.protocol.methods import ThreadView, list_threads, read_thread_list
from codexdrv.transport.channel import Channel
from codexdrv.transport.unix import open_unix
from codexdrv.wire.websocket import WebSocketFraming


PAGE = 100
"""Threads a request; the server sends their previews with them."""
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
        "--limit", type=int, default=PAGE, metavar="N", help=f"at most so many; default {PAGE}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def run(args: argparse.Namespace) -> ExitCode:
    """Ask the server, and print a line a thread, newest first."""
    views = anyio.run(fetch_threads, load_config(args.config), args.limit)
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


async def fetch_threads(config: Config, limit: int) -> list[ThreadView]:
    """Read the newest threads of the configured server.

    Raises:
        LinkError, PeerError: there is no server, or it does not answer.
    """
    views: list[ThreadView] = []

    async def ask(session: Session) -> None:
        cursor: str | None = None
        while len(views) < limit:
            result = await session.call(list_threads(cursor, min(PAGE, limit - len(views))))
            page, cursor = read_thread_list(result)
            views.extend(page)
            if cursor is None or not page:
                break
        is_done.set()

    is_done = anyio.Event()
    limits = config.limits
    async with open_unix(config.server.socket) as link:
        session = Session(
            Channel(link.stream, WebSocketFraming()), generation=1, peer=None, on_event=_ignore
        )
        try:
            await session.run(
                ask, version=__version__, pace=Pace(limits.ping_interval_s, limits.silence_s)
            )
        except CodexdrvError:
            # Its end is ours once everything was read.
            if not is_done.is_set():
                raise
    return views


def _ignore(_event: Event) -> None:
    pass
