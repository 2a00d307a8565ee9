"""A child of ours, with small Python programs in the place of the server."""

import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from codexdrv.errors import NoServer
from codexdrv.transport.child import (
    LAST_WORDS_S,
    STDERR_LINE_BYTES_MAX,
    STDERR_TAIL_LINES,
    Child,
)
from codexdrv.transport.peer import identify, is_gone
from tests.engine.kit import until
from tests.fakes.streams import receive_all


WAIT_S = 10
LONG_S = 1000
CHECKOUT = Path(__file__).parents[2]

IGNORES_TERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(1000)
"""
ENDS_AT_THE_SECOND_TERM = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)))
print("ready", flush=True)
while True:
    time.sleep(1000)
"""
FINISHES_ITS_TURN = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
time.sleep(1000)
"""
LEAVES_A_GRANDCHILD = """
import subprocess, sys
# It inherits all our pipes.
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
print(grandchild.pid, flush=True)
"""


@asynccontextmanager
async def running(program, *, directory="/", has_pipes=True, heard=None, clock=time.monotonic):
    child = Child(
        (sys.executable, "-c", program),
        environment={"PATH": os.environ["PATH"], "MARK": "set"},
        directory=str(directory),
        on_stderr=(heard if heard is not None else []).append,
        has_pipes=has_pipes,
        clock=clock,
    )
    try:
        yield child
    finally:
        await child.stop(0)
        assert child.has_ended()


async def read_line(stream):
    line = b""
    with anyio.fail_after(WAIT_S):
        while not line.endswith(b"\n"):
            line += await stream.receive(1)
    return line.decode().strip()


async def until_gone(process):
    await until(lambda: is_gone(process))


async def test_what_we_write_it_reads_and_what_it_writes_we_read_up_to_its_end():
    async with running("import sys; print(sys.stdin.readline().upper())") as child:
        stream = child.stream()
        await stream.send(b"hello\n")
        assert await receive_all(stream) == b"HELLO\n\n"
        assert await child.ended_within(WAIT_S)
        assert child.how_it_ended() == "exit code 0"


@pytest.mark.field_report("plannotator#1039")
async def test_a_write_to_a_child_that_has_ended_is_an_error_that_can_be_caught():
    async with running("pass") as child:
        stream = child.stream()
        assert await child.ended_within(WAIT_S)
        with pytest.raises(BrokenPipeError):
            await stream.send(b"x" * 100_000)


async def test_it_has_the_environment_and_the_directory_that_it_was_given(tmp_path):
    program = "import os; print(os.environ['MARK'], os.getcwd(), len(os.environ) < 5)"
    async with running(program, directory=tmp_path) as child:
        assert await read_line(child.stream()) == f"set {tmp_path} True"


@pytest.mark.field_report("kai#487", "CodexBar#2789")
async def test_it_heads_a_session_and_a_group_of_its_own():
    async with running("print('up', flush=True); input()") as child:
        await read_line(child.stream())
        assert os.getsid(child.pid) == child.pid
        assert os.getpgid(child.pid) == child.pid


async def test_the_process_is_the_command_from_its_start_to_its_end():
    async with running("import os; print(os.getpid(), flush=True); input()") as child:
        before = child.identity
        assert await read_line(child.stream()) == str(child.pid)
        assert before == child.identity == identify(child.pid)
    assert is_gone(before)


async def test_a_signal_that_we_ignore_is_not_ignored_by_it():
    child = Child(
        ("/bin/cat", "/proc/self/status"),
        environment={},
        directory="/",
        on_stderr=[].append,
        has_pipes=True,
    )
    status = (await receive_all(child.stream())).decode()
    await child.stop(0)
    (ignored,) = (int(line.split()[1], 16) for line in status.splitlines() if "SigIgn" in line)
    assert not ignored & 1 << (signal.SIGPIPE - 1)


async def test_what_it_says_on_stderr_is_told_line_by_line_and_its_end_is_kept():
    heard = []
    program = "import sys\nfor n in range(100): print('line', n, file=sys.stderr)\nsys.exit(3)"
    async with running(program, heard=heard) as child:
        assert await child.ended_within(WAIT_S)
        await until(lambda: len(heard) == 100)
        tail = "\n".join(f"line {number}" for number in range(100 - STDERR_TAIL_LINES, 100))
        assert child.last_words == tail
        assert child.why_it_ended() == "exit code 3; it said: line 99"


@pytest.mark.parametrize(("later_s", "is_why"), [(LAST_WORDS_S, True), (LAST_WORDS_S + 1, False)])
async def test_what_it_said_long_before_its_end_is_not_why_it_ended(later_s, is_why):
    heard = []
    now_s = [100.0]
    program = "import sys; print('no bubblewrap', file=sys.stderr, flush=True); sys.stdin.read()"
    async with running(program, heard=heard, clock=lambda: now_s[0]) as child:
        await until(lambda: heard)
        now_s[0] += later_s
        os.kill(child.pid, signal.SIGKILL)
        assert await child.ended_within(WAIT_S)
        said = "; it said: no bubblewrap" if is_why else ""
        assert child.why_it_ended() == f"signal SIGKILL{said}"
        # A person may look at it all the same.
        assert child.last_words == "no bubblewrap"


async def test_colours_are_left_out_of_what_it_says():
    heard = []
    program = "import sys; print('\\x1b[31mError\\x1b[0m: no', file=sys.stderr)"
    async with running(program, heard=heard):
        await until(lambda: heard == ["Error: no"])


async def test_an_end_by_a_signal_without_a_name_is_told_by_its_number():
    async with running(f"import os; os.kill(os.getpid(), {signal.SIGRTMIN + 6})") as child:
        assert await child.ended_within(WAIT_S)
        assert child.how_it_ended() == f"signal {signal.SIGRTMIN + 6}"


def pipes():
    """Which pipes we have open, under which numbers."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return {(number, target) for number, target in found if target.startswith("pipe:")}


async def test_its_stderr_is_open_for_as_long_as_a_process_that_left_its_session_holds_it():
    heard = []
    program = (
        "import subprocess, sys, time\n"
        "left = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "print(left.pid, file=sys.stderr, flush=True)"
    )
    before = pipes()
    async with running(program, heard=heard, has_pipes=False):
        await until(lambda: len(heard) == 1)
        (stderr,) = pipes() - before
    # A thread reads it: what is opened next must not get its number.
    is_open = stderr in pipes()
    os.kill(int(heard[0]), signal.SIGKILL)
    assert is_open
    await until(lambda: stderr not in pipes())


async def test_a_long_line_on_stderr_is_cut_and_blank_and_broken_ones_do_no_harm():
    heard = []
    program = (
        "import sys\n"
        f"sys.stderr.buffer.write(b'x' * {STDERR_LINE_BYTES_MAX + 1} + b'\\n\\n  \\n\\xff\\n')"
    )
    async with running(program, heard=heard):
        await until(lambda: len(heard) == 3)
    assert heard == ["x" * STDERR_LINE_BYTES_MAX, "x", "�"]


async def test_much_on_stderr_does_not_stop_it():
    heard = []
    program = "import sys\nfor _ in range(20_000): print('y' * 50, file=sys.stderr)\nprint('done')"
    async with running(program, heard=heard) as child:
        assert await read_line(child.stream()) == "done"


async def test_without_pipes_it_reads_nothing_and_says_nothing_to_us():
    heard = []
    program = "import sys; print(repr(sys.stdin.read()), file=sys.stderr); print('lost')"
    async with running(program, heard=heard, has_pipes=False) as child:
        assert await child.ended_within(WAIT_S)
        await until(lambda: heard == ["''"])


async def test_a_server_that_finishes_its_turn_when_asked_ends_by_itself():
    async with running(FINISHES_ITS_TURN) as child:
        await read_line(child.stream())
        assert await child.stop(LONG_S)
        assert child.how_it_ended() == "exit code 0"


async def test_a_server_that_goes_on_is_asked_again():
    async with running(ENDS_AT_THE_SECOND_TERM) as child:
        await read_line(child.stream())
        assert not await child.stop(0.05)
        assert child.how_it_ended() == "exit code 7"


async def test_a_server_that_does_not_listen_is_killed():
    async with running(IGNORES_TERM) as child:
        await read_line(child.stream())
        assert not await child.stop(0.05, second_grace_s=0.05)
        assert child.how_it_ended() == "signal SIGKILL"


@pytest.mark.field_report("kai#487", "CodexBar#2789")
async def test_its_end_is_seen_though_a_grandchild_holds_its_pipes_and_ends_that_too():
    async with running(LEAVES_A_GRANDCHILD) as child:
        stream = child.stream()
        grandchild = identify(int(await read_line(stream)))
        with pytest.raises(anyio.EndOfStream), anyio.fail_after(WAIT_S):
            await stream.receive()
        assert child.has_ended()
        await until_gone(grandchild)


async def test_stopping_twice_and_after_its_end_is_fine():
    async with running("pass") as child:
        assert await child.ended_within(WAIT_S)
        await child.stop(LONG_S)
        await child.stop(LONG_S)
        assert child.how_it_ended() == "exit code 0"


async def test_its_end_is_waited_for_no_longer_than_asked():
    async with running("input()") as child:
        assert not await child.ended_within(0.05)
        assert child.how_it_ended() == "it still runs"


async def test_a_command_that_is_not_there_says_so(tmp_path):
    child = Child(
        (str(tmp_path / "codex"), "app-server"),
        environment={},
        directory="/",
        on_stderr=[].append,
    )
    assert await child.ended_within(WAIT_S)
    said = f"{tmp_path / 'codex'} cannot be run: No such file or directory."
    assert child.why_it_ended() == f"exit code 1; it said: {said}"
    await child.stop(0)


def test_a_directory_that_is_not_there_is_no_server(tmp_path):
    with pytest.raises(NoServer, match="cannot be started: No such file") as caught:
        Child(("/bin/true",), environment={}, directory=str(tmp_path / "none"), on_stderr=print)
    assert str(tmp_path / "none") in caught.value.hint


PARENT = """
import sys, time
sys.path.insert(0, {checkout!r})
from codexdrv.transport.child import Child
child = Child(
    (sys.executable, "-c", {program!r}),
    environment={{}}, directory="/", on_stderr=lambda line: print(line, flush=True),
)
print(child.pid, flush=True)
time.sleep(1000)
"""
TELLS_OF_TERM = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: (Path({mark!r}).touch(), sys.exit(0)))
print("ready", file=sys.stderr, flush=True)
time.sleep(1000)
"""


async def test_a_parent_that_is_killed_takes_it_along_kindly(tmp_path):
    mark = tmp_path / "told"
    program = PARENT.format(checkout=str(CHECKOUT), program=TELLS_OF_TERM.format(mark=str(mark)))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        child = identify(int(parent.stdout.readline()))
        assert parent.stdout.readline() == b"ready\n"
        parent.kill()
        parent.wait()
        await until_gone(child)
    assert mark.exists()


UNDER_NO_CHILD_SIGNALS = """
import signal, sys, time
sys.path.insert(0, {checkout!r})
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from codexdrv.transport.child import Child
child = Child(("/bin/true",), environment={{}}, directory="/", on_stderr=print)
while not child.has_ended():
    time.sleep(0.005)
print(child.has_ended())
"""


def test_where_nobody_is_told_of_children_its_end_is_seen_all_the_same():
    program = UNDER_NO_CHILD_SIGNALS.format(checkout=str(CHECKOUT))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=10, check=False
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
