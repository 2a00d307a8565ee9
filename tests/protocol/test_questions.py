"""Every question of every version has an answer that the version takes, and that gives nothing."""

import json

import pytest
from jsonschema import Draft7Validator

from codexdrv.protocol.questions import DECLINED, DECLINES, METHOD_NOT_FOUND, No, Policy, answer
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
ANSWERED = sorted(DECLINES.keys() - UNANSWERED)
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


def test_the_table_has_the_questions_of_all_versions_and_no_other():
    assert DECLINES.keys() == {method for known in QUESTIONS.values() for method in known}


@pytest.mark.parametrize("method", [*DECLINES, UNKNOWN])
def test_what_is_left_to_the_user_gets_no_answer(method):
    assert ask(method, Policy.LEAVE) is None


@pytest.mark.parametrize("method", ANSWERED)
def test_what_is_declined_gets_a_result_or_a_refusal_that_says_why(method):
    answered = ask(method)
    match DECLINES[method]:
        case No(message):
            assert type(answered) is Refusal
            assert answered == Refusal(0, DECLINED, message, None)
            assert message.startswith("codexdrv ")
        case result:
            assert type(answered) is Response
            assert answered == Response(0, result)


def test_only_what_has_no_result_that_declines_is_refused():
    assert {method for method in DECLINES if type(ask(method)) is Refusal} == ONLY_REFUSED


def test_only_what_another_client_alone_can_answer_is_left_to_it():
    assert {method for method in DECLINES if ask(method) is None} == UNANSWERED


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("method", ANSWERED)
@pytest.mark.parametrize("number", [0, 7, "7", ""])
def test_an_id_keeps_its_type(method, policy, number):
    answered = ask(method, policy, number)
    if policy is Policy.DECLINE:
        assert (answered.id, type(answered.id)) == (number, type(number))
    else:
        assert answered is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("method", DECLINES)
def test_a_result_is_valid_in_every_version_that_asks_for_it(version, method):
    schema = QUESTIONS[version].get(method)
    answered = ask(method)
    if schema is not None and type(answered) is Response:
        Draft7Validator(schema).validate(answered.result)


@pytest.mark.parametrize("method", sorted(DECLINES.keys() - ONLY_REFUSED - UNANSWERED))
def test_no_result_gives_anything_or_ends_the_turn(method):
    said = list(leaves(ask(method).result))
    assert not any(value is True for value in said)
    assert not [word for word in map(str, said) if word.startswith(GIVES + ENDS_THE_TURN)]


def test_an_empty_subset_of_the_permissions_is_granted():
    assert ask("item/permissions/requestApproval").result == {"permissions": {}}


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
