"""`codexdrv answer`: answer a question of the server, as an operator decides."""

import argparse
import json
from typing import Any

import anyio
import orjson

from codexdrv import __version__
from codexdrv.cli.open_questions import Open, Question, load_open, one_at_a_time, pick
from codexdrv.cli.usage import tell_usage
from codexdrv.client import ask_configured
from codexdrv.config import load_config
from codexdrv.engine.replying import Outcome, Wanted, answer_question
from codexdrv.engine.session import Session
from codexdrv.errors import BadInput, ExitCode, NotFound
from codexdrv.ids import ThreadId
from codexdrv.protocol.asked import check_words
from codexdrv.protocol.questions import Decision, Said, posture_of


SENTENCES = {
    Outcome.TAKEN: "{id} is settled: the server took {decision}.",
    Outcome.LATE: "{id} is settled, but not as you said: somebody else's answer came first.",
    Outcome.UNCLEAR: "{decision} was sent to {id}; the server has not said that it is settled.",
}
CODES = {
    Outcome.TAKEN: ExitCode.OK,
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

exit codes: 0 the server took it; 1 somebody else's answer came first; 3 it was sent,
and it is not clear whether it counted; 65 it cannot be answered so; 66 it is not open;
69 no supervisor or server
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument("id", metavar="ID", help="a question, or how its id begins: `attention`")
    parser.add_argument(
        "--decision", type=Decision, choices=[*Decision], required=True, help="what you decide"
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
    if not args.id:
        return tell_usage("answer", "an empty ID means no question")
    config = load_config(args.config)
    known = load_open(config)
    question = pick(known, args.id)
    said = Said(tuple(args.reply), args.content)
    _check(question, args.decision, said)

    async def answer(session: Session) -> Outcome:
        _check_server(session, known, question)
        wanted = Wanted(question["id"], ThreadId(question["thread"]))
        return await answer_question(session, wanted, args.decision, said)

    with one_at_a_time(config.state.directory):
        outcome = anyio.run(lambda: ask_configured(config.server, answer, version=__version__))
    if args.json:
        body = {"id": question["id"], "decision": args.decision, "outcome": outcome}
        print(json.dumps(body))
    else:
        print(SENTENCES[outcome].format(id=question["id"], decision=args.decision))
    return CODES[outcome]


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
            f"To {question['id']} ({posture.kind}) nobody can say {decision}.",
            hint=f"Say one of: {', '.join(possible)}.",
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
    return question, reply


def _content(text: str) -> dict[str, Any]:
    try:
        content = orjson.loads(text.encode(errors="surrogateescape"))
    except orjson.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"it is no JSON: {error.msg}") from None
    if not isinstance(content, dict):
        raise argparse.ArgumentTypeError("it is no JSON object")
    return content
