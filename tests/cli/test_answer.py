"""`answer`: to the question that was meant, what it can be told, or nothing at all."""

import fcntl
import json
import os
import signal
import socket
import threading
from contextlib import suppress
from enum import StrEnum

import anyio
import pytest

from codexdrv.cli.answer import BUSY_S, EPILOG, _one_at_a_time
from codexdrv.engine.question import question_object
from codexdrv.engine.questions import KnownQuestions, OpenQuestions
from codexdrv.errors import AlreadyRunning
from codexdrv.protocol.questions import Decision
from codexdrv.snapshot import FILE_NAME
from codexdrv.wire.message import Notification, Request, Response, decode, encode
from tests.fakes.orders import THREAD, TURN
from tests.fakes.pictures import ALONE, CONNECTED, QUESTION, make_picture
from tests.fakes.server_framing import WebSocketServerFraming
from tests.public_shapes import check
from tests.virtual_time import VIRTUAL_TIME


PLACE = {"threadId": THREAD, "turnId": TURN, "itemId": "i1"}
COMMAND = Request(0, "item/commandExecution/requestApproval", PLACE | {"command": "rm x"})
PERMISSIONS = Request(
    1, "item/permissions/requestApproval", PLACE | {"permissions": {"network": {"enabled": True}}}
)
INPUT = Request(
    2,
    "item/tool/requestUserInput",
    PLACE
    | {
        "questions": [
            {"id": "a", "isOther": False, "options": [{"label": "x"}, {"label": "y"}]},
            {"id": "b"},
        ]
    },
)
FORM = Request(
    3,
    "mcpServer/elicitation/request",
    PLACE | {"mode": "form", "message": "Who?", "requestedSchema": {"required": ["name"]}},
)
TOOL = Request(4, "item/tool/call", PLACE | {"tool": "look"})
HIDDEN = Request(5, COMMAND.method, PLACE | {"command": "ls " + " " * 9_000})
ALL = (COMMAND, PERMISSIONS, INPUT, FORM, TOOL, HIDDEN)

REPLIES = ("--reply", "a=x", "--reply", "b=what I mean")


class Then(StrEnum):
    """What the server does when it has an answer."""

    SETTLE = "settle"
    #: And its item ends so.
    COMPLETE = "completed"
    REFUSE = "declined"
    HANG_UP = "hang up"
    KEEP_SILENT = "keep silent"


class AskingServer:
    """A server that asks, in a thread of this process; it notes what it is told."""

    def __init__(self, path):
        self.asks = list(ALL)
        self.status = "active"
        self.then = Then.SETTLE
        self.heard = []
        self.has_answer = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def answers(self):
        return [each for each in self.heard if not isinstance(each, Request | Notification)]

    @property
    def methods(self):
        return [each.method for each in self.heard if isinstance(each, Request)]

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self):
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                # A command that has what it wants leaves without reading on.
                with connection, suppress(OSError):
                    self._talk(connection)

    def _talk(self, connection):
        framing = WebSocketServerFraming()
        while not framing.is_closed and (data := connection.recv(65_536)):
            for frame in framing.receive_data(data):
                message = decode(frame)
                self.heard.append(message)
                for said in self._say(message):
                    framing.send_message(encode(said))
            if self.answers and self.then is Then.HANG_UP:
                return
            connection.sendall(framing.data_to_send())

    def _say(self, message):
        match message:
            case Request(id=number, method="initialize"):
                yield Response(number, {"userAgent": "codex/0.171.0 (Linux)", "codexHome": "/h"})
            case Request(id=number, method="thread/read"):
                yield Response(number, {"thread": self._shape()})
            case Request(id=number, method="thread/resume"):
                yield Response(number, {"thread": self._shape()})
                yield from self.asks
            case Request(id=number):
                yield Response(number, {})
            case Response(id=number):
                self.has_answer.set()
                yield from self._settle(number)

    def _shape(self):
        status = {"type": self.status}
        return {"id": THREAD, "status": status, "path": None, "cwd": "/", "preview": ""}

    def _settle(self, number):
        if self.then not in {Then.HANG_UP, Then.KEEP_SILENT}:
            settled = {"threadId": THREAD, "requestId": number}
            yield Notification("serverRequest/resolved", settled)
        if self.then in {Then.COMPLETE, Then.REFUSE}:
            item = {"id": "i1", "status": self.then}
            yield Notification("item/completed", {"threadId": THREAD, "turnId": TURN, "item": item})


@pytest.fixture
def server(desk):
    desk.hang_up_bell()
    server = AskingServer(desk.root / "no.sock")
    list_open(desk, *ALL)
    yield server
    server.close()


def list_open(desk, *requests, **kept):
    """Write the status file of a supervisor that hears these; not in the server's process."""
    questions = OpenQuestions(KnownQuestions(), None)
    for request in requests:
        questions.ask(request)
    bodies = [question_object(each) for each in questions.all()]
    kept = {"server": CONNECTED | {"pid": None, "start_ticks": None}} | kept
    picture = make_picture(questions=bodies, **kept)
    (desk.state / FILE_NAME).write_text(json.dumps(picture))


def name_of(request):
    questions = OpenQuestions(KnownQuestions(), None)
    questions.ask(request)
    return questions.all()[0].id


def answer(desk, request, decision, *more):
    return desk.run("answer", name_of(request), "--decision", decision, *more)


# What is answered


@pytest.mark.parametrize(
    ("asked", "words", "result"),
    [
        (COMMAND, ["accept"], {"decision": "accept"}),
        (COMMAND, ["accept-for-session"], {"decision": "acceptForSession"}),
        (COMMAND, ["decline"], {"decision": "decline"}),
        (COMMAND, ["cancel"], {"decision": "cancel"}),
        (HIDDEN, ["decline"], {"decision": "decline"}),
        (
            *(PERMISSIONS, ["accept"]),
            {"permissions": {"network": {"enabled": True}}, "scope": "turn"},
        ),
        (PERMISSIONS, ["decline"], {"permissions": {}}),
        (
            *(INPUT, ["accept", *REPLIES]),
            {"answers": {"a": {"answers": ["x"]}, "b": {"answers": ["what I mean"]}}},
        ),
        (INPUT, ["decline"], {"answers": {}}),
        (
            *(FORM, ["accept", "--content", '{"name": "ü"}']),
            {"action": "accept", "content": {"name": "ü"}},
        ),
        (FORM, ["cancel"], {"action": "cancel"}),
    ],
)
def test_the_answer_goes_to_its_question_and_to_no_other(desk, server, asked, words, result):
    ran = answer(desk, asked, *words)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{name_of(asked)} is settled: ")
    assert server.answers == [Response(asked.id, result)]


def test_it_says_no_more_than_can_be_seen(desk, server):
    doubt = " is settled: by accept, unless somebody else's answer came first.\n"
    for asked in (COMMAND, PERMISSIONS):
        assert answer(desk, asked, "accept").out.endswith(doubt)
    server.then = Then.COMPLETE
    assert answer(desk, PERMISSIONS, "accept").out.endswith(doubt)
    assert answer(desk, COMMAND, "accept").out.endswith(" is settled: the server took accept.\n")


def test_it_resumes_the_thread_as_it_is(desk, server):
    answer(desk, PERMISSIONS, "accept")
    (resumed,) = [each for each in server.heard if getattr(each, "method", "") == "thread/resume"]
    assert resumed.params == {"threadId": THREAD, "excludeTurns": True}
    assert server.methods == ["initialize", "thread/read", "thread/resume"]


def test_four_digits_of_an_id_will_do(desk, server):
    server.then = Then.REFUSE
    ran = desk.run("answer", name_of(COMMAND)[:4], "--decision", "decline", "--json")
    assert ran.code == 0
    check("answered", ran.body)
    assert ran.body == {"id": name_of(COMMAND), "decision": "decline", "outcome": "taken"}


def test_whoever_is_late_is_told_so(desk, server):
    server.then = Then.REFUSE
    ran = answer(desk, COMMAND, "accept")
    assert ran.code == 1
    assert ran.out == (
        f"{name_of(COMMAND)} is settled, but not as you said: somebody else's answer came first.\n"
    )
    assert answer(desk, COMMAND, "accept", "--json").body["outcome"] == "late"


def test_a_server_that_goes_when_it_has_the_answer_leaves_it_unclear(desk, server):
    server.then = Then.HANG_UP
    ran = answer(desk, COMMAND, "accept")
    assert (ran.code, ran.err) == (3, "")
    assert ran.out == (
        f"accept was sent to {name_of(COMMAND)}; the server has not said that it is settled.\n"
    )
    assert len(server.answers) == 1


def test_whoever_gives_up_is_told_that_the_answer_is_on_its_way(desk, server):
    server.then = Then.KEEP_SILENT
    child = desk.start("answer", name_of(COMMAND), "--decision", "accept", "--json")
    assert server.has_answer.wait(10)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate()
    assert (child.returncode, err) == (3, b"")
    assert json.loads(out)["outcome"] == "unclear"


# What is refused: nothing is sent


def refuse(desk, server, *words):
    """Run a command that sends no answer."""
    ran = desk.run("answer", *words)
    assert ran.out == ""
    assert server.answers == []
    return ran


@pytest.mark.parametrize("word", ["", "0", name_of(COMMAND)[:3]])
def test_too_short_an_id_could_mean_what_was_asked_since(desk, server, word):
    ran = refuse(desk, server, word, "--decision", "accept")
    assert ran.code == 2
    assert ran.sentence == "an ID is 4 digits or more of a question's."
    assert server.heard == []


@pytest.mark.parametrize("word", ["ffff", name_of(COMMAND) + "0", "\x1b[2Jab", "gr\udcfcn", "****"])
def test_a_question_that_is_not_open_is_not_found(desk, server, word):
    ran = refuse(desk, server, word, "--decision", "accept")
    assert ran.code == 66
    assert ran.sentence == f"No open question has an id that begins with {word!r}."
    assert "`codexdrv attention` lists what is open." in ran.err
    assert server.heard == []


def test_an_id_that_fits_several_is_refused(desk, server):
    several = [QUESTION | {"id": f"abcdef{number:010x}"} for number in range(3)]
    (desk.state / FILE_NAME).write_text(json.dumps(make_picture(questions=several)))
    ran = refuse(desk, server, "abcde", "--decision", "accept")
    assert (ran.code, ran.sentence) == (65, "3 open questions have an id that begins with 'abcde'.")
    assert "Give more of it." in ran.err


STRAY_REPLY = (
    "A reply goes with a question of the kind input, and not to this (command).\n"
    "  Leave --reply out."
)
STRAY_CONTENT = (
    "Content goes with a question of the kind elicitation, and not to this (command).\n"
    "  Leave --content out."
)
NO_WORDS = "{} goes with accept, and not with decline.\n  Leave {} out, or say --decision accept."
EACH = (
    "It wants a reply to each of these, and to no other: “a”, “b”.\n"
    "  Give each as --reply QUESTION=TEXT."
)
LACKING = "Accepted, it wants content with: “name”.\n  Give it as --content."


@pytest.mark.parametrize(
    ("asked", "words", "said"),
    [
        (
            *(PERMISSIONS, ["cancel"]),
            (
                f"To {name_of(PERMISSIONS)} (permissions) no operator can say cancel.\n"
                "  Say one of: accept, accept-for-session, decline. Or answer in another client."
            ),
        ),
        (
            *(INPUT, ["accept-for-session", *REPLIES]),
            (
                f"To {name_of(INPUT)} (input) no operator can say accept-for-session.\n"
                "  Say one of: accept, decline. Or answer in another client."
            ),
        ),
        (
            *(HIDDEN, ["accept"]),
            (
                f"To {name_of(HIDDEN)} (command) no operator can say accept.\n"
                "  Say one of: decline, cancel. Or answer in another client."
            ),
        ),
        (
            *(TOOL, ["decline"]),
            (
                f"No operator can answer {name_of(TOOL)} (tool call).\n"
                "  Only the client that brought the tool into the thread can."
            ),
        ),
        (COMMAND, ["accept", "--reply", "a=x"], STRAY_REPLY),
        (INPUT, ["decline", "--reply", "a=x"], NO_WORDS.format("A reply", "--reply")),
        (COMMAND, ["accept", "--content", "{}"], STRAY_CONTENT),
        (FORM, ["decline", "--content", "{}"], NO_WORDS.format("Content", "--content")),
        (INPUT, ["accept"], EACH),
        (INPUT, ["accept", "--reply", "a=x"], EACH),
        (INPUT, ["accept", *REPLIES, "--reply", "c=z"], EACH),
        (
            *(INPUT, ["accept", "--reply", "a=z", "--reply", "b=z"]),
            ("“a” can be replied to with one of: “x”, “y”.\n  Give one of them, word for word."),
        ),
        (FORM, ["accept"], LACKING),
        (FORM, ["accept", "--content", '{"other": 1}'], LACKING),
    ],
)
def test_what_a_question_cannot_be_told_is_refused(desk, server, asked, words, said):
    ran = refuse(desk, server, name_of(asked), "--decision", *words)
    assert ran.code == 65
    assert ran.err == f"codexdrv: {said}\n"
    ran = desk.run("answer", name_of(asked), "--json", "--decision", *words)
    assert (ran.code, ran.body["error"]["code"]) == (65, "bad_input")
    assert server.answers == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: --decision"),
        (["--decision", "yes"], "invalid choice: 'yes'"),
        (["--decision", "accept", "--reply", "x"], "'x' is not QUESTION=TEXT"),
        (["--decision", "accept", "--reply", "=x"], "'=x' is not QUESTION=TEXT"),
        (["--decision", "accept", "--reply", "a="], "no reply stands behind 'a'"),
        (["--decision", "accept", "--reply", "a= \t"], "no reply stands behind 'a'"),
        (["--decision", "accept", "--reply", "a=…"], "no reply stands behind 'a'"),
        (["--decision", "accept", "--reply", "a=gr\udcfcn"], "valid UTF-8"),
        (["--decision", "accept", "--content", "name"], "it is no JSON: "),
        (["--decision", "accept", "--content", '{"name": NaN}'], "it is no JSON: "),
        (["--decision", "accept", "--content", '{"name": …}'], "it is no JSON: "),
        (["--decision", "accept", "--content", '"gr\udcfcn"'], "it is no JSON: "),
        (["--decision", "accept", "--content", "[" * 2_000], "it is no JSON: "),
        (["--decision", "accept", "--content", "[]"], "it is no JSON object"),
        (["--decision", "accept", "more"], "not expected here: more"),
    ],
)
def test_what_is_no_answer_is_a_usage_error(desk, server, words, said):
    ran = refuse(desk, server, name_of(INPUT), *words)
    assert ran.code == 2
    assert said in ran.sentence
    assert server.heard == []


def test_a_word_that_is_no_decision_is_told_the_four_that_are(desk, server):
    ran = refuse(desk, server, name_of(INPUT), "--decision", "yes")
    # Some versions of Python quote them.
    words = "accept, accept-for-session, decline, cancel"
    assert f"(choose from {words})" in ran.sentence.replace("'", "")


def test_a_question_that_any_later_server_could_ask_is_left_to_others(desk, server):
    anywhere = COMMAND._replace(params={"threadId": THREAD, "command": "rm x"})
    server.asks = [anywhere]
    list_open(desk, anywhere)
    ran = refuse(desk, server, name_of(anywhere), "--decision", "accept")
    assert ran.code == 65
    assert ran.sentence == f"{name_of(anywhere)} cannot be answered for certain."
    assert "answer in another client" in ran.err


# What has changed since it was listed: nothing is sent


@pytest.mark.parametrize(
    "asked_now", [[], [COMMAND._replace(params=COMMAND.params | {"command": "rm -rf ~"})]]
)
def test_another_question_than_the_one_that_was_listed_is_not_answered(desk, server, asked_now):
    server.asks = asked_now
    ran = refuse(desk, server, name_of(COMMAND), "--decision", "accept")
    assert ran.code == 66
    assert ran.sentence.startswith(f"{name_of(COMMAND)} is not open any more")


def test_a_thread_that_is_not_loaded_any_more_is_left_alone(desk, server):
    server.status = "notLoaded"
    assert refuse(desk, server, name_of(COMMAND), "--decision", "accept").code == 66
    assert "thread/resume" not in server.methods


def test_without_a_server_nobody_is_asked(desk, server):
    desk.config.write_text(desk.config.read_text().replace("no.sock", "other.sock"))
    ran = refuse(desk, server, name_of(COMMAND), "--decision", "accept")
    assert ran.code == 69
    assert ran.err.startswith("codexdrv: No server listens at ")


@pytest.mark.parametrize(
    ("is_up", "kept", "said"),
    [
        (False, {}, "No supervisor is running"),
        (True, {"server": ALONE}, "nothing listens on /x.sock"),
        (True, {"version": "0.0.9"}, "The supervisor is codexdrv 0.0.9"),
    ],
)
def test_without_a_list_there_is_nothing_to_answer(desk, server, is_up, kept, said):
    (desk.state / FILE_NAME).write_text(json.dumps(make_picture() | kept))
    if not is_up:
        desk.close()
    ran = refuse(desk, server, name_of(COMMAND), "--decision", "accept")
    assert ran.code == 69
    assert said in ran.err
    assert server.heard == []


def test_a_server_that_talks_to_its_supervisor_alone_cannot_be_answered(desk, server):
    text = desk.config.read_text().replace("server.socket", "# server.socket")
    desk.config.write_text(text + 'server = { mode = "spawn", listen = "stdio" }\n')
    ran = refuse(desk, server, name_of(COMMAND), "--decision", "accept")
    assert (ran.code, ran.sentence) == (
        69,
        "The server talks to its supervisor alone: listen is stdio.",
    )
    assert 'listen = "unix"' in ran.err


# One after the other


@pytest.fixture
def anyio_backend():
    return VIRTUAL_TIME


async def test_an_answer_waits_for_the_one_before_it_and_not_for_ever(tmp_path):
    holder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    began = anyio.current_time()
    with pytest.raises(AlreadyRunning):
        async with _one_at_a_time(str(tmp_path)):
            pass
    assert BUSY_S <= anyio.current_time() - began < BUSY_S + 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_release_later, holder)
        async with _one_at_a_time(str(tmp_path)):
            pass


async def _release_later(holder):
    await anyio.sleep(BUSY_S / 2)
    os.close(holder)


def test_the_help_says_what_each_word_does_and_what_each_code_means(desk):
    out = desk.run("answer", "--help").out
    assert EPILOG in out
    for decision in Decision:
        assert f"{decision}:" in EPILOG
    for word in ("--reply QUESTION=TEXT", "--content JSON", "nothing was sent"):
        assert word in out
