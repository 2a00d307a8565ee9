import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codexdrv.errors import Refused
from codexdrv.protocol.refusals import TABLE, Meaning, Understood, read_refusal


# The same examples every time, however slow the machine.
STEADY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
THREAD = "01a22d0b-8d92-7622-a61b-221d9b94b56e"
NAMED = "00000000-0000-0000-0000-000000000000"
RUNNING = "01a22d0b-909c-7d01-ba0e-970fd953ac96"

# Every sentence that WIRE-FACTS.md quotes, of all versions, with the code it came with.
SENTENCES = [
    (-32001, "Server overloaded; retry later.", Understood(Meaning.OVERLOADED)),
    (-32001, "", Understood(Meaning.OVERLOADED)),
    (
        -32600,
        "Server is draining; retry after reconnecting",
        Understood(Meaning.DRAINING),
    ),
    (-32600, f"thread {THREAD} already has an active writer", Understood(Meaning.ACTIVE_WRITER)),
    (-32600, f"session {THREAD} is archived", Understood(Meaning.ARCHIVED)),
    (
        -32600,
        f"session {THREAD} is archived. Run `codex unarchive {THREAD}` to unarchive it first.",
        Understood(Meaning.ARCHIVED),
    ),
    (
        -32603,
        "failed to submit turn input: ActiveTurnNotSteerable { turn_kind: Compact }",
        Understood(Meaning.NOT_STEERABLE, turn_kind="compact"),
    ),
    (
        -32603,
        "failed to submit turn input: ActiveTurnNotSteerable { turn_kind: Review }",
        Understood(Meaning.NOT_STEERABLE, turn_kind="review"),
    ),
    (
        -32600,
        "cannot steer a review turn",
        Understood(Meaning.NOT_STEERABLE, turn_kind="review"),
    ),
    (
        -32600,
        "cannot steer a compact turn",
        Understood(Meaning.NOT_STEERABLE, turn_kind="compact"),
    ),
    (-32600, "no active turn to steer", Understood(Meaning.NO_ACTIVE_TURN)),
    (-32600, "no active turn to interrupt", Understood(Meaning.NO_ACTIVE_TURN)),
    (
        -32600,
        f"expected active turn id `{NAMED}` but found `{RUNNING}`",
        Understood(Meaning.OTHER_TURN, RUNNING),
    ),
    (
        -32600,
        f"expected active turn id {NAMED} but found {RUNNING}",
        Understood(Meaning.OTHER_TURN, RUNNING),
    ),
    (-32600, "input must not be empty", Understood(Meaning.EMPTY_INPUT)),
    (-32600, f"thread not found: {THREAD}", Understood(Meaning.NOT_LOADED)),
    (-32600, f"thread not loaded: {THREAD}", Understood(Meaning.UNKNOWN_THREAD)),
    (-32600, f"no rollout found for thread id {THREAD}", Understood(Meaning.NO_ROLLOUT)),
    (
        -32600,
        f"thread {THREAD} is not materialized yet; includeTurns is unavailable",
        Understood(Meaning.NO_ROLLOUT),
    ),
    (-32601, "list_turns is not supported yet", Understood(Meaning.NOT_SUPPORTED)),
    (-32601, "thread/items/list is not supported yet", Understood(Meaning.NOT_SUPPORTED)),
    (
        -32600,
        "Invalid request: unknown variant `nope/nope`, expected one of `initialize`, …",
        Understood(Meaning.NOT_SUPPORTED),
    ),
    (-32601, "Method not found", Understood(Meaning.NOT_SUPPORTED)),
    # Not met by one who greets once, or our own mistake: nothing is claimed of them.
    (-32600, "Not initialized", Understood(Meaning.UNKNOWN)),
    (-32600, "Already initialized", Understood(Meaning.UNKNOWN)),
    (-32600, "Invalid request: missing field `threadId`", Understood(Meaning.UNKNOWN)),
]

STRUCTURED = [
    (
        -32602,
        {"input_error_code": "input_too_large"},
        Understood(Meaning.INPUT_TOO_LARGE),
    ),
    (-32600, {"reason": "serverShuttingDown"}, Understood(Meaning.DRAINING)),
    (
        -32600,
        {
            "message": "cannot steer a review turn",
            "codexErrorInfo": {"activeTurnNotSteerable": {"turnKind": "review"}},
        },
        Understood(Meaning.NOT_STEERABLE, turn_kind="review"),
    ),
    (
        -32600,
        {"codexErrorInfo": {"activeTurnNotSteerable": {"turnKind": "Compact"}}},
        Understood(Meaning.NOT_STEERABLE, turn_kind="compact"),
    ),
    (
        -32600,
        {"codexErrorInfo": {"activeTurnNotSteerable": {}}},
        Understood(Meaning.NOT_STEERABLE),
    ),
]


@pytest.mark.field_report("openai/codex#46878")
@pytest.mark.parametrize(("code", "words", "understood"), SENTENCES)
def test_each_sentence_has_its_meaning(code, words, understood):
    assert read_refusal(Refused(code, words)) == understood


@pytest.mark.parametrize(("code", "data", "understood"), STRUCTURED)
@pytest.mark.parametrize("words", ["", "words of tomorrow", f"thread not found: {THREAD}"])
def test_structured_data_is_believed_before_words(code, data, understood, words):
    assert read_refusal(Refused(code, words, data)) == understood


def test_each_meaning_is_met():
    met = {understood.meaning for _, _, understood in SENTENCES + STRUCTURED}
    assert met == set(Meaning)


def test_each_row_of_the_table_is_needed():
    for row in TABLE:
        rest = [other for other in TABLE if other is not row]
        assert any(
            read_with(TABLE, code, words) != read_with(rest, code, words)
            for code, words, _ in SENTENCES
        ), row


def read_with(table, code, words):
    found = (row.meaning for row in table if row.rpc_code == code and re.search(row.words, words))
    return next(found, Meaning.UNKNOWN)


@pytest.mark.parametrize(
    ("code", "words"),
    [(code, words) for code, words, understood in SENTENCES if understood.meaning != "unknown"],
)
def test_the_same_words_with_a_code_that_nobody_knows_prove_nothing(code, words):
    assert read_refusal(Refused(-32099, words)) == Understood(Meaning.UNKNOWN)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "words of tomorrow",
        "Thread not found: x",
        f"the thread not found: {THREAD}",
        "we expected active turn id X but found nothing",
        f"expected active turn id {NAMED} but found X",
        "cannot steer a turn",
        "stream disconnected before completion",
    ],
)
def test_words_that_nobody_knows_are_unknown(words):
    assert read_refusal(Refused(-32600, words)) == Understood(Meaning.UNKNOWN)
    assert read_refusal(Refused(-32603, words)) == Understood(Meaning.UNKNOWN)


@pytest.mark.parametrize(
    "data",
    [
        None,
        7,
        "serverShuttingDown",
        ["serverShuttingDown"],
        {},
        {"reason": None},
        {"reason": ["serverShuttingDown"]},
        {"input_error_code": "input_of_tomorrow"},
        {"codexErrorInfo": None},
        {"codexErrorInfo": "contextWindowExceeded"},
        {"codexErrorInfo": {"activeTurnNotSteerable": None}},
    ],
)
def test_data_that_nobody_knows_leaves_it_to_the_words(data):
    assert read_refusal(Refused(-32600, "no active turn to steer", data)).meaning == (
        Meaning.NO_ACTIVE_TURN
    )
    assert read_refusal(Refused(-32600, "words of tomorrow", data)).meaning is Meaning.UNKNOWN


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
        | st.fixed_dictionaries(
            {}, optional={"reason": inner, "codexErrorInfo": inner, "activeTurnNotSteerable": inner}
        )
    ),
    max_leaves=8,
)


@STEADY
@given(st.sampled_from([-32001, -32600, -32601, -32602, -32603, 0]), st.text(), JSON)
def test_every_refusal_has_a_meaning(code, words, data):
    assert read_refusal(Refused(code, words, data)).meaning in Meaning
