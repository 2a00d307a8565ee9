"""One question of the server that is open: what it asks, and its name for everybody who sees it."""

import hashlib
from typing import NamedTuple

import orjson

from codexdrv.protocol.asked import Place, place_of, questions_of, required_of
from codexdrv.protocol.questions import Decision
from codexdrv.transport.peer import PeerIdentity
from codexdrv.wire.message import Request


ID_DIGITS = 16


class OpenQuestion(NamedTuple):
    """A question of the server that nobody has answered yet."""

    #: Ours: the same for everybody who sees this question of this very server process.
    id: str
    request: Request
    kind: str
    place: Place
    #: When this life first saw it; Unix milliseconds.
    since_ms: int
    #: What is asked, safe to show.
    summary: str
    decisions: tuple[Decision, ...]


def identify_question(request: Request, server: PeerIdentity | None) -> str:
    """Name a question for ever: no other one, of this server or a later one, has this id.

    Nor has the same one with a word changed: whoever answers answers what was shown.
    """
    process = list(server[:3]) if server else None
    asked = [process, request.id, request.method]
    try:
        whole = orjson.dumps([*asked, request.params], option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        # It nests deeper than any server passes on.
        whole = orjson.dumps([*asked, *place_of(request)])
    return hashlib.sha256(whole).hexdigest()[:ID_DIGITS]


def question_object(question: OpenQuestion) -> dict[str, object]:
    """Lay a question out as the status file has it, and as `attention --json` prints it."""
    is_acceptable = Decision.ACCEPT in question.decisions
    return {
        "id": question.id,
        "method": question.request.method,
        "kind": question.kind,
        "thread": question.place.thread,
        "turn": question.place.turn,
        "since_ms": question.since_ms,
        "summary": question.summary,
        "decisions": list(question.decisions),
        "questions": list(questions_of(question.request)) if is_acceptable else [],
        "required": list(required_of(question.request)) if is_acceptable else [],
    }
