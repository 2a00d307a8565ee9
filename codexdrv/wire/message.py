"""JSON-RPC messages as codex speaks them: no `jsonrpc` member, ids are integers or strings."""

from typing import Any, NamedTuple

import orjson

from codexdrv.errors import MalformedFrame


REFUSAL_MESSAGE_BYTES_MAX = 16_384
"""16 KiB of UTF-8: journal and logs keep it, and a server may quote a whole input in it."""

RequestId = int | str
"""Keeps its JSON type: `1` and `"1"` are two ids."""


class Request(NamedTuple):
    """A call that wants an answer, ours or the server's."""

    id: RequestId
    method: str
    params: dict[str, Any]


class Notification(NamedTuple):
    """News that nobody answers."""

    method: str
    params: dict[str, Any]


class Response(NamedTuple):
    """The answer to a request that was carried out."""

    id: RequestId
    result: Any


class Refusal(NamedTuple):
    """The answer to a request that was not; the wire calls it `error`."""

    id: RequestId
    code: int
    message: str
    data: Any


Message = Request | Notification | Response | Refusal
"""Tell them apart by type only: tuples of two types are equal when their fields are."""


def decode(frame: bytes) -> Message:
    """Read one frame; members that no message has are ignored.

    Raises:
        MalformedFrame: it is no message. The sentence never quotes the frame.
    """
    body = _parse(frame)
    is_call = "method" in body
    is_answer = "result" in body or "error" in body
    if is_call and not is_answer:
        return _read_call(body)
    if is_answer and not is_call:
        return _read_answer(body)
    raise MalformedFrame("A frame is neither a call nor an answer, or claims to be both.")


def encode(message: Message) -> bytes:
    """Write one frame.

    Raises:
        TypeError: a value that JSON cannot hold, such as a lone surrogate.
    """
    body: dict[str, Any]
    match message:
        case Request(request_id, method, params):
            body = {"id": request_id, "method": method, "params": params}
        case Notification(method, params):
            # Left out when empty: `initialized`, the one we send, has none in the protocol.
            body = {"method": method, "params": params} if params else {"method": method}
        case Response(request_id, result):
            body = {"id": request_id, "result": result}
        case Refusal(request_id, code, text, data):
            error = {"code": code, "message": text}
            body = {"id": request_id, "error": error if data is None else error | {"data": data}}
    return orjson.dumps(body)


def _parse(frame: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(frame)
    except orjson.JSONDecodeError as error:
        reason = error.msg
    else:
        if isinstance(body, dict):
            return body
        reason = f"a {type(body).__name__} where an object belongs"
    # Raised out here because orjson's error holds the whole document, and a chain would keep it.
    raise MalformedFrame(f"A frame of {len(frame)} bytes is no message: {reason}.")


def _read_call(body: dict[str, Any]) -> Request | Notification:
    method = body["method"]
    if not isinstance(method, str):
        raise MalformedFrame("The method of a message is no string.")
    params = body.get("params")
    if params is None:
        params = {}
    elif not isinstance(params, dict):
        raise MalformedFrame("The params of a message are no object.")
    if "id" in body:
        return Request(_read_id(body), method, params)
    return Notification(method, params)


def _read_answer(body: dict[str, Any]) -> Response | Refusal:
    request_id = _read_id(body)
    if "error" not in body:
        return Response(request_id, body["result"])
    if "result" in body:
        raise MalformedFrame("An answer has both a result and an error.")
    error = body["error"]
    if not isinstance(error, dict):
        raise MalformedFrame("The error of an answer is no object.")
    code, text = error.get("code"), error.get("message")
    if type(code) is not int or not isinstance(text, str):
        raise MalformedFrame("The error of an answer lacks an integer code or a message.")
    return Refusal(request_id, code, _cut(text), error.get("data"))


def _read_id(body: dict[str, Any]) -> RequestId:
    request_id = body.get("id")
    # Not isinstance: `True` is an int, equals 1, and would answer the wrong caller.
    if type(request_id) is int or type(request_id) is str:
        return request_id
    raise MalformedFrame("The id of a message is neither an integer nor a string.")


def _cut(text: str) -> str:
    # By characters first, so that a huge message is never encoded as a whole.
    head = text[:REFUSAL_MESSAGE_BYTES_MAX].encode()
    return head[:REFUSAL_MESSAGE_BYTES_MAX].decode(errors="ignore")
