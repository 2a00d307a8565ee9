"""The scripted model over HTTP: what it streams, what it holds, what it remembers."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from itertools import count
from threading import Barrier, Thread
from typing import Any

import pytest

from codexdrv.demo.model import ScriptedModel
from codexdrv.demo.script import CutStream, Hold, Large, Reply


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@contextmanager
def request(
    model: ScriptedModel, method: str, path: str, body: Any = None
) -> Iterator[HTTPResponse]:
    host, _, prefix = model.base_url.removeprefix("http://").partition("/")
    with closing(HTTPConnection(host, timeout=10)) as connection:
        connection.request(method, f"/{prefix}{path}", json.dumps(body))
        with connection.getresponse() as response:
            yield response


def body_of(*texts: str) -> dict[str, Any]:
    return {
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
            for text in texts
        ]
    }


def ask(model: ScriptedModel, *texts: str) -> list[dict[str, Any]]:
    with request(model, "POST", "/responses", body_of(*texts)) as response:
        return [json.loads(data) for data in data_lines(response)]


def data_lines(response: HTTPResponse) -> Iterator[bytes]:
    return (line[len("data: ") :] for line in response if line.startswith(b"data: "))


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"].endswith("text.delta"))


def test_it_lists_no_models(model: ScriptedModel):
    with request(model, "GET", "/models?client_version=1") as response:
        assert (response.status, json.load(response)["data"]) == (200, [])


def test_an_unscripted_text_is_said_back(model: ScriptedModel):
    assert text_of(ask(model, "hello")) == "You said: hello"


def test_the_script_may_change_while_it_serves(model: ScriptedModel):
    model.script["hello"] = Reply("hallo")
    assert text_of(ask(model, "hello")) == "hallo"
    model.script["hello"] = Reply("salut")
    assert text_of(ask(model, "hello")) == "salut"


def test_a_large_reply_has_its_length(model: ScriptedModel):
    model.script["much"] = Large(3_000_000)
    assert len(text_of(ask(model, "much"))) == 3_000_000


def test_a_cut_stream_ends_without_its_completion(model: ScriptedModel):
    model.script["cut"] = CutStream("half an ans")
    events = ask(model, "cut")
    assert (text_of(events), events[-1]["type"]) == ("half an ans", "response.output_text.delta")


def test_answers_have_ids_of_their_own(model: ScriptedModel):
    first, second = ask(model, "a"), ask(model, "a")
    assert first[0]["response"]["id"] != second[0]["response"]["id"]


def test_a_held_answer_opens_and_goes_on_when_it_is_released(model: ScriptedModel):
    model.script["busy"] = Hold("free")
    with request(model, "POST", "/responses", body_of("busy")) as response:
        lines = data_lines(response)
        opened = [json.loads(next(lines))["type"] for _ in range(2)]
        assert opened == ["response.created", "response.output_item.added"]
        model.release("other")
        model.release("busy")
        assert text_of([json.loads(line) for line in lines]) == "free"


def test_a_released_text_stays_released(model: ScriptedModel):
    model.script["busy"] = Hold("free")
    model.release("busy")
    assert text_of(ask(model, "busy")) == "free"


def test_stopping_cuts_a_held_answer_and_leaves_no_port_open():
    with ScriptedModel({"busy": Hold("free")}) as model:
        with request(model, "POST", "/responses", body_of("busy")) as response:
            lines = data_lines(response)
            next(lines)
            model.stop()
            rest = [json.loads(line)["type"] for line in lines]
        assert "response.completed" not in rest
        with pytest.raises(ConnectionRefusedError), request(model, "GET", "/models"):
            pass


def test_a_client_that_leaves_a_held_answer_disturbs_nobody(
    model: ScriptedModel, capfd: pytest.CaptureFixture[str]
):
    model.script["busy"] = Hold("x" * 1_000_000)
    with request(model, "POST", "/responses", body_of("busy")) as response:
        next(data_lines(response))
    model.release("busy")
    assert text_of(ask(model, "hello")) == "You said: hello"
    model.stop()
    assert capfd.readouterr() == ("", "")


def test_a_prompt_is_recorded_with_its_time_before_it_is_answered():
    ticks = count(100.0)
    with ScriptedModel({"busy": Hold("free")}, clock=lambda: next(ticks)) as model:
        ask(model, "hello")
        with request(model, "POST", "/responses", body_of("hello", "busy")):
            found = model.wait_for_prompt("busy")
    assert found == model.prompts[1]
    assert [prompt.at for prompt in model.prompts] == [100.0, 101.0]
    assert found.texts == ("hello", "busy")


def test_a_prompt_may_be_awaited_before_it_comes(model: ScriptedModel):
    asked = Thread(target=ask, args=(model, "hello"))
    asked.start()
    assert model.wait_for_prompt("hello").key == "hello"
    asked.join()


def test_a_prompt_that_does_not_come_is_named_in_the_error(model: ScriptedModel):
    ask(model, "another")
    with pytest.raises(TimeoutError, match=r"'hello'.*another"):
        model.wait_for_prompt("hello", timeout_s=0)


def test_prompts_with_a_text_are_counted_and_so_are_its_doubles(model: ScriptedModel):
    assert (model.count("a"), model.occurrences("a")) == (0, 0)
    ask(model, "a")
    ask(model, "a", "b")
    assert (model.count("a"), model.occurrences("a")) == (2, 1)
    ask(model, "a", "b", "a")
    assert (model.count("a"), model.occurrences("a")) == (3, 2)


def test_many_clients_are_answered_at_once(model: ScriptedModel):
    model.script["busy"] = Hold("free")
    together = Barrier(20, timeout=10)
    replies: list[str] = []

    def client() -> None:
        with request(model, "POST", "/responses", body_of("busy")) as response:
            together.wait()
            model.release("busy")
            replies.append(text_of([json.loads(line) for line in data_lines(response)]))

    clients = [Thread(target=client) for _ in range(20)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    assert replies == ["free"] * 20
    assert model.count("busy") == 20


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/elsewhere", None, 404),
        ("POST", "/elsewhere", {}, 404),
        ("POST", "/responses", {"no": "input"}, 400),
    ],
)
def test_what_it_does_not_know_is_refused(
    model: ScriptedModel, method: str, path: str, body: Any, status: int
):
    with request(model, method, path, body) as response:
        assert response.status == status
    assert model.prompts == []
