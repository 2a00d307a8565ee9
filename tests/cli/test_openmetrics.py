"""What Prometheus reads is what the machine is; what is not known is left out."""

import json

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from codexdrv.clock import now_ms
from codexdrv.snapshot import FILE_NAME
from tests.fakes.orders import THREAD
from tests.fakes.pictures import ALONE, QUESTION, make_picture


def read(text):
    """Read samples as a scraper does: (name, labels) → value."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


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
