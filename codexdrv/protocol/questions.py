"""What the server asks of its clients, and how it may be answered: one table, method → posture.

It asks every client that subscribed to the thread, for a token even every one that is connected,
and the first answer wins (WIRE-FACTS, "Requests from the server"). So a policy is all or nothing:
with `DECLINE` the user's own client comes too late.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from codexdrv.errors import BadInput
from codexdrv.wire.message import Refusal, Request, Response


METHOD_NOT_FOUND = -32601
"""JSON-RPC 2.0, section 5.1: we do not know the method."""

DECLINED = -32000
"""JSON-RPC 2.0, section 5.1, leaves -32000 to -32099 to whoever answers. The server reads every
code as a no; its own, -32001, means that it is overloaded, so this is another."""

Params = dict[str, Any]
Result = dict[str, Any]


class Policy(StrEnum):
    """Who answers the server's questions."""

    #: Answer nothing: the user's own client does.
    LEAVE = "leave"
    #: Answer each kind in its own shape; grant nothing.
    DECLINE = "decline"


class Decision(StrEnum):
    """What an operator may say to a question."""

    ACCEPT = "accept"
    #: The like is not asked again, as long as the thread is loaded.
    ACCEPT_FOR_SESSION = "accept-for-session"
    #: It is not done, and the turn goes on.
    DECLINE = "decline"
    #: It is not done, and the turn ends; for an elicitation: nobody has decided.
    CANCEL = "cancel"


YES = (Decision.ACCEPT, Decision.ACCEPT_FOR_SESSION)


class Said(NamedTuple):
    """What an operator says beside the decision."""

    #: Which question of the request, and the answer; a question may have several.
    replies: tuple[tuple[str, str], ...] = ()
    content: dict[str, Any] | None = None


class No(NamedTuple):
    """Every result would give something: only an error declines."""

    message: str


class Silence(NamedTuple):
    """Every answer would do harm, an error too: whoever can answer is asked as well."""


Grant = Callable[[Params, Said], Result]
"""The result that says yes to these params, and to no more."""


class Posture(NamedTuple):
    """How one kind of question stands to us."""

    #: A word for people.
    kind: str
    #: What declines it, on every version that has the method.
    declines: Result | No | Silence
    #: What an operator may decide beside `decline`; empty: no operator can answer.
    decisions: Mapping[Decision, Result | Grant] = {}
    #: Who alone can answer, where no operator can.
    others: str = ""
    #: The server tells every subscriber when it is settled (`serverRequest/resolved`).
    is_resolved: bool = True
    #: Settled or not, the server does not wait longer; milliseconds.
    lapses_ms: int | None = None


GIVES_UP_MS = 10_000
"""So long the server waits for a token or a time; for an attestation not even that."""


def _grant_permissions(scope: str) -> Grant:
    def grant(params: Params, _: Said) -> Result:
        # Exactly what was asked, null being what was not.
        asked = params.get("permissions")
        wanted = asked if isinstance(asked, dict) else {}
        granted = {name: each for name, each in wanted.items() if each is not None}
        return {"permissions": granted, "scope": scope}

    return grant


def _give_replies(_: Params, said: Said) -> Result:
    answers: dict[str, dict[str, list[str]]] = {}
    for question, reply in said.replies:
        answers.setdefault(question, {"answers": []})["answers"].append(reply)
    return {"answers": answers}


def _give_content(params: Params, said: Said) -> Result:
    if params.get("mode") == "url":
        return {"action": "accept"}
    return {"action": "accept", "content": said.content or {}}


def _give_content_for_session(params: Params, said: Said) -> Result:
    return _give_content(params, said) | {"_meta": {"persist": "session"}}


def _decide(accept: str, for_session: str, cancel: str) -> dict[Decision, Result]:
    words = (Decision.ACCEPT, Decision.ACCEPT_FOR_SESSION, Decision.CANCEL)
    said = zip(words, (accept, for_session, cancel), strict=True)
    return {word: {"decision": decision} for word, decision in said}


_DECISIONS = _decide("accept", "acceptForSession", "cancel")
_FIRST_API = _decide("approved", "approved_for_session", "abort")

POSTURES: dict[str, Posture] = {
    # "cancel" would end the turn. `availableDecisions` does not name "decline"; it is taken.
    "item/commandExecution/requestApproval": Posture(
        "command", {"decision": "decline"}, _DECISIONS
    ),
    "item/fileChange/requestApproval": Posture("file change", {"decision": "decline"}, _DECISIONS),
    # What is granted of what was asked for: nothing.
    "item/permissions/requestApproval": Posture(
        "permissions",
        {"permissions": {}},
        {
            Decision.ACCEPT: _grant_permissions("turn"),
            Decision.ACCEPT_FOR_SESSION: _grant_permissions("session"),
        },
    ),
    "item/tool/requestUserInput": Posture(
        "input", {"answers": {}}, {Decision.ACCEPT: _give_replies}
    ),
    # Also how the server asks whether a tool may be called. "cancel" says that nobody decided.
    "mcpServer/elicitation/request": Posture(
        "elicitation",
        {"action": "decline"},
        {
            Decision.ACCEPT: _give_content,
            Decision.ACCEPT_FOR_SESSION: _give_content_for_session,
            Decision.CANCEL: {"action": "cancel"},
        },
    ),
    # The model reads it.
    "item/tool/call": Posture(
        "tool call",
        {
            "success": False,
            "contentItems": [{"type": "inputText", "text": "No client is there to run this tool."}],
        },
        others="the client that brought the tool into the thread",
        is_resolved=False,
    ),
    # Nothing is run, and the turn goes on: "abort" would end it, and "denied", a word in 0.144.5
    # and an object later, has no shape for all. Asked for threads of the first API only.
    "applyPatchApproval": Posture("file change", {"decision": "timed_out"}, _FIRST_API),
    "execCommandApproval": Posture("command", {"decision": "timed_out"}, _FIRST_API),
    # Every connection is asked, and an error would end the turn of the client that has the tokens.
    "account/chatgptAuthTokens/refresh": Posture(
        "tokens",
        Silence(),
        others="the client that holds the account's tokens",
        is_resolved=False,
        lapses_ms=GIVES_UP_MS,
    ),
    "attestation/generate": Posture(
        "attestation",
        No("codexdrv has nothing to attest."),
        others="a client that offers attestation",
        is_resolved=False,
        lapses_ms=GIVES_UP_MS,
    ),
    # The thread was set up to live by its client's clock. Ours would be a guess; without, the
    # turn fails and quotes this.
    "currentTime/read": Posture(
        "time",
        No("codexdrv is not the clock of this thread."),
        others="the client whose clock the thread lives by",
        is_resolved=False,
        lapses_ms=GIVES_UP_MS,
    ),
}
"""Every request of every version's schema."""


def posture_of(method: str) -> Posture:
    """Look a method up; one that nobody has heard of is refused as such, by its own name."""
    unknown = No(f"codexdrv does not know {method}.")
    return POSTURES.get(method) or Posture("unknown", unknown, others="a client that knows it")


def answer(request: Request, policy: Policy) -> Response | Refusal | None:
    """Answer a request of the server as the policy says; None is no answer at all."""
    match policy:
        case Policy.LEAVE:
            return None
        case Policy.DECLINE:
            return _decline(request)


def offered(request: Request) -> tuple[Decision, ...]:
    """Say what an operator may decide; nothing where no operator can answer."""
    posture = posture_of(request.method)
    if not posture.decisions:
        return ()
    refused = _not_offered(request.params) if posture.kind in {"command", "elicitation"} else set()
    possible = {*posture.decisions, Decision.DECLINE} - refused
    return tuple(word for word in Decision if word in possible)


def decide(request: Request, decision: Decision, said: Said) -> Response:
    """Answer a request as an operator has decided; `asked.check_said` has looked at the words.

    Raises:
        BadInput: this cannot be said to it.
    """
    posture = posture_of(request.method)
    possible = offered(request)
    if not possible:
        raise BadInput(
            f"No operator can answer this ({posture.kind}).",
            hint=f"Only {posture.others} can.",
        )
    if decision not in possible:
        words = ", ".join(possible)
        raise BadInput(
            f"To this ({posture.kind}) nobody can say {decision}.", hint=f"Say one of: {words}."
        )
    if decision is Decision.DECLINE:
        return Response(request.id, posture.declines)
    result = posture.decisions[decision]
    return Response(request.id, result(request.params, said) if callable(result) else result)


def _not_offered(params: Params) -> set[Decision]:
    """Say what this very request cannot be answered with, though others of its kind can."""
    available = params.get("availableDecisions")
    if isinstance(available, list):
        # Of what gives something; a decline is taken, named or not.
        return {decision for decision in YES if _DECISIONS[decision]["decision"] not in available}
    if params.get("kind") == "humanCommand":
        return {Decision.ACCEPT_FOR_SESSION}
    if "mode" not in params:
        return set()
    meta = params.get("_meta")
    persist = meta.get("persist") if isinstance(meta, dict) else None
    refused = set() if "session" in _words(persist) else {Decision.ACCEPT_FOR_SESSION}
    # The other ways of asking want a proof, or are drawn by the client that knows them.
    return refused if params["mode"] in ("form", "url") else refused | {Decision.ACCEPT}


def _words(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _decline(request: Request) -> Response | Refusal | None:
    posture = POSTURES.get(request.method)
    match posture_of(request.method).declines:
        case Silence():
            return None
        case No(message):
            code = METHOD_NOT_FOUND if posture is None else DECLINED
            return Refusal(request.id, code, message, None)
        case result:
            return Response(request.id, result)
