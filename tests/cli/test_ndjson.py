"""`deliver --ndjson`: a message a line in, an object a line out."""

import json

import pytest

from codexdrv.cli.ndjson import LINE_BYTES_MAX
from tests.fakes.orders import OTHER_THREAD, THREAD
from tests.public_shapes import check


def deliver(desk, *lines, flags=()):
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    words = ("--config", str(desk.config), "deliver", "--ndjson", *flags)
    return desk.call(*words, stdin=text.encode())


def stored(desk):
    with desk.journal() as journal:
        return [(each.order.id, each.order.text) for each in journal.deliveries()]


def test_each_line_is_admitted_and_answered_in_its_order(desk):
    ran = deliver(
        desk,
        {"id": "a", "thread": THREAD, "text": "one"},
        {"id": "b", "target": "ops", "text": "two\nlines", "source": "mail"},
        {"thread": OTHER_THREAD, "text": "three", "when_busy": "wait"},
    )
    assert ran.code == 0
    assert [body["id"] for body in ran.bodies[:2]] == ["a", "mail/b"]
    assert [body["seq"] for body in ran.bodies] == [1, 2, 1]
    assert [text for _, text in stored(desk)] == ["one", "two\nlines", "three"]


def test_a_bad_line_does_not_stop_the_rest_and_is_told_by_its_number(desk):
    ran = deliver(
        desk,
        {"id": "a", "thread": THREAD, "text": "one"},
        "\n",
        "no json\n",
        {"id": "b", "thread": THREAD, "text": " "},
        {"id": "a", "thread": THREAD, "text": "another"},
        {"id": "c", "target": "nobody", "text": "x"},
        {"id": "d", "thread": THREAD, "text": "last"},
    )
    assert ran.code == 65
    errors = {body["line"]: body["error"]["code"] for body in ran.bodies if "line" in body}
    for body in ran.bodies:
        check("refused-line" if "line" in body else "delivery", body)
    assert errors == {3: "bad_input", 4: "bad_input", 5: "conflict", 6: "not_found"}
    assert [name for name, _ in stored(desk)] == ["a", "d"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([], "it is no JSON object"),
        ({"thread": THREAD, "text": "x", "tomorrow": "y"}, "the key 'tomorrow' is not known"),
        ({"thread": THREAD, "text": 7}, "'text' is no string"),
        ({"thread": THREAD}, "it has no 'text'"),
        ({"text": "x"}, "it needs either 'thread' or 'target'"),
        ({"thread": THREAD, "target": "ops", "text": "x"}, "it needs either 'thread' or 'target'"),
        ({"thread": THREAD, "text": "x", "when_busy": "never"}, "'when_busy' is not one of"),
        ({"thread": "x", "text": "x"}, "is not a thread id"),
        ({"thread": THREAD, "text": "\ud800"}, "is not valid UTF-8"),
        ({"thread": THREAD, "text": "x", "id": "a b"}, "is not a delivery id"),
    ],
)
def test_a_line_that_cannot_be_taken_says_why(desk, line, said):
    ran = deliver(desk, line)
    assert ran.code == 65
    assert said in ran.body["error"]["message"]
    assert ran.body["error"]["hint"]
    assert stored(desk) == []


def test_a_line_without_an_end_beyond_the_limit_is_one_bad_line(desk):
    good = {"thread": THREAD, "text": "good"}
    ran = deliver(desk, "x" * (LINE_BYTES_MAX + 7) + "\n", good)
    assert ran.bodies[0]["line"] == 1
    assert ran.bodies[1]["phase"] == "queued"


def test_a_line_that_comes_again_is_a_duplicate(desk):
    line = {"id": "a", "thread": THREAD, "text": "one"}
    ran = deliver(desk, line, line)
    assert (ran.code, [body["duplicate"] for body in ran.bodies]) == (0, [False, True])


def test_what_the_command_line_says_holds_for_lines_that_do_not_say_it(desk):
    ran = deliver(
        desk,
        {"id": "a", "thread": THREAD, "text": "one"},
        {"id": "b", "thread": THREAD, "text": "two", "when_busy": "steer"},
        flags=("--when-busy", "wait", "--expires", "60"),
    )
    assert ran.code == 0
    with desk.journal() as journal:
        orders = [each.order for each in journal.deliveries()]
    assert [order.when_busy for order in orders] == ["wait", "steer"]
    assert all(order.expires_at_ms == order.admitted_at_ms + 60_000 for order in orders)


@pytest.mark.parametrize(
    "words",
    [["--thread", THREAD], ["--target", "ops"], ["--id", "x"], ["text"], ["--wait", "surfaced"]],
)
def test_it_goes_with_no_flag_that_is_about_one_message(desk, words):
    ran = desk.run("deliver", "--ndjson", *words)
    assert ran.code == 2
    assert ran.sentence.startswith("--ndjson goes with no other flag")


def test_an_empty_input_is_no_error(desk):
    ran = deliver(desk)
    assert (ran.code, ran.out) == (0, "")
