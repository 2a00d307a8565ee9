"""`status`: what does not get through, and one delivery's whole story."""

import json

import pytest

from codexdrv import __version__
from codexdrv.clock import now_ms
from codexdrv.config import load_config
from codexdrv.errors import ExitCode
from codexdrv.health import server_table
from codexdrv.journal.journal import Writer
from codexdrv.rules.lifecycle import News, Outcome
from codexdrv.rules.ownership import Fact, Phase
from codexdrv.snapshot import FILE_NAME
from tests.fakes.orders import NOW_MS, THREAD, TURN, admit_in, make_news, make_order
from tests.fakes.pictures import ALONE, CONNECTED, FAR_FUTURE_MS, QUESTION, SUBSCRIBED, make_picture


def be_up(desk, server=CONNECTED):
    desk.hang_up_bell()
    picture = make_picture(server, config=server_table(load_config(str(desk.config)).server))
    (desk.state / FILE_NAME).write_text(json.dumps(picture))


# The machine


def test_a_machine_with_nothing_to_do_is_well_without_a_supervisor(desk):
    ran = desk.run("status")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"state       {desk.state}",
        "supervisor  down",
        "deliveries  none is live",
        "healthy",
    ]


def test_a_machine_without_a_supervisor_is_not_well_while_deliveries_wait(desk):
    desk.run("deliver", "--target", "ops", "--id", "m1", "hello")
    ran = desk.run("status")
    assert ran.code == 1
    assert ran.out.splitlines()[2:] == [
        "deliveries  1 queued",
        "oldest      0 s old: m1 is queued: no supervisor is running.",
        "UNHEALTHY   no supervisor is running, and deliveries wait",
        "            Start it: `codexdrv supervise`, best under your service manager.",
    ]


def test_a_machine_that_is_up_shows_its_server_and_its_threads(desk):
    be_up(desk)
    ran = desk.run("status")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[1:] == [
        "supervisor  up, pid 77, life 3, since 2027-01-15T08:00:00.000Z (0 s)",
        "server      codex 0.163.0, pid 4242, generation 2 for 0 s, restarts 1, answered 2 s ago",
        f"thread      ops = {THREAD}: active, subscribed, turn {TURN}",
        "deliveries  none is live",
        "healthy",
    ]


def test_a_machine_without_a_server_says_why(desk):
    be_up(desk, ALONE)
    ran = desk.run("status")
    assert ran.code == 1
    assert "server      none, restarts 1\n" in ran.out
    assert "UNHEALTHY   nothing listens on /x.sock\n" in ran.out


def test_a_supervisor_that_has_not_said_anything_yet_is_up_all_the_same(desk):
    desk.hang_up_bell()
    ran = desk.run("status")
    assert ran.code == 1
    assert "supervisor  up\n" in ran.out
    assert "has not written its status" in ran.out


def test_a_picture_that_a_dead_supervisor_left_is_not_believed(desk):
    be_up(desk)
    desk.close()
    assert "supervisor  down\n" in desk.run("status").out


def test_the_machine_is_one_object(desk):
    assert desk.run("status", "--json").body == {
        "healthy": True,
        "problems": [],
        "remedies": [],
        "supervisor": "down",
        "pid": None,
        "life": None,
        "began_at": None,
        "server": None,
        "journal_problem": None,
        "threads": {},
        "questions": [],
        "live": {},
        "depths": {},
        "oldest": None,
        "state": str(desk.state),
        "mode": "attach",
        "changed": [],
    }
    be_up(desk)
    desk.run("deliver", "--target", "ops", "--id", "m1", "hello")
    ran = desk.run("status", "--json")
    assert ran.code == 0
    body = ran.body
    assert body["oldest"]["id"] == "m1"
    assert (body["supervisor"], body["pid"], body["life"]) == ("up", 77, 3)
    assert body["server"] == CONNECTED
    assert (body["live"], list(body["threads"])) == ({"queued": 1}, [THREAD])
    assert body["depths"] == {THREAD: 1}


def test_a_problem_is_told_with_its_remedy(desk):
    be_up(desk, ALONE | {"problem": "A server that is not ours listens at /s (pid 47)."})
    body = desk.run("status", "--json").body
    assert body["problems"] == ["A server that is not ours listens at /s (pid 47)"]
    (remedy,) = body["remedies"]
    assert remedy.startswith("Stop it: `kill 47`; or attach to it")
    assert desk.run("status").out.splitlines()[-2:] == [
        "UNHEALTHY   A server that is not ours listens at /s (pid 47)",
        f"            {remedy}",
    ]


def test_a_supervisor_that_runs_with_another_server_wants_a_restart(desk):
    be_up(desk)
    desk.configure('server.mode = "spawn"')
    ran = desk.run("status")
    # What is delivered gets through all the same.
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "healthy")
    assert ran.out.splitlines()[1] == (
        "restart     the supervisor runs with another [server] than the configuration says"
        " (mode, listen, approvals, stop_grace_s, deaths_max): restart it"
    )
    body = desk.run("status", "--json").body
    assert (body["mode"], body["changed"][:2]) == ("spawn", ["mode", "listen"])


def test_of_a_supervisor_that_says_nothing_any_more_nobody_knows_what_it_runs_with(desk):
    desk.hang_up_bell()
    (desk.state / FILE_NAME).write_text(json.dumps(make_picture(written_at_ms=1)))
    assert "restart     " not in desk.run("status").out


def test_what_waits_for_somebody_is_shown(desk):
    desk.hang_up_bell()
    held = SUBSCRIBED | {"subscription": "held_elsewhere", "holders": [7], "turn": None}
    outdated = CONNECTED | {"outdated": True, "version_on_disk": "0.171.0", "restarts": 0}
    question = QUESTION | {"since_ms": now_ms() - 125_000}
    picture = make_picture(
        outdated, threads={THREAD: held | {"waiting": True}}, questions=[question]
    )
    (desk.state / FILE_NAME).write_text(json.dumps(picture))
    desk.run("deliver", "--target", "ops", "--id", "m1", "hello")
    out = desk.run("status").out
    assert "            on disk lies codex 0.171.0" in out
    assert (
        f"thread      ops = {THREAD}: active, held_elsewhere, held by pid 7, waits for an answer,"
        " 1 live\n"
    ) in out
    assert f"question    0123456789abcdef command, open for 2 min, thread {THREAD}\n" in out
    assert "`codexdrv attention` shows what is asked" in out


def test_a_look_does_not_hurry_the_supervisor(desk):
    ringer = desk.hang_up_bell()
    for words in (("status",), ("list",)):
        desk.run(*words)
    with pytest.raises(BlockingIOError):
        ringer.recv(1)
    desk.run("deliver", "--target", "ops", "hello")
    assert ringer.recv(1) == b""


def test_a_supervisor_that_ended_untold_makes_it_unhealthy(desk):
    desk.journal().close()
    (desk.state / FILE_NAME).write_text(json.dumps(make_picture()))
    ran = desk.run("status")
    assert ran.code == 1
    assert "supervisor  down\n" in ran.out
    assert "UNHEALTHY   the supervisor has ended untold" in ran.out


@pytest.mark.parametrize("form", [(), ("--json",), ("--openmetrics",)])
@pytest.mark.parametrize(
    ("version", "who"), [("0.0.9", "codexdrv 0.0.9"), (__version__, "another codexdrv ")]
)
def test_what_a_supervisor_of_another_version_or_format_wrote_is_not_read(desk, form, version, who):
    desk.hang_up_bell()
    written = {"written_at_ms": FAR_FUTURE_MS, "version": version, "server": {"connected": True}}
    (desk.state / FILE_NAME).write_text(json.dumps(written))
    ran = desk.run("status", *form)
    assert (ran.code, ran.err) == (1, "")
    assert ("codexdrv_healthy 0.0" if form == ("--openmetrics",) else who) in ran.out


@pytest.mark.parametrize(
    ("subscription", "words"),
    [
        ("none", "active, none, held up: failed to read thread"),
        ("subscribed", "active, subscribed, held up: failed to read thread"),
        ("archived", "active, archived"),
    ],
)
def test_what_holds_a_thread_up_is_told_once(desk, subscription, words):
    desk.hang_up_bell()
    odd = {"subscription": subscription, "problem": "failed to read thread.", "turn": None}
    picture = make_picture(threads={THREAD: SUBSCRIBED | odd})
    (desk.state / FILE_NAME).write_text(json.dumps(picture))
    assert f"thread      ops = {THREAD}: {words}\n" in desk.run("status").out


# One delivery


@pytest.mark.parametrize(
    ("phase", "sentence"),
    [
        (Phase.QUEUED, "m1 is queued: no supervisor is running."),
        (Phase.PENDING, "m1 is on its way: it goes out."),
        (Phase.UNCERTAIN, "m1 is in doubt: so it was."),
        (
            Phase.SURFACED,
            f"m1 is in the thread but not yet read back: turn {TURN}, which runs.",
        ),
        (Phase.FAILED, "m1 has failed: so it was."),
        (Phase.CANCELLED, "m1 is cancelled: so it was."),
    ],
)
def test_a_delivery_is_told_in_a_sentence(desk, phase, sentence):
    with desk.journal() as journal:
        admit_in(journal, phase)
    ran = desk.run("status", "m1")
    assert (ran.code, ran.out, ran.err) == (0, f"{sentence}\n", "")
    assert desk.run("status", "m1", "--json").body["phase"] == phase


def test_a_phase_that_we_do_not_know_is_told_as_it_is(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.QUEUED)
        journal._database.execute("UPDATE deliveries SET phase = 'frozen'")
    assert desk.run("status", "m1").out == "m1 is frozen.\n"
    assert "1 frozen" in desk.run("status").out


@pytest.mark.parametrize("name", ["nobody", "", "a b", "gr\udcfcn"])
def test_a_delivery_that_is_not_there_is_not_found(desk, name):
    ran = desk.run("status", name)
    assert (ran.code, ran.out) == (ExitCode.NOT_FOUND, "")
    assert ran.sentence.startswith("There is no delivery '")
    assert desk.run("status", name, "--json").body["error"]["code"] == "not_found"


EVERY_FACT = [
    make_news(Fact.HELD)._replace(why="a turn runs"),
    make_news(Fact.DISPATCHED),
    make_news(Fact.ANSWERED),
    make_news(Fact.IN_DOUBT)._replace(why="no answer came"),
    News(Fact.PARKED, "parked", "the lane goes on without it"),
    make_news(Fact.ABSENT)._replace(why="proved absent"),
    make_news(Fact.REFUSED)._replace(why="it is too large"),
    News(Fact.RESOLVED_ABSENT, "operator", "try again"),
    make_news(Fact.DISPATCHED, attempt=2),
    make_news(Fact.SURFACED)._replace(why="the server put it into a turn"),
    News(Fact.STORED, why="read back"),
    News(Fact.TURN_ENDED, why="the server says so", outcome=Outcome.COMPLETED),
]


@pytest.fixture
def eventful(desk):
    """A delivery that has been through a lot, an operator's word among it."""
    with desk.journal() as journal:
        journal.admit(make_order())
        writer = Writer(journal.begin_life((1, None, None), "test", now_ms=NOW_MS), 2)
        for number, news in enumerate(EVERY_FACT):
            now_ms = NOW_MS + number * 500
            if news.fact is Fact.RESOLVED_ABSENT:
                journal.resolve(make_order().id, news, revision=number, now_ms=now_ms)
            else:
                journal.record(make_order().id, news, writer=writer, now_ms=now_ms)
    return desk


def test_a_story_tells_every_fact_with_its_reason_its_time_and_who_wrote_it(eventful):
    ran = eventful.run("status", "m1", "--explain")
    assert ran.code == 0
    sentence, admitted, *facts = ran.out.splitlines()
    assert sentence == f"m1 is in the thread and stored: turn {TURN}, which is completed."
    assert "admitted" in admitted
    told = [line.split(" s  ", 1)[1] for line in facts]
    by = "(life 1, generation 2)"
    assert told == [
        f"held: a turn runs {by}",
        f"dispatched: turn/start goes out, attempt 1, server 4242 (ticks 99, boot boot) {by}",
        f"answered: the server says so {by}",
        f"in doubt: no answer came {by}",
        f"parked: the lane goes on without it {by}",
        f"absent: proved absent {by}",
        f"refused: it is too large {by}",
        "resolved absent: try again (a command)",
        f"dispatched: turn/start goes out, attempt 2, server 4242 (ticks 99, boot boot) {by}",
        f"surfaced: the server put it into a turn {by}",
        f"stored: read back {by}",
        f"turn ended: completed: the server says so {by}",
    ]
    assert facts[1].split()[:2] == ["2027-01-15T08:00:00.500Z", "+0.500"]


def test_a_story_is_a_list_of_facts(eventful):
    facts = eventful.run("status", "m1", "--explain", "--json").body["facts"]
    assert [fact["fact"] for fact in facts] == [news.fact for news in EVERY_FACT]
    assert [fact["why"] for fact in facts] == [news.why for news in EVERY_FACT]
    assert [fact["life"] for fact in facts].count(None) == 1
    assert facts[1]["dispatch"]["peer"] == {
        "pid": 4242,
        "start_ticks": 99,
        "boot_id": "boot",
        "namespace": "",
    }
    assert facts[-1] == {
        "fact": "turn_ended",
        "at": "2027-01-15T08:00:05.500Z",
        "reason": None,
        "why": "the server says so",
        "turn": None,
        "outcome": "completed",
        "attempt": None,
        "dispatch": None,
        "witness": None,
        "life": 1,
        "generation": 2,
    }


def test_without_the_flag_a_delivery_has_no_story(eventful):
    assert "facts" not in eventful.run("status", "m1", "--json").body
    assert len(eventful.run("status", "m1").out.splitlines()) == 1


def test_explaining_needs_a_delivery(desk):
    ran = desk.run("status", "--explain")
    assert ran.code == 2
    assert ran.sentence == "--explain wants an ID."


def test_what_is_in_doubt_is_shown_with_the_machine(desk):
    with desk.journal() as journal:
        admit_in(journal, Phase.UNCERTAIN, "m1")
        admit_in(journal, Phase.QUEUED, "m2")
    out = desk.run("status").out
    assert "IN DOUBT    m1 is in doubt" in out
    assert "IN DOUBT    m2" not in out
