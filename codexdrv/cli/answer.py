"""`codexdrv answer`: answer a question of the server, as an operator decides."""

import argparse
import fcntl
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson

from codexdrv import __version__
from codexdrv.cli.open_questions import Open, Question, load_open, pick
from codexdrv.cli.usage import tell_usage
from codexdrv.client import ask_configured
from codexdrv.config import Config, load_config
from codexdrv.engine.replying import Outcome, Wanted, answer_question
from codexdrv.engine.session import Session
from codexdrv.errors import AlreadyRunning, BadInput, ExitCode, LinkError, NotFound, PeerError
from codexdrv.ids import ThreadId
from codexdrv.protocol.asked import check_words
from codexdrv.protocol.questions import Decision, Said, posture_of


ID_DIGITS_MIN = 4
"""Fewer might fit another question, which was asked after somebody looked."""

BUSY_S = 15.0
"""Longer than an answer takes, if its server is there."""
RETRY_S = 0.05

DOTS = "…"
"""What `attention` shows in place of a text that the operator has to write."""

SENTENCES = {
    Outcome.TAKEN: "{id} is settled: the server took {decision}.",
    Outcome.SETTLED: "{id} is settled: by {decision}, unless somebody else's answer came first.",
    Outcome.LATE: "{id} is settled, but not as you said: somebody else's answer came first.",
    Outcome.UNCLEAR: "{decision} was sent to {id}; the server has not said that it is settled.",
}
CODES = {
    Outcome.TAKEN: ExitCode.OK,
    # Only an answer of the very same moment could have come first.
    Outcome.SETTLED: ExitCode.OK,
    Outcome.LATE: ExitCode.FAILED,
    Outcome.UNCLEAR: ExitCode.IN_DOUBT,
}

EPILOG = """\
examples:
  codexdrv answer 4f1c --decision accept
  codexdrv answer 4f1c --decision decline
  codexdrv answer 91aa --decision accept --reply which=this --reply why="It is newer"
  codexdrv answer 07be --decision accept --content '{"name": "me"}'

accept: this once; permissions: what was asked for, for this turn. accept-for-session:
also the like of it, as long as the thread is loaded. decline: it is not done, and the
turn goes on. cancel: it is not done, and the turn ends.

exit codes: 0 it is settled; 1 somebody else's answer came first, or the server
refused to ask again; 3 it was sent, and it is not clear whether it counted; 65 it
cannot be answered so; 66 it is not open; 69 no supervisor or server; 75 another
`codexdrv answer` runs. But for 0, 1 and 3 nothing was sent
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument(
        "id", metavar="ID", help="a question, or four digits or more of how its id begins"
    )
    parser.add_argument(
        "--decision",
        choices=[str(word) for word in Decision],
        required=True,
        help="what you decide",
    )
    parser.add_argument(
        "--reply",
        type=_reply,
        action="append",
        default=[],
        metavar="QUESTION=TEXT",
        help="to a question for input: a reply to each; may be repeated",
    )
    parser.add_argument(
        "--content",
        type=_content,
        metavar="JSON",
        help="to an elicitation: the object that it wants",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    """Answer, and say what became of it."""
    if len(args.id) < ID_DIGITS_MIN:
        return tell_usage("answer", f"an ID is {ID_DIGITS_MIN} digits or more of a question's")
    config = load_config(args.config)
    known = load_open(config)
    question = pick(known, args.id)
    decision, said = Decision(args.decision), Said(tuple(args.reply), args.content)
    _check(question, decision, said)
    outcome = _answer(config, known, question, decision, said)
    if args.json:
        print(json.dumps({"id": question["id"], "decision": decision, "outcome": outcome}))
    else:
        print(SENTENCES[outcome].format(id=question["id"], decision=decision))
    return CODES[outcome]


def _answer(
    config: Config, known: Open, question: Question, decision: Decision, said: Said
) -> Outcome:
    is_sent = False

    def note_sent() -> None:
        nonlocal is_sent
        is_sent = True

    async def answer(session: Session) -> Outcome:
        _check_server(session, known, question)
        wanted = Wanted(question["id"], ThreadId(question["thread"]))
        return await answer_question(session, wanted, decision, said, on_sent=note_sent)

    async def ask() -> Outcome:
        async with _one_at_a_time(config.state.directory):
            return await ask_configured(config.server, answer, version=__version__)

    try:
        return anyio.run(ask)
    except (LinkError, PeerError, KeyboardInterrupt):
        if is_sent:
            return Outcome.UNCLEAR
        raise


@asynccontextmanager
async def _one_at_a_time(directory: str) -> AsyncIterator[None]:
    """Let one command answer after the other: the server does not say whose answer counted."""
    # The directory itself: no file is left behind, and nobody else locks it.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with anyio.move_on_after(BUSY_S) as waiting:
            while not _lock(descriptor):  # noqa: ASYNC110 - a lock is no event
                await anyio.sleep(RETRY_S)
        if waiting.cancelled_caught:
            raise AlreadyRunning(
                "Another `codexdrv answer` has not ended.",
                hint="`codexdrv attention` lists what is still open.",
            )
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _check(question: Question, decision: Decision, said: Said) -> None:
    """Refuse what this question cannot be answered with, before anybody is asked."""
    posture = posture_of(question["method"])
    possible = question["decisions"]
    if not posture.decisions:
        raise BadInput(
            f"No operator can answer {question['id']} ({posture.kind}).",
            hint=f"Only {posture.others} can.",
        )
    if not possible or not question["thread"]:
        raise BadInput(
            f"{question['id']} cannot be answered for certain.",
            hint="Nobody can say which server process asks it: answer in another client.",
        )
    if decision not in possible:
        raise BadInput(
            f"To {question['id']} ({posture.kind}) no operator can say {decision}.",
            hint=f"Say one of: {', '.join(possible)}. Or answer in another client.",
        )
    check_words(posture.kind, decision, said)


def _check_server(session: Session, known: Open, question: Question) -> None:
    """Refuse a question of another process early; its id would not fit either."""
    asking = (known.server.get("pid"), known.server.get("start_ticks"))
    if session.peer is not None and None not in asking and asking != session.peer[:2]:
        raise NotFound(
            f"{question['id']} was asked by a server that is not there any more"
            f" (pid {asking[0]}; the one there now has pid {session.peer.pid}).",
            hint="`codexdrv attention` lists what is open.",
        )


def _reply(text: str) -> tuple[str, str]:
    question, sign, reply = text.partition("=")
    if not (question and sign):
        raise argparse.ArgumentTypeError(f"{text!r} is not QUESTION=TEXT")
    # A lone surrogate stands for bytes that are no UTF-8.
    if text != text.encode(errors="replace").decode():
        raise argparse.ArgumentTypeError("a reply must be valid UTF-8")
    if reply.strip() in {"", DOTS}:
        raise argparse.ArgumentTypeError(f"no reply stands behind {question!r} and its =")
    return question, reply


def _content(text: str) -> dict[str, Any]:
    try:
        content = orjson.loads(text.encode(errors="surrogateescape"))
    except orjson.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"it is no JSON: {error.msg}") from None
    if not isinstance(content, dict):
        raise argparse.ArgumentTypeError("it is no JSON object")
    return content
