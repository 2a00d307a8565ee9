"""What a question of the server asks, in words that are safe to show, and when it is settled.

What is asked comes from a model, or from whoever wrote what the model has read: it is shown on an
operator's terminal, so nothing in it may move the cursor, hide a part, or grow without end.
Nothing here raises: a question that cannot be read is still one.
"""

import json
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

from codexdrv.errors import BadInput
from codexdrv.ids import ThreadId, TurnId
from codexdrv.protocol.questions import Decision, Params, Said, posture_of
from codexdrv.wire.message import Notification, Request, RequestId


HEAD_CHARACTERS, TAIL_CHARACTERS = 400, 200
"""Of one text that is shown: the end, too, lest it be pushed out of sight."""
PARTS_MAX = 10
"""Of a list that is shown: files, questions, options."""


class Place(NamedTuple):
    """Where a question belongs, as far as it says."""

    thread: ThreadId | None
    turn: TurnId | None
    item: str | None


class Settled(NamedTuple):
    """A notification that settles questions of a thread: those that match all that it names."""

    thread: str
    #: By `serverRequest/resolved`.
    request: RequestId | None = None
    turn: str | None = None
    item: str | None = None


def place_of(request: Request) -> Place:
    """Read where a question belongs."""
    params = request.params
    thread = _text(params, "threadId") or _text(params, "conversationId")
    turn, item = _text(params, "turnId"), _text(params, "itemId") or _text(params, "callId")
    return Place(ThreadId(thread) if thread else None, TurnId(turn) if turn else None, item)


def settles(news: Notification) -> Settled | None:
    """Read what a notification settles, if it settles any question."""
    params = news.params
    thread = _text(params, "threadId")
    if thread is None:
        return None
    match news.method:
        case "serverRequest/resolved":
            number = params.get("requestId")
            return Settled(thread, number) if type(number) in {int, str} else None
        case "turn/completed":
            turn = _text(_object(params, "turn"), "id")
            return Settled(thread, turn=turn) if turn else None
        case "item/completed":
            item = _text(_object(params, "item"), "id")
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


def read_files(news: Notification) -> tuple[str, str] | None:
    """Read of an item that begins to change files: its id, and which; questions do not say it."""
    item = _object(news.params, "item")
    identity, changes = _text(item, "id"), item.get("changes")
    is_change = news.method == "item/started" and item.get("type") == "fileChange"
    if not is_change or identity is None or not isinstance(changes, list):
        return None
    paths = [str(change.get("path")) for change in changes if isinstance(change, dict)]
    return identity, _listed(paths, ", ")


def summarize(request: Request, files: str = "") -> str:
    """Say what is asked, in one line.

    Args:
        request: the question.
        files: for a change of files that its item named, which; as `read_files` says it.
    """
    said = SUMMARIES.get(request.method, _nothing)(request.params)
    if request.method == "item/fileChange/requestApproval":
        said = [f"change {files or 'files; it does not say which'}", *said]
    reason = _text(request.params, "reason")
    return ", ".join(said + ([f"because {shown(reason)}"] if reason else []))


def questions_of(request: Request) -> tuple[str, ...]:
    """Name the questions that `accept` must reply to."""
    return tuple(_inputs(request.params)) if posture_of(request.method).kind == "input" else ()


def required_of(request: Request) -> tuple[str, ...]:
    """Name the members that the content of an `accept` must have."""
    if posture_of(request.method).kind != "elicitation":
        return ()
    required = _object(request.params, "requestedSchema").get("required")
    return tuple(map(str, required)) if isinstance(required, list) else ()


def check_said(request: Request, decision: Decision, said: Said) -> None:
    """Make sure that what an operator says is what the question wants, no more and no less.

    Raises:
        BadInput: it is not.
    """
    is_yes = decision in {Decision.ACCEPT, Decision.ACCEPT_FOR_SESSION}
    kind = posture_of(request.method).kind
    if said.replies and not (is_yes and kind == "input"):
        raise BadInput(f"A reply goes with accept, and not to this ({kind}).")
    if said.content is not None and not (is_yes and kind == "elicitation"):
        raise BadInput(f"Content goes with accept, and not to this ({kind}).")
    if not is_yes:
        return
    missing = [name for name in required_of(request) if name not in (said.content or {})]
    if missing:
        names = _listed(missing, ", ")
        raise BadInput(f"Accepted, it wants content with: {names}.", hint="Give it as --content.")
    if kind == "input":
        _check_replies(_inputs(request.params), said)


def shown(text: str) -> str:
    """Make a text fit for a terminal: cut in its middle, and with nothing that does not print."""
    cut = len(text) - HEAD_CHARACTERS - TAIL_CHARACTERS
    if cut > 0:
        head, tail = text[:HEAD_CHARACTERS], text[-TAIL_CHARACTERS:]
        return f"{_escape(head)} [… {cut} characters …] {_escape(tail)}"
    return _escape(text)


def _escape(text: str) -> str:
    # A backslash, too: else nobody could tell `\n` from a line that ends.
    return "".join(
        each if each.isprintable() and each != "\\" else each.encode("unicode_escape").decode()
        for each in text
    )


def _command(params: Params) -> list[str]:
    network, command = _object(params, "networkApprovalContext"), _text(params, "command")
    said = []
    if network:
        reach = f"{network.get('protocol')}://{network.get('host')}"
        said.append(f"reach {shown(reach)}")
    if command:
        verb = "type into a command that runs" if params.get("kind") == "writeStdin" else "run"
        said.append(f"{verb}: {shown(command)}")
    said += [f"in {shown(place)}"] if (place := _text(params, "cwd")) else []
    more = params.get("additionalPermissions")
    return said + ([f"with more permissions: {_compact(more)}"] if more else [])


def _first_command(params: Params) -> list[str]:
    words = params.get("command")
    command = shlex.join(map(str, words)) if isinstance(words, list) else str(words)
    return _command({"command": command, "cwd": params.get("cwd")})


def _file_change(params: Params) -> list[str]:
    root = _text(params, "grantRoot")
    return [f"and from then on anything under {shown(root)}"] if root else []


def _first_patch(params: Params) -> list[str]:
    files = _listed([*_object(params, "fileChanges")], ", ")
    return [f"change {files}", *_file_change(params)]


def _permissions(params: Params) -> list[str]:
    wanted = {name: each for name, each in _object(params, "permissions").items() if each}
    where = [f"in {shown(place)}"] if (place := _text(params, "cwd")) else []
    return [f"permissions: {_compact(wanted)}", *where]


def _input(params: Params) -> list[str]:
    lines = []
    for name, question in _inputs(params).items():
        labels = _labels(question)
        options = f" ({_listed(labels, ' | ')})" if labels else ""
        lines.append(f"{shown(name)}: {shown(str(question.get('question')))}{options}")
    return lines[:PARTS_MAX]


def _elicitation(params: Params) -> list[str]:
    said = [f"{shown(str(params.get('serverName')))}: {shown(str(params.get('message')))}"]
    fields = [*_object(_object(params, "requestedSchema"), "properties")]
    said += [f"wants {_listed(fields, ', ')}"] if fields else []
    url, arguments = _text(params, "url"), _object(params, "_meta").get("tool_params")
    said += [f"open {shown(url)}"] if url else []
    return said + ([f"with {_compact(arguments)}"] if arguments else [])


def _tool_call(params: Params) -> list[str]:
    return [f"{shown(str(params.get('tool')))} {_compact(params.get('arguments'))}"]


def _nothing(_: Params) -> list[str]:
    return []


SUMMARIES: dict[str, Callable[[Params], list[str]]] = {
    "item/commandExecution/requestApproval": _command,
    "item/fileChange/requestApproval": _file_change,
    "item/permissions/requestApproval": _permissions,
    "item/tool/requestUserInput": _input,
    "mcpServer/elicitation/request": _elicitation,
    "item/tool/call": _tool_call,
    "applyPatchApproval": _first_patch,
    "execCommandApproval": _first_command,
}
"""Method → what is asked; of the others the kind says it all."""


def _check_replies(inputs: dict[str, Params], said: Said) -> None:
    replied = dict(said.replies)
    known = _listed([*inputs], ", ")
    if replied.keys() != inputs.keys():
        raise BadInput(
            f"It wants a reply to each of these, and to no other: {known}.",
            hint="Give each as --reply QUESTION=TEXT.",
        )
    for name, reply in said.replies:
        labels = _labels(inputs[name])
        if labels and inputs[name].get("isOther") is False and reply not in labels:
            options = _listed(labels, ", ")
            raise BadInput(f"{shown(name)} can be replied to with one of: {options}.")


def _inputs(params: Params) -> dict[str, Params]:
    """Read the questions of a request for input, by id."""
    asked = params.get("questions")
    found = [each for each in asked if isinstance(each, dict)] if isinstance(asked, list) else []
    return {str(each.get("id")): each for each in found}


def _labels(question: Params) -> list[str]:
    options = question.get("options")
    if not isinstance(options, list):
        return []
    return [str(each.get("label")) for each in options if isinstance(each, dict)]


def _listed(texts: list[str], separator: str) -> str:
    more = len(texts) - PARTS_MAX
    rest = [f"and {more} more"] if more > 0 else []
    return separator.join([*map(shown, texts[:PARTS_MAX]), *rest])


def _compact(value: Any) -> str:
    try:
        return shown(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    except (RecursionError, ValueError):
        return "(too deep to show)"


def _text(holder: Params, name: str) -> str | None:
    value = holder.get(name)
    return value if isinstance(value, str) else None


def _object(holder: Params, name: str) -> Params:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}
