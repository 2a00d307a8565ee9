"""Where a question of the server belongs, what it wants, and when it is settled.

Nothing that reads one raises: a question that cannot be read is still one.
"""

import json
from typing import NamedTuple

from codexdrv.errors import BadInput
from codexdrv.ids import ThreadId, TurnId
from codexdrv.protocol.printable import PARTS_MAX, listed, quoted
from codexdrv.protocol.questions import YES, Decision, Params, Said, posture_of
from codexdrv.wire.message import Notification, Request, RequestId


RESOLVED = "serverRequest/resolved"
"""Somebody's answer has settled a question; whatever else does, none has."""

NAME_CHARACTERS_MAX = 80
"""Of what a yes must name, escaped: it stands in a command line that people copy."""


class Place(NamedTuple):
    """Where a question belongs, as far as it says."""

    thread: ThreadId | None
    turn: TurnId | None
    item: str | None


class Settled(NamedTuple):
    """A notification that settles questions of a thread: those that match all that it names."""

    thread: str
    #: By `RESOLVED`.
    request: RequestId | None = None
    turn: str | None = None
    item: str | None = None


class End(NamedTuple):
    """How an item or a turn has ended."""

    #: The id of the item, or of the turn.
    name: str
    status: str


def place_of(request: Request) -> Place:
    """Read where a question belongs."""
    params = request.params
    thread = text_in(params, "threadId") or text_in(params, "conversationId")
    turn, item = text_in(params, "turnId"), text_in(params, "itemId") or text_in(params, "callId")
    return Place(ThreadId(thread) if thread else None, TurnId(turn) if turn else None, item)


def settles(news: Notification) -> Settled | None:
    """Read what a notification settles, if it settles any question."""
    params = news.params
    thread = text_in(params, "threadId")
    if thread is None:
        return None
    match news.method:
        case "serverRequest/resolved":
            number = params.get("requestId")
            return Settled(thread, number) if type(number) in {int, str} else None
        case "turn/completed":
            turn = text_in(object_in(params, "turn"), "id")
            return Settled(thread, turn=turn) if turn else None
        case "item/completed":
            item = text_in(object_in(params, "item"), "id")
            return Settled(thread, item=item) if item else None
        case "thread/closed":
            return Settled(thread)
        case _:
            return None


def is_settled(request: Request, by: Settled) -> bool:
    """Say whether a question is settled by what was told."""
    place = place_of(request)
    if place.thread != by.thread:
        return False
    if by.request is not None:
        return (type(request.id), request.id) == (type(by.request), by.request)
    if by.turn is None and by.item is None:
        return True
    # Where the server tells when a question is settled, only that counts: one may outlive its item.
    if posture_of(request.method).is_resolved:
        return False
    # One that names no turn is asked in the one that runs.
    return by.item == place.item if by.item else place.turn in {by.turn, None}


def read_end(news: Notification) -> End | None:
    """Read how an item or a turn has ended, where the notification says so."""
    kinds = {"item/completed": "item", "turn/completed": "turn"}
    ended = object_in(news.params, kinds.get(news.method, ""))
    name, status = text_in(ended, "id"), text_in(ended, "status")
    return End(name, status) if name and status else None


def is_shown_by_item(request: Request) -> bool:
    """Say whether its item, or else its turn, ends as the question was answered."""
    params = request.params
    if request.method == "item/fileChange/requestApproval":
        return True
    # The others are about a part of what their item does.
    is_part = params.get("approvalId") or params.get("networkApprovalContext")
    is_whole = params.get("kind") in (None, "command") and not is_part
    return request.method == "item/commandExecution/requestApproval" and is_whole


def questions_of(request: Request) -> tuple[str, ...]:
    """Name the questions that `accept` must reply to."""
    return tuple(inputs_in(request.params)) if posture_of(request.method).kind == "input" else ()


def required_of(request: Request) -> tuple[str, ...]:
    """Name the members that the content of an `accept` must have."""
    if posture_of(request.method).kind != "elicitation":
        return ()
    required = object_in(request.params, "requestedSchema").get("required")
    names = required if isinstance(required, list) else []
    return tuple(name for name in names if isinstance(name, str))


def can_be_named(request: Request) -> bool:
    """Say whether a command line can hold all that `accept` must name."""
    questions = questions_of(request)
    names = questions + required_of(request)
    lengths = [len(json.dumps(name)) - len('""') for name in names]
    # A reply is QUESTION=TEXT.
    is_said = all(name and "=" not in name for name in questions)
    return is_said and len(names) <= PARTS_MAX and max(lengths, default=0) <= NAME_CHARACTERS_MAX


def check_said(request: Request, decision: Decision, said: Said) -> None:
    """Make sure that what an operator says is what the question wants, no more and no less.

    Raises:
        BadInput: it is not.
    """
    kind = posture_of(request.method).kind
    check_words(kind, decision, said)
    if decision not in YES:
        return
    missing = [name for name in required_of(request) if name not in (said.content or {})]
    if missing:
        names = listed(missing)
        raise BadInput(f"Accepted, it wants content with: {names}.", hint="Give it as --content.")
    if said.content is not None and request.params.get("mode") == "url":
        raise BadInput("It wants a page to be opened, and no content.", hint="Leave --content out.")
    if kind == "input":
        _check_replies(inputs_in(request.params), said)


def check_words(kind: str, decision: Decision, said: Said) -> None:
    """Make sure that replies and content are said to a kind that takes them.

    Raises:
        BadInput: they are not.
    """
    if said.replies:
        _check_place("A reply", "--reply", kind, decision, wants="input")
    if said.content is not None:
        _check_place("Content", "--content", kind, decision, wants="elicitation")


def _check_place(what: str, flag: str, kind: str, decision: Decision, *, wants: str) -> None:
    if kind != wants:
        raise BadInput(
            f"{what} goes with a question of the kind {wants}, and not to this ({kind}).",
            hint=f"Leave {flag} out.",
        )
    if decision not in YES:
        raise BadInput(
            f"{what} goes with accept, and not with {decision}.",
            hint=f"Leave {flag} out, or say --decision {Decision.ACCEPT}.",
        )


def _check_replies(inputs: dict[str, Params], said: Said) -> None:
    replied = dict(said.replies)
    known = listed([*inputs])
    if replied.keys() != inputs.keys():
        raise BadInput(
            f"It wants a reply to each of these, and to no other: {known}.",
            hint="Give each as --reply QUESTION=TEXT.",
        )
    for name, reply in said.replies:
        labels = labels_in(inputs[name])
        if labels and inputs[name].get("isOther") is False and reply not in labels:
            raise BadInput(
                f"{quoted(name)} can be replied to with one of: {listed(labels)}.",
                hint="Give one of them, word for word.",
            )


def inputs_in(params: Params) -> dict[str, Params]:
    """Read the questions of a request for input, by id."""
    asked = params.get("questions")
    found = [each for each in asked if isinstance(each, dict)] if isinstance(asked, list) else []
    return {name: each for each in found if (name := text_in(each, "id")) is not None}


def labels_in(question: Params) -> list[str]:
    """Read the options of one of them."""
    options = question.get("options")
    if not isinstance(options, list):
        return []
    found = [each for each in options if isinstance(each, dict)]
    return [label for each in found if (label := text_in(each, "label")) is not None]


def text_in(holder: Params, name: str) -> str | None:
    """Read a member that is a text."""
    value = holder.get(name)
    return value if isinstance(value, str) else None


def object_in(holder: Params, name: str) -> Params:
    """Read a member that is an object; empty, if it is none."""
    value = holder.get(name)
    return value if isinstance(value, dict) else {}
