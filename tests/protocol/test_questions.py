"""Every question of every version has an answer that the version takes, and that gives nothing."""

import json

import pytest
from jsonschema import Draft7Validator

from codexdrv.errors import BadInput
from codexdrv.protocol.questions import (
    DECLINED,
    METHOD_NOT_FOUND,
    POSTURES,
    Decision,
    No,
    Policy,
    Said,
    answer,
    decide,
    offered,
    posture_of,
)
from codexdrv.wire.message import Refusal, Request, Response, decode, encode
from tests.acceptance.binaries import VERSIONS
from tests.recording.record import SCHEMAS


QUESTIONS = {
    version: json.loads((SCHEMAS / version / "questions.json").read_text("utf-8"))
    for version in VERSIONS
}
"""Version → method → schema of the result."""

UNKNOWN = "question/of/tomorrow"
PARAMS = {"threadId": "019a0000-0000-7000-8000-000000000001", "command": "rm -rf /"}

ONLY_REFUSED = {
    # All that these results hold is a secret, or a time that we would make up.
    "attestation/generate",
    "currentTime/read",
}
# Every connection is asked, and one that refuses ends the turn of the client that has the tokens.
UNANSWERED = {"account/chatgptAuthTokens/refresh"}
ANSWERED = sorted(POSTURES.keys() - UNANSWERED)
GIVES = ("accept", "approve", "allow", "apply", "session", "always")
ENDS_THE_TURN = ("cancel", "abort")


def ask(method, policy=Policy.DECLINE, number=0):
    return answer(Request(number, method, PARAMS), policy)


def leaves(value):
    """Yield every value and every key in a JSON value."""
    match value:
        case dict():
            for key, inner in value.items():
                yield key
                yield from leaves(inner)
        case list():
            for inner in value:
                yield from leaves(inner)
        case _:
            yield value


@pytest.mark.field_report("sortie#874", "obsidian-yolo#504")
def test_the_table_has_the_questions_of_all_versions_and_no_other():
    assert POSTURES.keys() == {method for known in QUESTIONS.values() for method in known}


@pytest.mark.parametrize("method", [*POSTURES, UNKNOWN])
def test_what_is_left_to_the_user_gets_no_answer(method):
    assert ask(method, Policy.LEAVE) is None


@pytest.mark.parametrize("method", ANSWERED)
def test_what_is_declined_gets_a_result_or_a_refusal_that_says_why(method):
    answered = ask(method)
    match POSTURES[method].declines:
        case No(message):
            assert type(answered) is Refusal
            assert answered == Refusal(0, DECLINED, message, None)
            assert message.startswith("codexdrv ")
        case result:
            assert type(answered) is Response
            assert answered == Response(0, result)


def test_only_what_has_no_result_that_declines_is_refused():
    assert {method for method in POSTURES if type(ask(method)) is Refusal} == ONLY_REFUSED


def test_only_what_another_client_alone_can_answer_is_left_to_it():
    assert {method for method in POSTURES if ask(method) is None} == UNANSWERED


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("method", ANSWERED)
@pytest.mark.parametrize("number", [0, 7, "7", ""])
def test_an_id_keeps_its_type(method, policy, number):
    answered = ask(method, policy, number)
    if policy is Policy.DECLINE:
        assert (answered.id, type(answered.id)) == (number, type(number))
    else:
        assert answered is None


@pytest.mark.field_report("sortie#874", "obsidian-yolo#504")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("method", POSTURES)
def test_a_result_is_valid_in_every_version_that_asks_for_it(version, method):
    schema = QUESTIONS[version].get(method)
    answered = ask(method)
    if schema is not None and type(answered) is Response:
        Draft7Validator(schema).validate(answered.result)


@pytest.mark.parametrize("method", sorted(POSTURES.keys() - ONLY_REFUSED - UNANSWERED))
def test_no_result_gives_anything_or_ends_the_turn(method):
    said = list(leaves(ask(method).result))
    assert not any(value is True for value in said)
    assert not [word for word in map(str, said) if word.startswith(GIVES + ENDS_THE_TURN)]


@pytest.mark.field_report("sortie#874", "obsidian-yolo#504")
def test_an_empty_subset_of_the_permissions_is_granted():
    assert ask("item/permissions/requestApproval").result == {"permissions": {}}


@pytest.mark.field_report("sortie#874", "obsidian-yolo#504")
def test_a_question_that_nobody_knows_is_refused_by_its_name():
    answered = ask(UNKNOWN, number="q")
    assert type(answered) is Refusal
    assert (answered.id, answered.code) == ("q", METHOD_NOT_FOUND)
    assert UNKNOWN in answered.message


@pytest.mark.parametrize("method", [*ANSWERED, UNKNOWN])
def test_an_answer_says_nothing_of_what_was_asked(method):
    for value in PARAMS.values():
        assert value.encode() not in encode(ask(method))


@pytest.mark.parametrize("method", [*ANSWERED, UNKNOWN])
def test_an_answer_goes_over_the_wire_unchanged(method):
    answered = ask(method)
    assert decode(encode(answered)) == answered


# What an operator may say


ONLY_OTHERS = {
    "item/tool/call",
    "account/chatgptAuthTokens/refresh",
    "attestation/generate",
    "currentTime/read",
}
ASKED = {
    "threadId": PARAMS["threadId"],
    "permissions": {"network": {"enabled": True}, "fileSystem": None},
    "questions": [{"id": "which", "question": "Which?"}],
    "mode": "form",
    "_meta": {"persist": ["session", "always"]},
}
SAID = Said((("which", "this"), ("which", "that")), {"name": "me"})
WAYS = [
    (method, decision) for method in POSTURES for decision in offered(Request(0, method, ASKED))
]
YES = (Decision.ACCEPT, Decision.ACCEPT_FOR_SESSION)


def say(method, decision, said=SAID, **params):
    return decide(Request(7, method, ASKED | params), decision, said)


def test_an_operator_can_answer_all_that_needs_no_client_of_its_own():
    assert {method for method in POSTURES if not offered(Request(0, method, ASKED))} == ONLY_OTHERS
    assert {method for method, posture in POSTURES.items() if posture.others} == ONLY_OTHERS


@pytest.mark.parametrize("method", sorted(ONLY_OTHERS | {UNKNOWN}))
def test_what_no_operator_can_answer_says_who_can(method):
    with pytest.raises(BadInput) as caught:
        say(method, Decision.DECLINE)
    assert posture_of(method).others in caught.value.hint


@pytest.mark.parametrize(("method", "decision"), WAYS)
@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_an_operator_says_is_valid_in_every_version_that_asks(version, method, decision):
    """FIELD-REPORTS, sortie#874, obsidian-yolo#504: ten kinds of request, each in its shape."""
    schema = QUESTIONS[version].get(method)
    response = say(method, decision)
    assert response.id == 7
    if schema is not None:
        Draft7Validator(schema).validate(response.result)


@pytest.mark.parametrize(("method", "decision"), WAYS)
def test_only_a_yes_gives_anything(method, decision):
    said = [str(each) for each in leaves(say(method, decision).result)]
    gives = [word for word in said if word.startswith((*GIVES, "True", "turn", "this", "me"))]
    assert bool(gives) is (decision in YES)


@pytest.mark.parametrize(("method", "decision"), WAYS)
def test_only_a_cancel_ends_the_turn(method, decision):
    said = [str(each) for each in leaves(say(method, decision).result)]
    assert bool([word for word in said if word.startswith(ENDS_THE_TURN)]) is (
        decision is Decision.CANCEL
    )


def test_an_operator_declines_as_the_policy_does():
    for method in POSTURES.keys() - ONLY_OTHERS:
        assert say(method, Decision.DECLINE).result == ask(method).result


def test_permissions_are_granted_as_they_were_asked_for_and_no_longer_than_was_said():
    """FIELD-REPORTS, sortie#874, obsidian-yolo#504: echoing a permission request grants it all."""
    method = "item/permissions/requestApproval"
    wanted = {"network": {"enabled": True}}
    assert say(method, Decision.ACCEPT).result == {"permissions": wanted, "scope": "turn"}
    for_session = say(method, Decision.ACCEPT_FOR_SESSION).result
    assert for_session == {"permissions": wanted, "scope": "session"}
    assert say(method, Decision.DECLINE).result == {"permissions": {}}
    with pytest.raises(BadInput, match="nobody can say cancel"):
        say(method, Decision.CANCEL)


@pytest.mark.parametrize("permissions", [None, [], "all", {}])
def test_permissions_that_cannot_be_read_are_none(permissions):
    granted = say("item/permissions/requestApproval", Decision.ACCEPT, permissions=permissions)
    assert granted.result == {"permissions": {}, "scope": "turn"}


def test_every_reply_goes_to_its_question():
    given = say("item/tool/requestUserInput", Decision.ACCEPT).result
    assert given == {"answers": {"which": {"answers": ["this", "that"]}}}


def test_an_elicitation_gets_its_content_and_a_session_where_the_server_offers_one():
    method = "mcpServer/elicitation/request"
    assert say(method, Decision.ACCEPT).result == {"action": "accept", "content": {"name": "me"}}
    assert say(method, Decision.ACCEPT, Said()).result == {"action": "accept", "content": {}}
    assert say(method, Decision.ACCEPT, mode="url").result == {"action": "accept"}
    lasting = say(method, Decision.ACCEPT_FOR_SESSION).result
    assert lasting["_meta"] == {"persist": "session"}
    for meta in (None, {}, {"persist": "always"}, {"persist": ["always"]}):
        with pytest.raises(BadInput, match="accept-for-session"):
            say(method, Decision.ACCEPT_FOR_SESSION, _meta=meta)
    assert say(method, Decision.ACCEPT_FOR_SESSION, _meta={"persist": "session"})


@pytest.mark.parametrize("mode", ["openai/userVerification", "openai/form", "openaiForm", "later"])
def test_what_only_its_own_client_can_draw_or_prove_can_be_declined(mode):
    request = Request(0, "mcpServer/elicitation/request", ASKED | {"mode": mode})
    assert Decision.ACCEPT not in offered(request)
    assert {Decision.DECLINE, Decision.CANCEL} <= {*offered(request)}


def test_a_checkpoint_for_a_human_is_for_one_command():
    request = Request(0, "item/commandExecution/requestApproval", {"kind": "humanCommand"})
    assert offered(request) == (Decision.ACCEPT, Decision.DECLINE, Decision.CANCEL)


@pytest.mark.parametrize(
    ("available", "yes"),
    [
        (["accept", "acceptForSession", "cancel"], {Decision.ACCEPT, Decision.ACCEPT_FOR_SESSION}),
        (["accept", {"acceptWithExecpolicyAmendment": {}}, "cancel"], {Decision.ACCEPT}),
        (["acceptForSession"], {Decision.ACCEPT_FOR_SESSION}),
        ([], set()),
        ("acceptForSession", {Decision.ACCEPT, Decision.ACCEPT_FOR_SESSION}),
        (None, {Decision.ACCEPT, Decision.ACCEPT_FOR_SESSION}),
    ],
)
def test_a_yes_is_one_that_the_server_names_where_it_names_any(available, yes):
    params = {"availableDecisions": available}
    request = Request(0, "item/commandExecution/requestApproval", params)
    assert {*offered(request)} == yes | {Decision.DECLINE, Decision.CANCEL}
