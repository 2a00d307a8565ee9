"""The name of a question: no other one has it, and whoever sees this one finds the same."""

from codexdrv.engine.question import OpenQuestion, identify_question, question_object
from codexdrv.protocol.asked import place_of
from codexdrv.protocol.questions import Decision
from codexdrv.wire.message import Request
from tests.engine.kit import PEER


COMMAND = "item/commandExecution/requestApproval"
PLACE = {"threadId": "t1", "turnId": "u1", "itemId": "i1"}
NEXT_SERVER = PEER._replace(start_ticks=100)


def request(number=0, method=COMMAND, **params):
    return Request(number, method, PLACE | {"command": "rm x"} | params)


def test_no_two_questions_have_one_id():
    servers = (PEER, PEER._replace(pid=1), NEXT_SERVER, PEER._replace(boot_id="other"), None)
    requests = (
        *(request(), request(1), request("0"), request(method="item/fileChange/requestApproval")),
        *(request(threadId="t2"), request(turnId="u2"), request(itemId="i2")),
        *(request(command="rm y"), request(reason="it is old"), request(cwd="/")),
    )
    named = {identify_question(each, server) for server in servers for each in requests}
    assert len(named) == len(servers) * len(requests)
    # Seen out of another namespace, it is the same process.
    elsewhere = PEER._replace(namespace="pid:[1]")
    assert identify_question(request(), PEER) == identify_question(request(), elsewhere)
    # The members of an object have no order.
    turned = Request(0, COMMAND, dict(reversed(request().params.items())))
    assert identify_question(request(), PEER) == identify_question(turned, PEER)


def test_a_question_that_nests_too_deep_has_an_id_of_its_own():
    value = []
    for _ in range(2_000):
        value = [value]
    named = {identify_question(request(number, arguments=value), PEER) for number in (0, 1)}
    assert len(named) == 2


def test_only_who_may_accept_is_told_what_a_yes_must_name():
    asked = request(method="item/tool/requestUserInput", questions=[{"id": "which"}])
    question = OpenQuestion("0123", asked, "input", place_of(asked), 1, "“which”", ())
    accept = question._replace(decisions=(Decision.ACCEPT,))
    assert question_object(accept)["questions"] == ["which"]
    assert question_object(question)["questions"] == []
