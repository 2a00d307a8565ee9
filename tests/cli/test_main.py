"""The command line as a whole: help that holds, one way to fail, and output that never does."""

import os
import re
import sqlite3
import subprocess
from pathlib import Path

import pytest

from codexdrv import __version__
from codexdrv.cli.main import COMMANDS, _named_command, tell_error
from codexdrv.errors import CodexdrvError, ExitCode, Full
from codexdrv.journal.opening import FILE_NAME
from codexdrv.rules.ownership import Phase
from tests.fakes.orders import THREAD, admit_in, make_order


NAMES = [command.name for command in COMMANDS]
ON_THE_JOURNAL = [
    ["deliver", "--thread", THREAD, "hello"],
    ["status"],
    ["status", "m1"],
    ["list"],
    ["cancel", "m1"],
    ["resolve", "m1", "--as", "failed", "--why", "I looked"],
]
NOT_YET = {
    *("completed", "replies", "watch"),
}
"""Words of commands, flags and choices that do not work yet."""


def kinds_of_errors(kind=CodexdrvError):
    yield kind
    for narrower in kind.__subclasses__():
        yield from kinds_of_errors(narrower)


# Help


def test_no_command_is_a_usage_error(desk):
    ran = desk.call_python("-m", "codexdrv")
    assert (ran.code, ran.out) == (2, "")
    assert ran.sentence == "the following arguments are required: COMMAND."
    assert "See `codexdrv --help`." in ran.err


def test_an_unknown_command_is_a_usage_error_that_names_the_known_ones(desk):
    ran = desk.run("delver")
    assert ran.code == 2
    assert "invalid choice: 'delver'" in ran.sentence
    assert all(name in ran.sentence for name in NAMES)


def test_the_version_is_told(desk):
    assert desk.call_python("-m", "codexdrv", "--version").out == f"codexdrv {__version__}\n"


def test_the_help_names_every_command_and_every_exit_code(desk):
    ran = desk.run("--help")
    assert ran.code == 0
    for command in COMMANDS:
        assert re.search(rf"^    {command.name} +{re.escape(command.help)}$", ran.out, re.MULTILINE)
    codes = ran.out.partition("exit codes: ")[2]
    assert {int(code) for code in re.findall(r"(?:^|\s)(\d+) ", codes)} == set(map(int, ExitCode))


@pytest.mark.parametrize("name", NAMES)
def test_a_command_helps_with_examples_that_it_understands(desk, name):
    ran = desk.run(name, "--help")
    assert (ran.code, ran.err) == (0, "")
    examples = re.findall(
        r"^  .*\bcodexdrv (.+?)(?:   .*)?$", ran.out.partition("examples:")[2], re.MULTILINE
    )
    assert examples
    for example in examples:
        words = example.split(" | ")[0].split()
        assert set(words) & {name}, example
        for word in words:
            if word.startswith("--") and word != "--":
                assert word in ran.out.partition("examples:")[0], example


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in NAMES)])
def test_help_speaks_only_of_what_works(desk, words):
    found = re.findall(r"[a-z_-]+", desk.run(*words).out)
    assert set(found) & NOT_YET == set()


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["list"], "list"),
        (["--config", "status", "list"], "list"),
        (["--config=x", "list", "status"], "list"),
        (["--version"], None),
        (["--config"], None),
        (["nonsense", "list"], None),
        ([], None),
    ],
)
def test_only_the_command_that_runs_is_looked_for(argv, name):
    assert _named_command(argv) == name


# Configuration


def test_the_configuration_can_be_named_before_and_after_the_command(desk):
    other = desk.root / "other.toml"
    other.write_text(f'state.dir = "{desk.root}/other"\n')
    assert desk.run("status", "--config", str(other)).out.startswith(
        f"state       {desk.root}/other"
    )
    assert desk.run("status").out.startswith(f"state       {desk.state}\n")
    # The last one counts, as everywhere.
    assert desk.run("--config", str(other), "status").out.startswith(f"state       {desk.root}/oth")


def test_a_process_takes_its_configuration_from_its_environment(desk):
    script = ("-m", "codexdrv", "list")
    with desk.journal() as journal:
        journal.admit(make_order())
    assert "m1" in desk.call_python(*script).out
    environment = {**desk.environment(), "CODEXDRV_CONFIG": "/nonexistent.toml"}
    process = desk.start_python(*script, env=environment)
    _, err = process.communicate()
    assert process.returncode == 78
    assert err.startswith(b"codexdrv: The configuration /nonexistent.toml cannot be read")


@pytest.mark.field_report("openclaw#60170")
@pytest.mark.parametrize(
    "words",
    [*ON_THE_JOURNAL, ["threads"], ["supervise"], ["doctor"], ["service-template", "systemd"]],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_wrong_configuration_stops_every_command_that_reads_one(desk, words):
    desk.configure("nonsense = 1")
    ran = desk.run(*words)
    assert (ran.code, ran.out) == (78, "")
    assert ran.sentence == f"{desk.config}: the key 'nonsense' is not known."
    assert not desk.state.exists()


# Errors


@pytest.mark.parametrize("kind", list(kinds_of_errors()), ids=lambda kind: kind.__name__)
def test_every_error_has_a_word_of_its_own_and_a_way_to_exit(kind):
    assert kind.exit_code not in {ExitCode.OK, ExitCode.USAGE}
    assert [other for other in kinds_of_errors() if other.code == kind.code] == [kind]


def test_an_error_is_told_in_a_sentence_and_in_an_object_where_asked_for(capsys):
    error = Full("It is full.", hint="Try later.")
    assert tell_error(error, as_json=False) is ExitCode.TRY_LATER
    assert capsys.readouterr() == ("", "codexdrv: It is full.\n  Try later.\n")
    tell_error(Full("It is full."), as_json=True)
    out, err = capsys.readouterr()
    assert out == '{"error": {"code": "full", "message": "It is full.", "hint": ""}}\n'
    assert err == "codexdrv: It is full.\n"


@pytest.mark.parametrize("words", ON_THE_JOURNAL, ids=lambda words: " ".join(words[:2]))
def test_every_command_refuses_a_journal_of_a_newer_version(desk, words):
    desk.journal().close()
    with sqlite3.connect(desk.state / FILE_NAME) as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    ran = desk.run(*words)
    assert (ran.code, ran.out) == (73, "")
    assert ran.sentence == "The journal has version 9; this codexdrv knows version 1."


@pytest.mark.parametrize("words", ON_THE_JOURNAL, ids=lambda words: " ".join(words[:2]))
def test_every_command_names_the_link_that_leads_nowhere(desk, words):
    (desk.root / "xdg").symlink_to(desk.root / "unmounted")
    ran = desk.run(*words)
    assert (ran.code, ran.out) == (73, "")
    assert ran.sentence.endswith(
        f"{desk.root}/xdg is a link to {desk.root}/unmounted, which is not there."
    )
    body = desk.run("deliver", "--target", "ops", "hello", "--json").body
    assert body["error"]["code"] == "journal_unusable"


def test_a_server_that_is_not_there_is_unavailable(desk):
    ran = desk.run("threads", "--json")
    assert (ran.code, ran.body["error"]["code"]) == (69, "no_server")
    assert f"{desk.root}/no.sock" in ran.sentence


# Output


@pytest.fixture(params=[os.pipe, os.openpty], ids=["pipe", "terminal"])
def unread(request):
    """The writing end of a pipe that nobody reads, or a terminal that has hung up."""
    ours, theirs = request.param()
    os.close(ours)
    yield theirs
    os.close(theirs)


@pytest.fixture
def full():
    """A device that is as full as a disk can be."""
    with Path("/dev/full").open("wb") as device:
        yield device


def test_a_reader_that_has_gone_is_no_error_and_costs_no_exit_code(desk, unread):
    with desk.journal() as journal:
        admit_in(journal, Phase.QUEUED)
    assert desk.call("list", stdout=unread) == (0, "", "")
    assert desk.call("status", stdout=unread) == (1, "", "")
    refused = desk.call("cancel", "nobody", "--json", stdout=unread)
    assert refused.code == 66
    assert "Traceback" not in refused.err


def test_a_supervisor_whose_terminal_has_hung_up_ends_well(desk, unread):
    # It says nothing there; a terminal refuses even that.
    assert desk.call("supervise", "--once", stdout=unread).code == 0
    assert desk.call("supervise", "--once", stdout=unread, stderr=unread).code == 0


@pytest.mark.parametrize("words", [["status"], ["list", "--json"], ["list", "--help"]])
def test_an_output_that_is_full_is_said_in_a_sentence_and_a_code(desk, full, words):
    with desk.journal() as journal:
        for number in range(200):
            journal.admit(make_order(f"m{number}", text="x" * 400))
    ran = desk.call(*words, stdout=full)
    # What is unhealthy is so, written or not.
    assert ran.code == (1 if words == ["status"] else 75)
    assert ran.sentence == "The result cannot be written: No space left on device."


def test_a_message_whose_result_cannot_be_written_is_on_disk(desk, full):
    words = ["deliver", "--target", "ops", "--id", "m1", "hello"]
    assert desk.call(*words, stdout=full).code == 75
    again = desk.call(*words, "--json")
    assert (again.code, again.body["duplicate"]) == (0, True)


def test_a_complaint_that_cannot_be_written_does_not_cost_the_exit_code(desk, full, unread):
    for stream in (full, unread):
        assert desk.call("cancel", "nobody", stderr=stream).code == 66
        assert desk.call("cancel", stderr=stream).code == 2
        assert desk.call("cancel", "nobody", "--json", stdout=full, stderr=stream).code == 66


def test_a_list_that_is_longer_than_a_pipe_can_be_cut(desk, unread):
    with desk.journal() as journal:
        for number in range(200):
            journal.admit(make_order(f"m{number}", text="x" * 400))
    assert desk.call("list", "--json", stdout=unread) == (0, "", "")


def test_a_letter_that_the_terminal_lacks_does_not_cost_the_answer(desk):
    with desk.journal() as journal:
        journal.admit(make_order(text="grün …"))
    ascii_only = {**desk.environment(), "PYTHONIOENCODING": "ascii"}
    ran = desk.call("list", env=ascii_only)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("#1  gr\\xfcn \\u2026\n")


def test_a_closed_output_does_not_keep_a_message_from_the_disk(desk):
    script = (
        "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    words = ["--config", str(desk.config), "deliver", "--target", "ops", "--id", "m1", "hello"]
    ran = desk.call_python("-c", script, "-m", "codexdrv", *words)
    assert (ran.code, ran.out) == (0, "")
    with desk.journal() as journal:
        assert journal.delivery(make_order().id).order.text == "hello"


def test_results_go_to_stdout_and_talk_to_stderr(desk):
    ran = desk.call("deliver", "--target", "ops", "--json", "hello", stderr=subprocess.DEVNULL)
    assert ran.body["phase"] == "queued"


# Ctrl-C


INTERRUPTED = """
import signal, sys
from codexdrv.__main__ import run

class Finger:
    @staticmethod
    def find_spec(name, *_):
        if name == module:
            signal.raise_signal(signal.SIGINT)

module = sys.argv.pop()
sys.meta_path.insert(0, Finger)
run()
"""
"""Runs a command; Ctrl-C comes when a module is about to be loaded."""


@pytest.mark.parametrize("module", ["codexdrv.cli.main", "codexdrv.cli.supervise", "anyio"])
def test_a_ctrl_c_before_the_command_runs_is_a_sentence(desk, module):
    words = ("--config", str(desk.config), "supervise", "--once")
    ran = desk.call_python("-c", INTERRUPTED, *words, module)
    assert ran == (130, "", "codexdrv: interrupted.\n")
    assert not desk.state.exists()


def test_a_ctrl_c_that_is_ignored_stays_so(desk):
    # As behind a shell's &.
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{INTERRUPTED}"
    ran = desk.call_python("-c", ignoring, "--config", str(desk.config), "list", "codexdrv.config")
    assert ran == (0, "", "")
