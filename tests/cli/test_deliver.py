"""`deliver`: on disk when it exits 0, refused with its own sentence otherwise."""

import json
import re
import signal
from itertools import product

import pytest

from codexdrv.cli.deliver import STORED_TIMEOUT_S, judge
from codexdrv.cli.message import TEXT_BYTES_MAX, TEXT_SCALARS_MAX, check_text
from codexdrv.errors import BadInput, ExitCode
from codexdrv.journal.journal import Writer
from codexdrv.rules.lifecycle import Delivery, Outcome, Standing, WhenBusy
from codexdrv.rules.ownership import Fact, Phase
from tests.fakes.orders import (
    NOW_MS,
    OTHER_THREAD,
    THREAD,
    TURN,
    admit_in,
    make_news,
    make_order,
)


HEAVY = {
    *("anyio", "asyncio", "structlog", "tenacity", "orjson", "websockets", "psutil"),
    *("dataclasses", "codexdrv.engine", "codexdrv.driver", "supervisor"),
}
WITH_MODULES = """
import sys
from codexdrv.cli.main import main
code = main(sys.argv[1:])
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""
WITH_CTRL_C = """
import signal, sys
from codexdrv.cli.main import main
# A shell that starts pytest in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def stored_orders(desk):
    with desk.journal() as journal:
        return [delivery.order for delivery in journal.deliveries()]


def deliver(desk, *words):
    return desk.run("deliver", "--thread", THREAD, *words)


# Admission


def test_a_message_is_on_disk_when_it_exits_0(desk):
    ran = deliver(desk, "--id", "m1", "hello")
    assert (ran.code, ran.out) == (0, "m1 is queued: no supervisor is running.\n")
    (order,) = stored_orders(desk)
    assert (order.id, order.thread, order.text, order.seq) == ("m1", THREAD, "hello", 1)


def test_the_object_of_a_delivery_says_everything(desk):
    body = deliver(desk, "--id", "m1", "--json", "hello").body
    assert TIME.fullmatch(body["admitted_at"])
    assert body["changed_at"] == body["admitted_at"]
    del body["admitted_at"], body["changed_at"]
    assert body == {
        "id": "m1",
        "thread": THREAD,
        "target": None,
        "source": None,
        "seq": 1,
        "phase": "queued",
        "outcome": "received",
        "stored": False,
        "late": False,
        "duplicate": False,
        "turn": None,
        "supervisor": "down",
        "reason": "no_supervisor",
        "why": "no supervisor is running",
        "attempts": 0,
    }


def test_an_id_is_made_where_none_is_given_and_a_source_goes_before_it(desk):
    minted, other = (deliver(desk, "--json", "hello").body["id"] for _ in range(2))
    assert UUID7.fullmatch(minted)
    assert minted != other
    body = deliver(desk, "--source", "mail", "--id", "4711", "--json", "hello").body
    assert (body["id"], body["source"]) == ("mail/4711", "mail")
    from_mail = deliver(desk, "--source", "mail", "--json", "hello").body["id"]
    assert UUID7.fullmatch(from_mail.removeprefix("mail/"))


def test_a_thread_id_is_taken_in_any_case(desk):
    assert desk.run("deliver", "--thread", THREAD.upper(), "--json", "x").body["thread"] == THREAD


@pytest.mark.parametrize(
    ("words", "thread", "when_busy"),
    [
        (["--target", "ops"], THREAD, WhenBusy.STEER),
        (["--target", "calm"], OTHER_THREAD, WhenBusy.WAIT),
        (["--target", "calm", "--when-busy", "interrupt"], OTHER_THREAD, WhenBusy.INTERRUPT),
        (["--thread", OTHER_THREAD], OTHER_THREAD, WhenBusy.STEER),
        (["--thread", THREAD, "--when-busy", "wait"], THREAD, WhenBusy.WAIT),
    ],
)
def test_the_wish_for_a_busy_thread_is_the_callers_else_the_targets(desk, words, thread, when_busy):
    assert desk.run("deliver", *words, "hello").code == 0
    (order,) = stored_orders(desk)
    assert (order.thread, order.when_busy) == (thread, when_busy)


def test_a_supervisor_that_is_up_is_rung_and_one_that_is_down_is_spoken_of(desk):
    down = deliver(desk, "hello")
    assert down.code == 0
    assert down.sentence == "no supervisor is running; the message waits on disk."
    ringer = desk.hang_up_bell()
    up = deliver(desk, "--json", "hello")
    assert (up.code, up.err, up.body["supervisor"]) == (0, "", "up")
    assert ringer.recv(1) == b""


# What the message is


@pytest.mark.parametrize(
    "text", ["  not trimmed\n\n", "\tx", "a\r\nb", "\ufeffBOM", "-5", "--json", "--", "-- x"]
)
def test_a_text_is_taken_as_it_is_after_two_dashes(desk, text):
    assert deliver(desk, "--", text).code == 0
    assert [order.text for order in stored_orders(desk)] == [text]


RAW = b"\xef\xbb\xbfBOM, NUL \0, CRLF \r\n, \xf0\x9f\x98\x80 and no end of line"


def test_a_file_and_standard_input_are_kept_byte_for_byte(desk):
    (desk.root / "body").write_bytes(RAW)
    assert deliver(desk, "--file", str(desk.root / "body")).code == 0
    assert desk.call("deliver", "--target", "ops", "-", stdin=RAW).code == 0
    assert [order.text.encode() for order in stored_orders(desk)] == [RAW, RAW]


def test_the_longest_message_is_taken(desk):
    text = "\U0001f600" * TEXT_SCALARS_MAX
    (desk.root / "body").write_text(text)
    assert deliver(desk, "--file", str(desk.root / "body")).code == 0
    assert stored_orders(desk)[0].text == text


# What is refused


def test_a_repeated_request_is_a_duplicate_and_stores_nothing(desk):
    first = deliver(desk, "--id", "m1", "--json", "hello").body
    again = deliver(desk, "--id", "m1", "--json", "--when-busy", "wait", "hello")
    assert again.code == 0
    assert again.body == {**first, "duplicate": True}
    said = deliver(desk, "--id", "m1", "hello").out
    assert (
        said
        == "m1 is queued: no supervisor is running. It was here before: nothing new was stored.\n"
    )
    assert len(stored_orders(desk)) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--thread", THREAD, "--id", "m1", "hello\n"],
        ["--thread", OTHER_THREAD, "--id", "m1", "hello"],
        ["--target", "ops", "--id", "m1", "hello"],
    ],
)
def test_the_same_id_for_anything_else_is_a_conflict(desk, words):
    deliver(desk, "--id", "m1", "hello")
    ran = desk.run("deliver", *words)
    assert ran.code == 65
    assert ran.sentence == "The id 'm1' stands for another message or another thread."
    assert len(stored_orders(desk)) == 1


def test_a_duplicate_that_waits_for_nothing_does_not_ask_for_a_supervisor(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.SURFACED)
    ran = deliver(desk, "--id", "m1", "hello")
    assert (ran.code, ran.err) == (0, "")
    assert "in the thread" in ran.out


BAD = {
    "empty": (["--thread", THREAD, ""], "The message is empty or blank."),
    "blank": (["--thread", THREAD, " \t\r\n\u2003"], "The message is empty or blank."),
    "surrogate": (
        ["--thread", THREAD, "gr\udcfcn"],
        "The message is not valid UTF-8 at character 3.",
    ),
    "id": (
        ["--thread", THREAD, "--id", "a b", "hello"],
        "'a b' is not a delivery id: 1 to 200 of A-Z a-z 0-9 . _ : @ / -.",
    ),
    "empty id": (
        ["--thread", THREAD, "--id", "", "hello"],
        "'' is not a delivery id: 1 to 200 of A-Z a-z 0-9 . _ : @ / -.",
    ),
    "thread": (
        ["--thread", "ops", "hello"],
        "'ops' is not a thread id: a thread id is a UUID.",
    ),
    "source": (
        ["--thread", THREAD, "--source", "a/b", "hello"],
        "'a/b' is not a source: 1 to 100 of A-Z a-z 0-9 . _ : @ -.",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_its_own_sentence_before_anything_is_stored(desk, name):
    words, sentence = BAD[name]
    ran = desk.run("deliver", *words)
    assert (ran.code, ran.out, ran.sentence) == (65, "", sentence)
    assert not desk.state.exists()


BAD_FILES = {
    "empty": (b"", "The message is empty or blank."),
    "not UTF-8": (b"gr\xfcn", "The message is not valid UTF-8 at byte 3."),
    "surrogate": (b"\xed\xa0\x80", "The message is not valid UTF-8 at byte 1."),
    "cut": ("ü".encode()[:1], "The message is not valid UTF-8 at byte 1."),
    "long": (
        b"x" * (TEXT_SCALARS_MAX + 1),
        "The message has 1,048,577 characters; 1,048,576 characters are the most.",
    ),
    "huge": (
        b"x" * (TEXT_BYTES_MAX + 1),
        "The message has over 4,194,304 bytes; 1,048,576 characters are the most.",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_with_its_own_sentence_before_anything_is_stored(desk, name):
    raw, sentence = BAD_FILES[name]
    (desk.root / "body").write_bytes(raw)
    ran = deliver(desk, "--file", str(desk.root / "body"))
    assert (ran.code, ran.out, ran.sentence) == (65, "", sentence)
    assert not desk.state.exists()


def test_bytes_that_are_no_utf8_are_refused_on_the_command_line_and_on_standard_input(desk):
    argument = desk.call("deliver", "--thread", THREAD, b"gr\xfcn")
    assert (argument.code, argument.sentence) == (65, BAD["surrogate"][1])
    piped = desk.call("deliver", "--thread", THREAD, "-", stdin=b"gr\xfcn")
    assert (piped.code, piped.sentence) == (65, BAD_FILES["not UTF-8"][1])
    assert not desk.state.exists()


def test_a_text_that_is_one_character_too_long_is_refused():
    assert check_text("x" * TEXT_SCALARS_MAX)
    with pytest.raises(BadInput):
        check_text("x" * (TEXT_SCALARS_MAX + 1))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--target", "nobody", "x"], "There is no target 'nobody' in {config}."),
        (
            ["--thread", THREAD, "--file", "/nonexistent"],
            "The file /nonexistent cannot be read: No such file or directory.",
        ),
        (["--thread", THREAD, "--file", "/"], "The file / cannot be read: Is a directory."),
    ],
)
def test_what_is_not_there_is_not_found(desk, words, sentence):
    ran = desk.run("deliver", *words)
    assert (ran.code, ran.out) == (66, "")
    assert ran.sentence == sentence.format(config=desk.config)
    assert not desk.state.exists()


def test_an_unknown_target_is_answered_with_the_known_ones(desk):
    assert "Known targets: calm, ops." in desk.run("deliver", "--target", "nobody", "x").err


def test_a_closed_standard_input_is_not_found(desk):
    script = (
        "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    words = ["-m", "codexdrv", "--config", str(desk.config), "deliver", "--thread", THREAD, "-"]
    ran = desk.call_python("-c", script, *words)
    assert (ran.code, ran.sentence) == (
        66,
        "Standard input cannot be read: Bad file descriptor.",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--thread", THREAD], "no message: give TEXT, --file or -"),
        (["--thread", THREAD, "--file", "/x", "hello"], "give either TEXT or --file, not both"),
        (["--thread", THREAD, "--file", "/x", ""], "give either TEXT or --file, not both"),
        (["hello"], "one of the arguments --target --thread is required"),
        (["--thread", THREAD, "--target", "ops", "x"], "not allowed with argument --thread"),
        (["--thread", THREAD, "--wait", "ages", "x"], "invalid choice: 'ages'"),
        (["--thread", THREAD, "--when-busy", "never", "x"], "invalid choice: 'never'"),
        (["--thread", THREAD, "--timeout", "soon", "x"], "'soon' is neither a number of seconds"),
        (["--thread", THREAD, "--timeout", "-1", "x"], "'-1' is neither a number of seconds"),
        (["--thread", THREAD, "--timeout", "nan", "x"], "'nan' is neither a number of seconds"),
        (["--thread", THREAD, "two", "words"], "not expected here: words"),
        (["--thr", THREAD, "x"], "not expected here: --thr"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error_and_stores_nothing(desk, words, said):
    ran = desk.run("deliver", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.sentence
    assert "--help`" in ran.err
    assert not desk.state.exists()


def test_no_message_is_a_usage_error_also_with_a_pipe(desk):
    ran = desk.call("deliver", "--thread", THREAD, stdin=b"hello")
    assert ran.code == 2
    assert "no message" in ran.sentence


def test_a_full_thread_is_for_later(desk):
    desk.configure("limits.live_per_thread = 1")
    assert deliver(desk, "one").code == 0
    ran = deliver(desk, "two")
    assert ran.code == 75
    assert ran.sentence == f"Thread {THREAD} is full: 1 of its deliveries are live."
    assert desk.run("deliver", "--thread", OTHER_THREAD, "two").code == 0


def test_an_unsafe_journal_stores_nothing(desk):
    deliver(desk, "one")
    desk.state.chmod(0o755)
    ran = deliver(desk, "two")
    assert ran.code == 73
    assert f"chmod 700 {desk.state}" in ran.err
    desk.state.chmod(0o700)
    assert len(stored_orders(desk)) == 1


def test_an_error_is_an_object_on_stdout_and_a_sentence_on_stderr(desk):
    ran = desk.run("deliver", "--thread", "ops", "--json", "hello")
    assert ran.body == {
        "error": {
            "code": "bad_input",
            "message": "'ops' is not a thread id: a thread id is a UUID.",
            "hint": "`codexdrv threads` lists the threads of the server.",
        }
    }
    assert ran.sentence == ran.body["error"]["message"]


# Waiting


def test_a_wait_ends_when_the_message_is_in_the_thread_and_read_back(desk):
    waiter = desk.start(
        "deliver", "--thread", THREAD, "--id", "m1", "--wait", "surfaced", "--json", "hello"
    )
    # It says so after the row is on disk.
    assert b"no supervisor" in waiter.stderr.readline()
    with desk.journal() as journal:
        writer = Writer(journal.begin_life((1, None, None), "test", now_ms=NOW_MS), 1)
        for fact in (Fact.DISPATCHED, Fact.IN_DOUBT, Fact.SURFACED, Fact.STORED):
            journal.record(make_order().id, make_news(fact), writer=writer, now_ms=NOW_MS)
    out, _ = waiter.communicate()
    body = json.loads(out)
    assert waiter.returncode == 0
    assert (body["phase"], body["stored"], body["turn"]) == ("surfaced", True, TURN)


def test_a_wait_that_takes_too_long_ends_in_doubt_and_the_message_stays(desk):
    ran = deliver(desk, "--id", "m1", "--wait", "surfaced", "--timeout", "0", "--json", "hello")
    assert (ran.code, ran.body["phase"]) == (3, "queued")
    assert "not surfaced within 0 s; it goes on." in ran.err
    assert len(stored_orders(desk)) == 1


@pytest.mark.parametrize(
    ("phase", "code"), [(Phase.FAILED, ExitCode.FAILED), (Phase.CANCELLED, ExitCode.FAILED)]
)
def test_a_wait_for_what_has_ended_ends_at_once(desk, phase, code):
    with desk.journal() as journal:
        admit_in(journal, phase)
    ran = deliver(desk, "--id", "m1", "--wait", "surfaced", "hello")
    assert (ran.code, ran.err) == (code, "")


def test_a_wait_for_what_was_pruned_ends_at_once(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.SURFACED)
        writer = Writer(journal.begin_life((1, None, None), "test", now_ms=NOW_MS), 1)
        ended = make_news(Fact.TURN_ENDED)._replace(outcome=Outcome.COMPLETED)
        for news in (make_news(Fact.STORED), ended):
            journal.record(make_order().id, news, writer=writer, now_ms=NOW_MS)
        assert journal.prune(now_ms=NOW_MS * 2) == 1
    ran = deliver(desk, "--id", "m1", "--wait", "surfaced", "--json", "hello")
    assert (ran.code, ran.err) == (0, "")
    assert (ran.body["duplicate"], ran.body["reason"], ran.body["seq"]) == (True, "pruned", 1)


def test_ctrl_c_ends_the_wait_and_not_the_delivery(desk):
    words = ["--thread", THREAD, "--id", "m1", "--wait", "surfaced", "--timeout", "none", "hello"]
    line = ["--config", str(desk.config), "deliver", *words]
    waiter = desk.start_python("-c", WITH_CTRL_C, *line)
    assert b"no supervisor" in waiter.stderr.readline()
    waiter.send_signal(signal.SIGINT)
    _, err = waiter.communicate()
    assert waiter.returncode == 130
    assert (
        b"stopped waiting; m1 is queued: no supervisor is running.\n"
        b"  Take it back with `codexdrv cancel m1`." in err
    )
    assert len(stored_orders(desk)) == 1


def standing(phase, *, stored=False, reason=None):
    return Delivery(make_order(), Standing(phase, stored=stored, reason=reason))


@pytest.mark.parametrize(
    ("found", "waited_s", "surfaced_s", "verdict"),
    [
        (standing(Phase.QUEUED), 9.99, None, None),
        (standing(Phase.PENDING), 9.99, None, None),
        (standing(Phase.UNCERTAIN), 9.99, None, None),
        (standing(Phase.SURFACED), 9.99, STORED_TIMEOUT_S - 0.01, None),
        (standing(Phase.SURFACED), 9.99, STORED_TIMEOUT_S, (3, "not_stored")),
        (standing(Phase.SURFACED, stored=True), 0, 0, (0, None)),
        (standing(Phase.SURFACED, stored=True), 99, 99, (0, None)),
        (standing(Phase.CANCELLED), 0, None, (1, None)),
        (standing(Phase.FAILED, reason="input_too_large"), 0, None, (1, None)),
        (standing(Phase.FAILED, reason="no_rollout"), 0, None, (66, None)),
        (standing("frozen"), 9.99, None, None),
    ],
)
def test_a_wait_is_judged_by_what_is_stored(found, waited_s, surfaced_s, verdict):
    judged = judge(found, waited_s=waited_s, timeout_s=10, surfaced_s=surfaced_s)
    assert (judged and judged[:2]) == verdict


@pytest.mark.parametrize(("phase", "is_stored"), list(product(Phase, [False, True])))
def test_at_its_deadline_every_wait_is_over_and_whatever_is_open_is_in_doubt(phase, is_stored):
    verdict = judge(standing(phase, stored=is_stored), waited_s=10, timeout_s=10, surfaced_s=0)
    settled = phase in {Phase.FAILED, Phase.CANCELLED} or (phase is Phase.SURFACED and is_stored)
    assert (verdict.code is ExitCode.IN_DOUBT) is not settled


def test_at_its_deadline_a_wait_says_what_is_missing():
    missed = judge(standing(Phase.QUEUED), waited_s=10, timeout_s=10, surfaced_s=None)
    assert missed.why == "not surfaced within 10 s; it goes on"
    missed = judge(standing(Phase.SURFACED), waited_s=10, timeout_s=10, surfaced_s=1)
    assert missed.why == "in the thread, but not read back within 10 s; it goes on"


def test_a_wait_without_an_end_ends_only_with_the_delivery():
    endless = {"waited_s": 1e9, "timeout_s": float("inf"), "surfaced_s": None}
    assert judge(standing(Phase.UNCERTAIN), **endless) is None
    assert judge(standing(Phase.FAILED), **endless).code is ExitCode.FAILED


# What it costs


def test_it_imports_nothing_that_takes_long_to_import(desk):
    words = ["--config", str(desk.config), "deliver", "--thread", THREAD, "--json", "hello"]
    for _ in ("with a journal to make", "with one that is there"):
        ran = desk.call_python("-c", WITH_MODULES, *words)
        assert ran.body["phase"] == "queued"
        modules = set(ran.err.splitlines()[-1].split())
        assert "codexdrv.journal.journal" in modules
        assert modules & HEAVY == set()


def test_a_timeout_without_a_wait_is_a_usage_error(desk):
    ran = desk.run("deliver", "--thread", THREAD, "--timeout", "5", "hello")
    assert ran.code == 2
    assert ran.sentence == "--timeout is for --wait surfaced."


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "none", "inf", "nan", "0.0001"])
def test_what_is_no_time_to_expire_is_a_usage_error(desk, seconds):
    ran = desk.run("deliver", "--thread", THREAD, "--expires", seconds, "hello")
    assert ran.code == 2
    assert ran.sentence.endswith(f"{seconds!r} is no number of seconds above 0.")


def test_the_time_to_expire_counts_from_the_admission(desk):
    assert (
        desk.run("deliver", "--thread", THREAD, "--id", "m1", "--expires", "1.5", "hello").code == 0
    )
    with desk.journal() as journal:
        order = journal.delivery("m1").order
    assert order.expires_at_ms - order.admitted_at_ms == 1500


def test_the_first_ones_time_to_expire_stands(desk):
    desk.run("deliver", "--thread", THREAD, "--id", "m1", "hello")
    ran = desk.run("deliver", "--thread", THREAD, "--id", "m1", "--expires", "1", "--json", "hello")
    assert ran.body["duplicate"]
    with desk.journal() as journal:
        assert journal.delivery("m1").order.expires_at_ms is None
