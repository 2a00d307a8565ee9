"""What is said of a delivery: that nobody looks at it yet, or that its thread waits itself."""

import json

import pytest

from codexdrv.cli.shapes import Scene, delivery_object, delivery_sentence, explain, one_line
from codexdrv.rules.lifecycle import Delivery, Outcome, Standing
from codexdrv.rules.ownership import Phase
from codexdrv.snapshot import FILE_NAME
from tests.fakes.orders import OTHER_THREAD, THREAD, TURN, make_order
from tests.fakes.pictures import QUESTION, make_picture


UP = Scene(is_up=True, problem=None, heads={THREAD: "m1"})
DOWN = Scene(is_up=False, problem=None, heads={THREAD: "m1"})
AWAY = Scene(is_up=True, problem="No server listens at /x.sock.", heads={THREAD: "m1"})
ASKING = UP._replace(asked=frozenset({THREAD}))
QUEUED = Delivery(make_order("m1"), Standing(Phase.QUEUED))
SECOND = Delivery(make_order("m2"), Standing(Phase.QUEUED))


@pytest.mark.parametrize(
    ("delivery", "scene", "reason", "sentence"),
    [
        (QUEUED, UP, None, "m1 is queued."),
        (QUEUED, DOWN, "no_supervisor", "m1 is queued: no supervisor is running."),
        (QUEUED, AWAY, "no_server", "m1 is queued: No server listens at /x.sock."),
        (SECOND, UP, "behind", "m2 is queued: it waits behind m1, which came before."),
        (SECOND, AWAY, "no_server", "m2 is queued: No server listens at /x.sock."),
        (SECOND, DOWN, "no_supervisor", "m2 is queued: no supervisor is running."),
    ],
)
def test_a_queued_delivery_says_what_it_waits_for(delivery, scene, reason, sentence):
    assert delivery_object(delivery, scene)["reason"] == reason
    assert delivery_sentence(delivery, scene) == sentence
    assert (f"queued/{reason}" in one_line(delivery, scene)) is (reason is not None)


def test_the_reason_that_a_lane_wrote_stands_while_it_looks_at_the_delivery():
    held = QUEUED._replace(standing=Standing(Phase.QUEUED, reason="busy", why="a turn runs"))
    assert explain(held, UP) == held
    assert explain(held, DOWN).standing.reason == "no_supervisor"


@pytest.mark.parametrize("phase", [each for each in Phase if each is not Phase.QUEUED])
@pytest.mark.parametrize("scene", [UP, DOWN, AWAY])
def test_every_other_phase_speaks_for_itself(phase, scene):
    delivery = Delivery(make_order("m2"), Standing(phase, reason="because", why="it is so"))
    assert explain(delivery, scene) == delivery


# A question of the server is open


@pytest.mark.parametrize(
    ("standing", "said"),
    [
        (
            Standing(Phase.PENDING, reason="answered", why="the server took the request"),
            "is on its way: the server took the request; the thread's turn waits for an answer",
        ),
        (
            Standing(Phase.QUEUED, reason="busy", why="a turn runs"),
            "is queued: a turn runs; the thread's turn waits for an answer",
        ),
        (Standing(Phase.QUEUED), "is queued: the thread's turn waits for an answer"),
        (
            Standing(Phase.UNCERTAIN, reason="unknown", why="nobody knows"),
            "is in doubt: nobody knows; the thread's turn waits for an answer",
        ),
        (
            Standing(Phase.SURFACED, turn=TURN, outcome=Outcome.RUNNING, stored=True, why="seen"),
            f"is in the thread and stored: turn {TURN}, which waits for an answer",
        ),
    ],
)
def test_what_waits_for_an_answer_says_so_and_where_to_look(standing, said):
    delivery = Delivery(make_order("m1"), standing)
    assert delivery_sentence(delivery, ASKING) == f"m1 {said}: `codexdrv attention`."
    body = delivery_object(delivery, ASKING)
    assert body["why"].endswith("the thread's turn waits for an answer: `codexdrv attention`")
    assert body["reason"] == standing.reason


@pytest.mark.parametrize(
    "delivery",
    [
        SECOND,
        Delivery(make_order("m1"), Standing(Phase.FAILED, reason="expired", why="too late")),
        Delivery(make_order("m1"), Standing(Phase.SURFACED, turn=TURN, outcome=Outcome.COMPLETED)),
        Delivery(make_order("m1", thread=OTHER_THREAD), Standing(Phase.PENDING, why="it goes")),
    ],
)
def test_what_waits_for_something_else_or_has_ended_does_not_speak_of_it(delivery):
    assert delivery_object(delivery, ASKING) == delivery_object(delivery, UP)
    assert delivery_sentence(delivery, ASKING) == delivery_sentence(delivery, UP)


@pytest.mark.parametrize(
    ("kept", "is_told"),
    [
        ({"questions": [QUESTION]}, True),
        ({"questions": [QUESTION | {"thread": None}]}, False),
        ({"questions": []}, False),
        # Another version may write anything there.
        ({"questions": {"a": 1}}, False),
        ({"questions": [1]}, False),
        # It may have been answered since.
        ({"questions": [QUESTION], "written_at_ms": 1}, False),
    ],
)
def test_a_command_reads_from_the_status_file_what_is_asked(desk, kept, is_told):
    with desk.journal() as journal:
        journal.admit(make_order("m1"))
    desk.hang_up_bell()
    (desk.state / FILE_NAME).write_text(json.dumps(make_picture(**kept)))
    assert ("waits for an answer" in desk.run("status", "m1").out) is is_told
