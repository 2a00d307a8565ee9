"""What the fake server does about each request, and with which words it refuses.

Each returns the result and what follows the answer; nothing has changed before that, so that a
test can have a request answered and nothing come of it.
"""

from collections.abc import Callable
from typing import Any

from codexdrv.errors import Refused
from tests.fakes.threads import FakeTurn, Kind, mint, user_message


Outcome = tuple[Any, Callable[[], None]]


class NeverAnswered(Exception):
    """The real server never answers this."""


def nothing() -> None:
    """Nothing follows."""


def read_thread(server, connection, params) -> Outcome:
    thread = _known(server, params)
    if not thread.turns and not thread.is_loaded:
        raise _not_loaded(params)
    if not params["includeTurns"]:
        return {"thread": thread.shape()}, nothing
    _require_turns(thread)
    turns = [turn.shape("full", thread.unseen) for turn in thread.turns]
    return {"thread": thread.shape(turns)}, nothing


def resume_thread(server, connection, params) -> Outcome:
    identity = params["threadId"]
    thread = server.threads.get(identity)
    if thread is None or thread.is_ephemeral or not thread.turns:
        raise Refused(-32600, f"no rollout found for thread id {identity}")
    if thread.is_archived:
        raise Refused(
            -32600,
            f"session {identity} is archived. Run `codex unarchive {identity}` to unarchive it"
            " first.",
        )
    if thread.is_held_elsewhere:
        raise Refused(-32600, f"thread {identity} already has an active writer")
    thread.is_loaded = True
    thread.unseen = set()
    thread.subscribers.add(connection)
    answer = {"thread": thread.shape(), "model": "scripted"}
    if "initialTurnsPage" in params:
        newest = thread.turns[-1].shape(params["initialTurnsPage"]["itemsView"])
        answer["initialTurnsPage"] = {"data": [newest], "nextCursor": None}
    return answer, nothing


def list_loaded(server, connection, params) -> Outcome:
    loaded = [each.id for each in server.threads.values() if each.is_loaded]
    begin = int(params["cursor"] or 0)
    end = begin + params["limit"]
    return {
        "data": loaded[begin:end],
        "nextCursor": str(end) if end < len(loaded) else None,
    }, nothing


def unsubscribe(server, connection, params) -> Outcome:
    thread = server.threads.get(params["threadId"])
    if thread is None or not thread.is_loaded:
        return {"status": "notLoaded"}, nothing
    status = "unsubscribed" if connection in thread.subscribers else "notSubscribed"
    return {"status": status}, lambda: thread.subscribers.discard(connection)


def list_items(server, connection, params) -> Outcome:
    thread = server.threads.get(params["threadId"])
    if thread is None or thread.is_ephemeral or thread.is_legacy or not thread.turns:
        raise Refused(-32601, "thread/items/list is not supported yet")
    rows = list(thread.rows())
    # Counted from the oldest, so that what is new does not move it.
    start = len(rows) - int(params.get("cursor") or len(rows))
    end = start + params["limit"]
    cursor = str(len(rows) - end) if end < len(rows) else None
    return {"data": rows[start:end], "nextCursor": cursor}, nothing


def list_turns(server, connection, params) -> Outcome:
    thread = _known(server, params)
    if thread.is_ephemeral:
        raise Refused(-32600, "ephemeral threads do not support thread/turns/list")
    if not thread.turns:
        raise Refused(
            -32600,
            f"thread {thread.id} is not materialized yet; thread/turns/list is unavailable before"
            " first user message",
        )
    start = int(params.get("cursor") or 0)
    end = start + params["limit"]
    view = params["itemsView"]
    turns = [turn.shape(view, thread.unseen) for turn in thread.turns[::-1][start:end]]
    cursor = str(end) if end < len(thread.turns) else None
    return {"data": turns, "nextCursor": cursor}, nothing


def start_turn(server, connection, params) -> Outcome:
    thread = _loaded(server, params)
    running, turn = thread.running, FakeTurn()
    text, client_id = _text(params), params.get("clientUserMessageId")
    if running is None:
        answer = {"turn": turn.shape()}
        return answer, lambda: server.take_start(thread, text, client_id=client_id, turn=turn)
    if running.kind is not Kind.REGULAR and server.is_old:
        # Answered, then dropped without a word (WIRE-FACTS, "Turns").
        return {"turn": turn.shape()}, nothing
    if running.kind is not Kind.REGULAR:
        kind = running.kind.capitalize()
        raise Refused(
            -32603,
            f"failed to submit turn input: ActiveTurnNotSteerable {{ turn_kind: {kind} }}",
        )
    # A phantom on 0.144.5: the text goes into the running turn all the same.
    answer = {"turn": running.shape() | ({"id": mint()} if server.is_old else {})}
    return answer, lambda: server.take_burst(thread, running, user_message(client_id, text))


def steer_turn(server, connection, params) -> Outcome:
    thread = _loaded(server, params)
    turn, wanted = thread.running, params["expectedTurnId"]
    if turn is None:
        raise Refused(-32600, "no active turn to steer")
    if turn.id != wanted:
        raise Refused(-32600, f"expected active turn id `{wanted}` but found `{turn.id}`")
    if turn.kind is not Kind.REGULAR:
        info = {"activeTurnNotSteerable": {"turnKind": str(turn.kind)}}
        words = f"cannot steer a {turn.kind} turn"
        raise Refused(-32600, words, {"message": words, "codexErrorInfo": info})
    if not params["input"]:
        raise Refused(-32600, "input must not be empty")
    item = user_message(params.get("clientUserMessageId"), _text(params))

    return {"turnId": turn.id}, lambda: server.take_steer(thread, turn, item)


def interrupt_turn(server, connection, params) -> Outcome:
    thread = _loaded(server, params)
    turn, wanted = thread.running, params["turnId"]
    if turn is None and server.is_old:
        raise NeverAnswered
    if turn is None:
        raise Refused(-32600, "no active turn to interrupt")
    if turn.id != wanted:
        raise Refused(-32600, f"expected active turn id {wanted} but found {turn.id}")
    return {}, lambda: server.finish(thread, "interrupted")


METHODS: dict[str, Callable[..., Outcome]] = {
    "thread/items/list": list_items,
    "thread/read": read_thread,
    "thread/resume": resume_thread,
    "thread/turns/list": list_turns,
    "thread/unsubscribe": unsubscribe,
    "thread/loaded/list": list_loaded,
    "turn/interrupt": interrupt_turn,
    "turn/start": start_turn,
    "turn/steer": steer_turn,
}


def _known(server, params):
    thread = server.threads.get(params["threadId"])
    if thread is None:
        raise _not_loaded(params)
    return thread


def _loaded(server, params):
    thread = server.threads.get(params["threadId"])
    if thread is None or not thread.is_loaded:
        raise Refused(-32600, f"thread not found: {params['threadId']}")
    return thread


def _require_turns(thread) -> None:
    if not thread.turns:
        raise Refused(-32601, "list_turns is not supported yet")


def _not_loaded(params) -> Refused:
    return Refused(-32600, f"thread not loaded: {params['threadId']}")


def _text(params) -> str:
    return "".join(part["text"] for part in params["input"])
