"""What the server asks of its clients, and how we answer: method → answer, one table.

It asks every client that subscribed to the thread, for a token even every one that is connected,
and the first answer wins (WIRE-FACTS, "Requests from the server"). So a policy is all or nothing:
with `DECLINE` the user's own client comes too late.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from codexdrv.wire.message import Refusal, Request, Response


METHOD_NOT_FOUND = -32601
"""JSON-RPC 2.0, section 5.1: we do not know the method."""

DECLINED = -32000
"""JSON-RPC 2.0, section 5.1, leaves -32000 to -32099 to whoever answers. The server reads every
code as a no; its own, -32001, means that it is overloaded, so this is another."""


class Policy(StrEnum):
    """Who answers the server's questions."""

    #: Answer nothing: the user's own client does.
    LEAVE = "leave"
    #: Answer each kind in its own shape; grant nothing.
    DECLINE = "decline"


class No(NamedTuple):
    """Every result would give something: only an error declines."""

    message: str


class Silence(NamedTuple):
    """Every answer would do harm, an error too: whoever can answer is asked as well."""


DECLINES: dict[str, dict[str, Any] | No | Silence] = {
    # "cancel" would end the turn. `availableDecisions` does not name "decline"; it is taken.
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    # What is granted of what was asked for: nothing.
    "item/permissions/requestApproval": {"permissions": {}},
    "item/tool/requestUserInput": {"answers": {}},
    # Also how the server asks whether a tool may be called. "cancel" says that nobody decided.
    "mcpServer/elicitation/request": {"action": "decline"},
    # The model reads it.
    "item/tool/call": {
        "success": False,
        "contentItems": [{"type": "inputText", "text": "No client is there to run this tool."}],
    },
    # Nothing is run, and the turn goes on: "abort" would end it, and "denied", a word in 0.144.5
    # and an object later, has no shape for all. Asked for threads of the first API only.
    "applyPatchApproval": {"decision": "timed_out"},
    "execCommandApproval": {"decision": "timed_out"},
    # Every connection is asked, and an error would end the turn of the client that has the tokens.
    "account/chatgptAuthTokens/refresh": Silence(),
    "attestation/generate": No("codexdrv has nothing to attest."),
    # The thread was set up to live by its client's clock. Ours would be a guess; without, the
    # turn fails and quotes this.
    "currentTime/read": No("codexdrv is not the clock of this thread."),
}
"""The method → the result that declines it, on every version that has the method."""


def answer(request: Request, policy: Policy) -> Response | Refusal | None:
    """Answer a request of the server as the policy says; None is no answer at all."""
    match policy:
        case Policy.LEAVE:
            return None
        case Policy.DECLINE:
            return _decline(request)


def _decline(request: Request) -> Response | Refusal | None:
    match DECLINES.get(request.method):
        case None:
            message = f"codexdrv does not know {request.method}."
            return Refusal(request.id, METHOD_NOT_FOUND, message, None)
        case Silence():
            return None
        case No(message):
            return Refusal(request.id, DECLINED, message, None)
        case result:
            return Response(request.id, result)
