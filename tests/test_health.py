"""Health is what does not get through."""

import json

import pytest

from codexdrv import __version__
from codexdrv.config import parse_config
from codexdrv.health import (
    OLD_MS,
    UNANSWERED_MS,
    Machine,
    changed_keys,
    judge_health,
    server_table,
)
from codexdrv.journal.rows import Summary
from codexdrv.paths import Offence
from codexdrv.rules.lifecycle import Delivery, Standing
from codexdrv.rules.ownership import Phase
from codexdrv.snapshot import FORMAT, STALE_AFTER_MS, Snapshot
from supervisor.spawning import _another
from tests.fakes.orders import NOW_MS, THREAD, make_order
from tests.fakes.pictures import ALONE, CONNECTED, QUESTION, SUBSCRIBED, make_snapshot


EMPTY = Summary({}, None, {})
STALE = "the supervisor is up but has not written its status for 15 s"


def problems_of(snapshot=None, *, summary=EMPTY, is_up=True, disk=None):
    found = judge_health(Machine(summary, snapshot, is_up, NOW_MS, __version__, disk))
    assert all(problem.remedy for problem in found)
    return found


def judge(snapshot=None, **seen):
    return [problem.sentence for problem in problems_of(snapshot, **seen)]


def test_a_target_whose_loading_is_refused_in_any_words_is_not_well():
    odd = SUBSCRIBED | {"subscription": "none", "problem": "failed to read thread: line 7."}
    assert judge(make_snapshot(threads={THREAD: odd})) == [
        f"target ops ({THREAD}) cannot be loaded: failed to read thread: line 7"
    ]
    # No target: whoever has sent something there is told by the delivery itself.
    assert judge(make_snapshot(threads={THREAD: odd | {"targets": []}})) == []


def test_a_journal_that_the_supervisor_cannot_use_is_not_well():
    assert judge(make_snapshot(ALONE, journal_problem="It is locked.")) == [
        "the supervisor cannot use its journal, so nothing is sent: It is locked",
        "nothing listens on /x.sock",
    ]


def test_a_supervisor_that_was_told_to_end_is_not_missed():
    assert judge(make_snapshot(ended=True), is_up=False) == []


def test_a_supervisor_that_ended_untold_is_missed():
    (problem,) = judge(make_snapshot(), is_up=False)
    assert problem == "the supervisor has ended untold"
    # What waits for it says more.
    waits = judge(make_snapshot(), is_up=False, summary=waiting(age_ms=0))
    assert waits == ["no supervisor is running, and deliveries wait"]


@pytest.mark.parametrize(
    ("written", "who"),
    [
        ({"version": "0.0.9"}, "codexdrv 0.0.9"),
        ({"version": "0.0.9", "format": 1}, "codexdrv 0.0.9"),
        (
            {"format": FORMAT + 1},
            f"another codexdrv {__version__} (its status file has format 3, not 2)",
        ),
    ],
)
def test_of_a_supervisor_of_another_version_or_format_it_is_not_known(written, who):
    (problem,) = problems_of(make_snapshot(**written))
    assert problem.sentence == (
        f"the supervisor that runs is {who}, and not the one that is installed now, which cannot"
        " tell how it is"
    )
    assert problem.remedy == "Start it anew."


def test_of_a_picture_that_knows_no_formats_nothing_is_read():
    old = {"written_at_ms": NOW_MS, "version": __version__, "server": {"connected": True}}
    (problem,) = judge(Snapshot(NOW_MS, old))
    assert "(its status file has format 1, not 2)" in problem


def waiting(*, age_ms, why=None):
    order = make_order(at_ms=NOW_MS - age_ms)
    delivery = Delivery(order, Standing(Phase.QUEUED, why=why))
    return Summary({"queued": 1}, delivery, {THREAD: 1})


@pytest.mark.parametrize(
    ("seen", "is_up", "problems"),
    [
        (None, False, []),
        (make_snapshot(), True, []),
        (make_snapshot(age_ms=STALE_AFTER_MS), True, []),
        (make_snapshot(age_ms=STALE_AFTER_MS + 1), True, [STALE]),
        (None, True, [STALE]),
        (make_snapshot(ALONE), True, ["nothing listens on /x.sock"]),
        # What a stale picture says of the server is old news.
        (make_snapshot(ALONE, age_ms=STALE_AFTER_MS + 1), True, [STALE]),
    ],
)
def test_it_is_what_the_supervisor_says_while_it_says_something(seen, is_up, problems):
    assert judge(seen, is_up=is_up) == problems


@pytest.mark.field_report("agmsg#465")
@pytest.mark.parametrize(
    ("age_ms", "why", "problems"),
    [
        (0, None, []),
        (OLD_MS, None, []),
        (OLD_MS + 1, None, ["m1 is queued for 15 min: nobody has tried yet"]),
        (9 * OLD_MS, "it is archived", ["m1 is queued for 2 h 15 min: it is archived"]),
    ],
)
def test_it_is_that_nothing_waits_for_long(age_ms, why, problems):
    """FIELD-REPORTS, agmsg#465: watcher alive, session not woken for 73 minutes."""
    assert judge(make_snapshot(), summary=waiting(age_ms=age_ms, why=why)) == problems


@pytest.mark.field_report("agmsg#465")
def test_it_is_that_the_server_answers_and_not_only_that_it_is_connected():
    silent = CONNECTED | {"answered_s": UNANSWERED_MS / 1000 - 5}
    assert judge(make_snapshot(silent, age_ms=5000)) == []
    assert judge(make_snapshot(silent, age_ms=5001)) == [
        "the server is connected, and has answered nothing for 1 min"
    ]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"subscription": "archived"}, "it is archived"),
        ({"subscription": "gone"}, "the server has no record of it"),
        ({"subscription": "ephemeral"}, "it is ephemeral"),
        (
            {"subscription": "held_elsewhere", "holders": [7, 8]},
            "another server process has it open, pid 7, 8",
        ),
    ],
)
def test_it_is_that_every_target_is_loaded(state, why):
    problem = f"target ops ({THREAD}) cannot be loaded: {why}"
    assert judge(make_snapshot(threads={THREAD: SUBSCRIBED | state})) == [problem]
    # A thread that nobody has named has its message to speak for it.
    nameless = SUBSCRIBED | state | {"targets": []}
    assert judge(make_snapshot(threads={THREAD: nameless})) == []


@pytest.mark.parametrize("subscription", ["subscribed", "never_used", "none"])
def test_a_target_that_its_first_message_will_load_is_well(subscription):
    state = SUBSCRIBED | {"subscription": subscription}
    assert judge(make_snapshot(threads={THREAD: state})) == []


def test_it_is_that_no_question_stays_open_for_long():
    young, old = (QUESTION | {"since_ms": NOW_MS - OLD_MS - more} for more in (0, 1))
    assert judge(make_snapshot(questions=[young])) == []
    assert judge(make_snapshot(questions=[old, young])) == [
        "the server asks (command), and nobody has answered for 15 min"
    ]


def test_a_disk_on_which_nothing_can_be_stored_is_told_before_all_else():
    assert judge(make_snapshot(ALONE), disk=Offence("its disk is full", "Make room.")) == [
        "nothing can be stored, so nothing is sent: its disk is full",
        "nothing listens on /x.sock",
    ]


@pytest.mark.parametrize(("seen", "is_up"), [(None, False), (make_snapshot(ALONE), True)])
def test_all_that_is_wrong_is_told(seen, is_up):
    assert len(judge(seen, is_up=is_up, summary=waiting(age_ms=OLD_MS + 1))) == 2


# Remedies, and what wants a restart


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        ({"subscription": "archived"}, f"`codex unarchive {THREAD}`"),
        ({"subscription": "gone"}, "Take also, ops out of [targets]."),
        ({"subscription": "ephemeral"}, "Take also, ops out of [targets]."),
        ({"subscription": "held_elsewhere", "holders": [7, 8]}, "Stop that one: pid 7, 8."),
        ({"subscription": "held_elsewhere", "holders": []}, "Stop that one."),
        (
            {"subscription": "none", "problem": "failed to read thread: line 7."},
            "Does it stay so? Take also, ops out of [targets].",
        ),
    ],
)
def test_what_keeps_a_target_from_being_loaded_has_its_own_remedy(state, remedy):
    thread = SUBSCRIBED | state | {"targets": ["also", "ops"]}
    (problem,) = problems_of(make_snapshot(threads={THREAD: thread}))
    assert problem.remedy == remedy


def test_what_waits_for_long_names_the_command_that_tells_why():
    (problem,) = problems_of(make_snapshot(), summary=waiting(age_ms=OLD_MS + 1))
    assert problem.remedy == "`codexdrv status m1 --explain` tells its story."
    old = QUESTION | {"since_ms": NOW_MS - OLD_MS - 1}
    (problem,) = problems_of(make_snapshot(questions=[old]))
    assert "`codexdrv attention`" in problem.remedy


def test_a_server_that_does_not_answer_may_be_stopped():
    silent = CONNECTED | {"answered_s": UNANSWERED_MS / 1000 + 1}
    (problem,) = problems_of(make_snapshot(silent))
    assert "`kill -CONT 4242`" in problem.remedy
    (problem,) = problems_of(make_snapshot(silent | {"pid": None}))
    assert "`kill -CONT PID`" in problem.remedy


def test_a_server_that_is_not_ours_is_to_be_stopped_or_attached_to():
    words = _another("/run/s.sock", 4711).message
    (problem,) = problems_of(make_snapshot(ALONE | {"problem": words}))
    assert problem == (
        words.rstrip("."),
        'Stop it: `kill 4711`; or attach to it: mode = "attach" under [server].',
    )


def server_of(**table):
    return parse_config({"server": table}, {"HOME": "/home/me", "PATH": "/bin"}, path=None).server


@pytest.mark.parametrize(
    ("runs_with", "says", "keys"),
    [
        ({}, {}, []),
        ({}, {"mode": "attach"}, []),
        ({}, {"socket": "/run/s.sock"}, ["socket"]),
        ({"mode": "spawn"}, {"mode": "spawn", "deaths_max": 3}, ["deaths_max"]),
        (
            {"mode": "spawn"},
            {"mode": "spawn", "listen": "stdio"},
            ["socket", "listen"],
        ),
        (
            {},
            {"mode": "spawn"},
            ["mode", "socket", "listen", "approvals", "stop_grace_s", "deaths_max"],
        ),
        (
            {},
            {"codex_home": "/h", "socket": "/s", "codex": "/c"},
            ["socket", "codex_home", "codex"],
        ),
    ],
)
def test_what_a_supervisor_runs_with_is_compared_with_what_the_configuration_says(
    runs_with, says, keys
):
    # As it comes back from the file.
    config = json.loads(json.dumps(server_table(server_of(**runs_with))))
    assert changed_keys(make_snapshot(config=config), server_of(**says)) == keys
