"""What the end of a request means for the input that it carried: the one table of answers."""

from codexdrv.errors import CodexdrvError, LinkError, Refused
from codexdrv.ids import TurnId
from codexdrv.protocol.refusals import Meaning, read_refusal
from codexdrv.rules.lifecycle import News
from codexdrv.rules.ownership import Fact


REFUSALS: dict[Meaning, tuple[Fact, str]] = {
    Meaning.OVERLOADED: (Fact.HELD, "the server is overloaded and admitted nothing"),
    Meaning.DRAINING: (Fact.HELD, "the server is shutting down and takes no new work"),
    Meaning.ACTIVE_WRITER: (Fact.HELD, "another server process has this thread open"),
    Meaning.ARCHIVED: (Fact.HELD, "the thread is archived"),
    Meaning.NOT_STEERABLE: (Fact.HELD, "the running turn takes no input (compaction, review)"),
    Meaning.NO_ACTIVE_TURN: (Fact.HELD, "the turn to steer had ended"),
    Meaning.OTHER_TURN: (Fact.HELD, "another turn runs than the one to steer"),
    Meaning.NOT_LOADED: (Fact.HELD, "the thread is not loaded any more"),
    Meaning.NO_ROLLOUT: (Fact.HELD, "the server has no record of the thread"),
    Meaning.UNKNOWN_THREAD: (Fact.HELD, "the server does not know the thread"),
    Meaning.NOT_SUPPORTED: (Fact.HELD, "this server does not know the request"),
    Meaning.INPUT_TOO_LARGE: (Fact.REFUSED, "the message is over the server's limit for one input"),
    Meaning.EMPTY_INPUT: (Fact.REFUSED, "the server takes no empty message"),
    Meaning.UNKNOWN: (Fact.IN_DOUBT, "the server refused with words that we do not know"),
}
"""What a refusal means → the fact; all but the last prove that nothing was admitted."""


def read_answer(answer: TurnId | CodexdrvError) -> News:
    """Turn the end of a `turn/start` or `turn/steer` into a fact.

    Args:
        answer: the turn that the server named, or why there is none.
    """
    if isinstance(answer, Refused):
        meaning = read_refusal(answer).meaning
        fact, why = REFUSALS[meaning]
        said = f": {answer.message[:200]}" if meaning is Meaning.UNKNOWN else ""
        return News(fact, str(meaning), why + said)
    if isinstance(answer, LinkError):
        if not answer.maybe_written:
            return News(Fact.HELD, answer.code, "not one byte was written before the link failed")
        return News(Fact.IN_DOUBT, answer.code, "the request was written, and no answer came")
    if isinstance(answer, CodexdrvError):
        return News(Fact.IN_DOUBT, answer.code, "the answer could not be read")
    return News(Fact.ANSWERED, "answered", "the server took the request", turn=answer)
