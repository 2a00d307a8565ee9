import re

import pytest

from codexdrv import errors
from codexdrv.errors import (
    CodexdrvError,
    DeadlinePassed,
    ExitCode,
    LinkError,
    Refused,
)


CLASSES = {
    name: thing
    for name, thing in vars(errors).items()
    if isinstance(thing, type) and issubclass(thing, CodexdrvError)
}

# DESIGN.md, "Exit codes", written out once more.
ENDS = {
    "CodexdrvError": 1,
    "CallerError": 65,
    "BadInput": 65,
    "Conflict": 65,
    "NotFound": 66,
    "NotCancellable": 1,
    "NotResolvable": 1,
    "ConfigurationError": 78,
    "JournalError": 73,
    "JournalUnsafe": 73,
    "JournalUnusable": 73,
    "JournalBusy": 75,
    "Full": 75,
    "AlreadyRunning": 75,
    "NoSupervisor": 69,
    "NoCodex": 69,
    "LinkError": 69,
    "NoServer": 69,
    "UnsafeSocket": 69,
    "LinkLost": 69,
    "ServerEnded": 69,
    "AnswerTooBig": 69,
    "DeadlinePassed": 69,
    "OutboxFull": 69,
    "PeerError": 69,
    "MalformedFrame": 69,
    "FrameTooBig": 69,
    "MalformedMessage": 69,
    "Refused": 1,
    "ServerKeepsDying": 70,
    "Bug": 1,
    "IllegalMove": 1,
    "LifeEnded": 75,
}
RETRYABLE = {*("JournalBusy", "Full", "AlreadyRunning", "NoSupervisor", "LinkError", "PeerError")}


def drawn_tree():
    """Read the tree in the module's docstring: name → name of what stands above it."""
    above, parents = [], {}
    for line in errors.__doc__.splitlines():
        found = re.match(r"((?:[│ ] {3})*)([├└]── )?(\w+)( |$)", line)
        if not found or found[3] not in CLASSES:
            continue
        depth = len(found[1] + (found[2] or "")) // 4
        above[depth:] = [found[3]]
        parents[found[3]] = above[depth - 1] if depth else None
    return parents


def test_the_drawn_tree_is_the_tree_of_the_classes():
    parents = {name: thing.__bases__[0].__name__ for name, thing in CLASSES.items()}
    assert drawn_tree() == parents | {"CodexdrvError": None}


def test_each_error_says_how_a_command_ends():
    assert {name: int(thing.exit_code) for name, thing in CLASSES.items()} == ENDS


def test_each_error_says_whether_the_same_call_may_succeed_later():
    leaves_of = tuple(CLASSES[name] for name in RETRYABLE)
    for name, thing in CLASSES.items():
        assert thing.retryable is issubclass(thing, leaves_of), name


def test_each_error_has_a_stable_word_of_its_own():
    words = [thing.code for thing in CLASSES.values()]
    assert len(set(words)) == len(words)
    assert all(re.fullmatch(r"[a-z_]+", word) for word in words)


def test_exit_codes_never_change():
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "FAILED": 1,
        "USAGE": 2,
        "IN_DOUBT": 3,
        "BAD_INPUT": 65,
        "NOT_FOUND": 66,
        "UNAVAILABLE": 69,
        "SERVER_KEEPS_DYING": 70,
        "JOURNAL": 73,
        "TRY_LATER": 75,
        "CONFIGURATION": 78,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - {"Refused"}))
def test_an_error_is_a_sentence_and_perhaps_a_hint(name):
    error = CLASSES[name]("It rains.", hint="Take a coat.")
    assert (str(error), error.message, error.hint) == ("It rains.", "It rains.", "Take a coat.")
    assert CLASSES[name]("It rains.").hint == ""


def test_a_link_error_claims_nothing_was_written_unless_told_otherwise():
    assert not LinkError("It broke.").maybe_written
    assert DeadlinePassed("It is late.", maybe_written=True).maybe_written


def test_a_refusal_keeps_what_the_server_said():
    refused = Refused(-32600, "no", {"reason": "r"})
    assert (refused.rpc_code, refused.message, refused.data) == (-32600, "no", {"reason": "r"})
    assert Refused(-32001, "no").data is None
