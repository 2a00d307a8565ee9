"""What Prometheus reads is what the machine is; what is not known is left out."""

import json

import pytest
from prometheus_client import parser as text
from prometheus_client.openmetrics import parser as openmetrics

from codexdrv.clock import now_ms
from codexdrv.snapshot import FILE_NAME
from tests.fakes.orders import THREAD
from tests.fakes.pictures import ALONE, CONNECTED, QUESTION, make_picture


def read(printed):
    """Read samples as scrapers do, in both formats: (name, labels) → value."""
    # OpenMetrics' own types are unknown to the other format, and lose a scraper all that is there.
    kinds = {line.split(" ")[3] for line in printed.splitlines() if line.startswith("# TYPE ")}
    assert kinds == {"gauge"}
    one, other = (
        {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in form.text_string_to_metric_families(printed)
            for sample in family.samples
        }
        for form in (text, openmetrics)
    )
    assert one == other
    return one


def test_a_machine_without_a_supervisor_says_nothing_of_a_server(desk):
    desk.run("deliver", "--target", "ops", "--id", "m1", "hello")
    ran = desk.run("status", "--openmetrics")
    assert (ran.code, ran.err) == (1, "")
    found = read(ran.out)
    assert 0 <= found.pop(("codexdrv_oldest_delivery_age_seconds",)) < 60
    assert found == {
        ("codexdrv_healthy",): 0,
        ("codexdrv_problems",): 1,
        ("codexdrv_supervisor_up",): 0,
        ("codexdrv_deliveries", ("phase", "queued")): 1,
        ("codexdrv_deliveries", ("phase", "pending")): 0,
        ("codexdrv_deliveries", ("phase", "uncertain")): 0,
        ("codexdrv_thread_deliveries", ("thread", THREAD)): 1,
    }


def test_a_machine_that_is_up_is_told_whole(desk):
    desk.hang_up_bell()
    question = QUESTION | {"since_ms": now_ms() - 5000}
    picture = make_picture(written_at_ms=now_ms(), questions=[question])
    (desk.state / FILE_NAME).write_text(json.dumps(picture))
    ran = desk.run("status", "--openmetrics")
    assert ran.code == 0
    assert ran.out.endswith("# EOF\n")
    found = read(ran.out)
    assert found["codexdrv_healthy",] == 1
    assert found["codexdrv_server_connected",] == 1
    assert found["codexdrv_server_restarts",] == 1
    assert found["codexdrv_server_info", ("pid", "4242"), ("version", "0.163.0")] == 1
    assert found["codexdrv_thread_subscribed", ("target", "ops"), ("thread", THREAD)] == 1
    assert 2.4 <= found["codexdrv_server_last_answer_age_seconds",] < 60
    assert found["codexdrv_questions_open",] == 1
    assert 5 <= found["codexdrv_oldest_question_age_seconds",] < 60


def test_a_server_that_is_away_has_no_age_of_its_last_answer(desk):
    desk.hang_up_bell()
    (desk.state / FILE_NAME).write_text(json.dumps(make_picture(ALONE)))
    found = read(desk.run("status", "--openmetrics").out)
    assert found["codexdrv_server_connected",] == 0
    assert ("codexdrv_server_last_answer_age_seconds",) not in found


def test_without_a_server_nobody_knows_what_it_asks_or_whether_it_is_outdated(desk):
    desk.hang_up_bell()
    (desk.state / FILE_NAME).write_text(json.dumps(make_picture(ALONE)))
    about_it = {
        "codexdrv_server_outdated",
        "codexdrv_server_info",
        "codexdrv_questions_open",
        "codexdrv_oldest_question_age_seconds",
    }
    names = {name for name, *_ in read(desk.run("status", "--openmetrics").out)}
    assert not names & about_it
    (desk.state / FILE_NAME).write_text(json.dumps(make_picture()))
    names = {name for name, *_ in read(desk.run("status", "--openmetrics").out)}
    assert names >= about_it


@pytest.mark.parametrize("unknown", ["version", "version_on_disk"])
def test_of_two_versions_one_of_which_is_not_known_none_is_outdated(desk, unknown):
    desk.hang_up_bell()
    (desk.state / FILE_NAME).write_text(json.dumps(make_picture(CONNECTED | {unknown: None})))
    found = read(desk.run("status", "--openmetrics").out)
    assert ("codexdrv_server_outdated",) not in found


def test_a_server_whose_process_is_not_known_has_no_pid(desk):
    desk.hang_up_bell()
    (desk.state / FILE_NAME).write_text(json.dumps(make_picture(CONNECTED | {"pid": None})))
    found = read(desk.run("status", "--openmetrics").out)
    assert found["codexdrv_server_info", ("pid", ""), ("version", "0.163.0")] == 1


@pytest.mark.parametrize("code", [73, 78])
def test_a_machine_that_cannot_be_looked_at_is_not_well(desk, code):
    if code == 78:
        desk.configure("nonsense = 1")
    else:
        desk.state.mkdir(parents=True)
        desk.state.chmod(0o755)
    ran = desk.run("status", "--openmetrics")
    assert (ran.code, ran.sentence != "") == (code, True)
    assert ran.out.endswith("# EOF\n")
    assert read(ran.out) == {("codexdrv_healthy",): 0}


def test_a_supervisor_that_says_nothing_any_more_is_not_quoted(desk):
    desk.hang_up_bell()
    (desk.state / FILE_NAME).write_text(json.dumps(make_picture(written_at_ms=1)))
    found = read(desk.run("status", "--openmetrics").out)
    assert found["codexdrv_supervisor_up",] == 1
    assert ("codexdrv_server_connected",) not in found


def test_it_is_about_the_machine_and_no_json(desk):
    for words in (("--json",), ("m1",)):
        ran = desk.run("status", "--openmetrics", *words)
        assert ran.code == 2
        assert ran.sentence == "--openmetrics is about the machine, and is no JSON."
