import json

import pytest

from codexdrv.ids import DeliveryId, ThreadId, TurnId
from codexdrv.journal.dispatch import Dispatch, Mark, Peer, Step, encode_dispatch
from codexdrv.journal.rows import RecordedFact
from codexdrv.rules.lifecycle import Delivery, News, Order, Outcome, Standing, WhenBusy
from codexdrv.rules.ownership import Fact, Phase
from codexdrv.story import tell_briefly, tell_story, tell_witness, utc


NOON_MS = 1_796_040_000_000
THREAD = ThreadId("01a22d0e-0f35-77c0-817a-bf6a3ea3eb32")
DELIVERY = Delivery(
    Order(DeliveryId("m"), THREAD, None, None, "hi", WhenBusy.STEER, 1, NOON_MS),
    Standing(Phase.SURFACED),
)
DISPATCH = Dispatch(
    route="start",
    steered=None,
    life=3,
    generation=7,
    number=1,
    peer=Peer(42, 1, "boot"),
    mark=Mark(None, None, 0),
    trail=(
        Step("fence", "nobody knows what the thread does", NOON_MS + 2),
        Step("start", "the thread is quiet", NOON_MS + 3),
    ),
)


def fact(news: News, after_ms: int, *, life: int | None = 3) -> RecordedFact:
    return RecordedFact(news, 1, NOON_MS + after_ms, life, 7)


def test_a_time_is_utc_with_milliseconds():
    assert utc(NOON_MS + 5) == "2026-11-30T12:00:00.005Z"


def test_the_decisions_that_led_to_an_attempt_come_before_it_in_their_order():
    news = News(Fact.DISPATCHED, attempt=1, dispatch=encode_dispatch(DISPATCH))
    assert tell_briefly(DELIVERY, [fact(news, 4)]) == [
        "  +0.000 s  admitted: it is on disk",
        "  +0.002 s  decided to fence: nobody knows what the thread does",
        "  +0.003 s  decided to start: the thread is quiet",
        "  +0.004 s  dispatched: turn/start goes out, attempt 1, server 42 (ticks 1, boot boot)",
    ]


def test_a_server_that_could_not_be_identified_is_told_so():
    dispatch = encode_dispatch(DISPATCH._replace(peer=None, trail=()))
    told = tell_briefly(DELIVERY, [fact(News(Fact.DISPATCHED, attempt=2, dispatch=dispatch), 4)])
    assert told[-1].endswith("turn/start goes out, attempt 2, server unknown")


def test_the_whole_story_says_who_wrote_each_fact():
    turn = TurnId("t")
    facts = [
        fact(News(Fact.IN_DOUBT, "link_lost", "the link was lost"), 1_000),
        fact(News(Fact.RESOLVED_SURFACED, "operator", "I saw it", turn=turn), 61_000, life=None),
        fact(News(Fact.TURN_ENDED, outcome=Outcome.COMPLETED), 62_500),
    ]
    assert tell_story(DELIVERY, facts) == [
        "2026-11-30T12:00:00.000Z    +0.000 s  admitted: it is on disk",
        "2026-11-30T12:00:01.000Z    +1.000 s  in doubt: the link was lost (life 3, generation 7)",
        "2026-11-30T12:01:01.000Z   +61.000 s  resolved surfaced: I saw it (a command)",
        "2026-11-30T12:01:02.500Z   +62.500 s  turn ended: completed (life 3, generation 7)",
    ]


SEEN = {
    "record": {"is_readable": True, "sightings": [], "ghosts": [], "is_noted": True},
    "history": {"is_complete": True, "sightings": [], "has_anchor": True},
    "fence": "quiet",
    "fate": "alive",
    "quiet_s": 2.04,
    "is_sole_writer": True,
    "can_save": True,
    "answered_turn": None,
}


def test_what_the_witnesses_said_comes_before_what_it_proved():
    news = News(Fact.ABSENT, "quiet", "nothing shows it", witness=json.dumps(SEEN))
    assert tell_briefly(DELIVERY, [fact(news, 9)])[1:] == [
        (
            "  +0.009 s  asked: the record says no; history says no; the fence says quiet; the"
            " server that it was sent to lives; 2.0 s after a first look that was quiet, too"
        ),
        "  +0.009 s  absent: nothing shows it",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"is_readable": False}, "the record cannot say"),
        ({"sightings": [[None, True]]}, "the record shows it"),
        ({"sightings": [[None, True], [None, True]]}, "the record shows it 2 times"),
        ({"ghosts": [None]}, "the record has its text without its id"),
    ],
)
def test_each_answer_of_a_witness_has_its_words(changes, said):
    seen = SEEN | {"record": SEEN["record"] | changes, "quiet_s": None}
    assert tell_witness(json.dumps(seen)).startswith(f"{said}; history says no; ")


def test_a_thread_that_is_not_loaded_and_a_host_that_was_restarted_are_told():
    told = tell_witness(json.dumps(SEEN | {"fence": "not_loaded", "fate": "host_restarted"}))
    assert "the fence says not loaded" in told
    assert "the host was restarted since it was sent" in told
