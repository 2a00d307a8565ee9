"""What a question of the server asks, in one line that is safe to show.

Nothing here raises: a question that cannot be read is still one.
"""

import shlex
from collections.abc import Callable
from itertools import islice

from codexdrv.protocol.asked import inputs_in, labels_in, object_in, text_in
from codexdrv.protocol.printable import PARTS_MAX, compact, limited, listed, quoted
from codexdrv.protocol.questions import Params
from codexdrv.wire.message import Notification, Request


FILE_CHANGE = "item/fileChange/requestApproval"


def summarize(request: Request, files: str = "") -> str:
    """Say what is asked, in one line; what others wrote stands in “quotes” that it cannot hold.

    Args:
        request: the question.
        files: for a change of files that its item named, which; as `read_files` says it.
    """
    said = SUMMARIES.get(request.method, _nothing)(request.params)
    if request.method == FILE_CHANGE:
        said = [f"change {files or 'files; it does not say which'}", *said]
    reason = text_in(request.params, "reason")
    return limited(", ".join(said + ([f"because {quoted(reason)}"] if reason else [])))


def read_files(news: Notification) -> tuple[str, str] | None:
    """Read of an item that begins to change files: its id, and which; questions do not say it."""
    return _files_of(object_in(news.params, "item")) if news.method == "item/started" else None


def read_turn_files(result: object) -> dict[str, str]:
    """Read the same of the turn that the answer to `show_turn` has: by the item's id."""
    page = object_in(result if isinstance(result, dict) else {}, "initialTurnsPage")
    items = [item for turn in _objects(page.get("data")) for item in _objects(turn.get("items"))]
    return dict(found for item in items if (found := _files_of(item)) is not None)


def _files_of(item: Params) -> tuple[str, str] | None:
    identity, changes = text_in(item, "id"), item.get("changes")
    if item.get("type") != "fileChange" or identity is None or not isinstance(changes, list):
        return None
    return identity, listed([text_in(each, "path") or "?" for each in _objects(changes)])


def _objects(value: object) -> list[Params]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _command(params: Params) -> list[str]:
    network, command = object_in(params, "networkApprovalContext"), text_in(params, "command")
    said = []
    if network:
        said.append(f"reach {_quote(network, 'host')} by {_quote(network, 'protocol')}")
    if command:
        verb = "type into a command that runs" if params.get("kind") == "writeStdin" else "run"
        said.append(f"{verb} {quoted(command)}")
    more = object_in(params, "additionalPermissions")
    return [*said, *_where(params), *([f"with more permissions: {compact(more)}"] if more else [])]


def _first_command(params: Params) -> list[str]:
    words = params.get("command")
    found = [each for each in words if isinstance(each, str)] if isinstance(words, list) else []
    return [f"run {quoted(shlex.join(found))}", *_where(params)]


def _file_change(params: Params) -> list[str]:
    root = text_in(params, "grantRoot")
    return [f"and from then on anything under {quoted(root)}"] if root else []


def _first_patch(params: Params) -> list[str]:
    files = listed([*object_in(params, "fileChanges")])
    return [f"change {files}", *_file_change(params)]


def _permissions(params: Params) -> list[str]:
    wanted = {name: each for name, each in object_in(params, "permissions").items() if each}
    return [f"permissions: {compact(wanted)}", *_where(params)]


def _input(params: Params) -> list[str]:
    lines = []
    for name, question in islice(inputs_in(params).items(), PARTS_MAX):
        labels = labels_in(question)
        options = f" ({listed(labels)})" if labels else ""
        lines.append(f"{quoted(name)}: {_quote(question, 'question')}{options}")
    return lines


def _elicitation(params: Params) -> list[str]:
    said = [f"{_quote(params, 'serverName')} says {_quote(params, 'message')}"]
    fields = [*object_in(object_in(params, "requestedSchema"), "properties")]
    said += [f"wants {listed(fields)}"] if fields else []
    said += [f"open {_quote(params, 'url')}"] if "url" in params else []
    arguments = object_in(object_in(params, "_meta"), "tool_params")
    return said + ([f"with {compact(arguments)}"] if arguments else [])


def _tool_call(params: Params) -> list[str]:
    return [f"{_quote(params, 'tool')} with {compact(params.get('arguments'))}"]


def _nothing(_: Params) -> list[str]:
    return []


def _where(params: Params) -> list[str]:
    return [f"in {_quote(params, 'cwd')}"] if text_in(params, "cwd") else []


def _quote(params: Params, name: str) -> str:
    return quoted(text_in(params, name) or "?")


SUMMARIES: dict[str, Callable[[Params], list[str]]] = {
    "item/commandExecution/requestApproval": _command,
    FILE_CHANGE: _file_change,
    "item/permissions/requestApproval": _permissions,
    "item/tool/requestUserInput": _input,
    "mcpServer/elicitation/request": _elicitation,
    "item/tool/call": _tool_call,
    "applyPatchApproval": _first_patch,
    "execCommandApproval": _first_command,
}
"""Method → what is asked; of the others the kind says it all."""
