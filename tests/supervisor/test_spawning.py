"""A server of our own, with a small Python program in the place of codex."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import AsyncExitStack

import anyio
import pytest
import structlog

from codexdrv.binary import SOURCE_BUNDLED, Binary
from codexdrv.config import Listen, Server, Spawn
from codexdrv.errors import (
    LinkLost,
    MalformedFrame,
    MalformedMessage,
    NoCodex,
    NoServer,
    ServerEnded,
    ServerKeepsDying,
    UnsafeSocket,
)
from codexdrv.transport.peer import identify, is_gone
from supervisor.deaths import LAST_WORDS_MAX
from supervisor.leftover import load_server, note_server
from supervisor.rules import DEATHS_WINDOW_S, HUNG_S, Silence
from supervisor.spawning import OwnServer, connecting
from tests.engine.kit import until


GRACE_S = 1000.0

LISTENS = """
import socket, sys, time
assert sys.argv[1:3] == ["app-server", "--listen"], sys.argv
path = sys.argv[3].removeprefix("unix://")
listener = socket.socket(socket.AF_UNIX)
try:
    listener.bind(path)
except OSError:
    import os
    os.unlink(path)
    listener.bind(path)
links = []
listener.listen()
while True:
    links.append(listener.accept()[0])
"""
ANSWERS = """
import sys
from websockets.sync.server import unix_serve
def answer(link):
    for message in link:
        link.send(message)
with unix_serve(answer, sys.argv[3].removeprefix("unix://")) as server:
    server.serve_forever()
"""
READS_LINES = """
import sys
assert sys.argv[1:] == ["app-server"], sys.argv
for line in sys.stdin:
    print(line, end="", flush=True)
"""
FAILS = """
import sys
sys.exit("Error: no good configuration")
"""


@pytest.fixture
def make(tmp_path):
    """Write a program; make the configuration of a server that runs it."""
    (tmp_path / "home").mkdir()

    def make(program, listen=Listen.UNIX):
        codex = tmp_path / "codex"
        codex.write_text(f"#!{sys.executable}\n{program}")
        codex.chmod(0o755)
        spawn = Spawn(listen, "decline", GRACE_S)
        home = str(tmp_path / "home")
        environment = {"PATH": os.environ["PATH"]}
        return Server(str(tmp_path / "s"), home, str(codex), environment, spawn)

    return make


def find(named, _search_path):
    """Take what is named: a script is no native executable."""
    return Binary(named, "the configuration", None)


def open_server(server):
    return connecting(server, find=find)


async def speak(connect):
    """Say a line and hear it; return the connection, which is over."""
    heard = []
    async with connect() as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(connection.channel.run, heard.append)
        connection.channel.post(b'{"id":1}')
        await until(lambda: heard == [b'{"id":1}'])
        tasks.cancel_scope.cancel()
    return connection


async def kill_and_run(connect):
    async with connect() as connection:
        os.kill(connection.pid, signal.SIGKILL)
        await connection.channel.run(lambda _: None)


async def leave(connect, error):
    async with connect() as connection:
        await connection.channel.aclose()
        raise error


async def test_it_runs_from_the_first_connection_to_the_end(make):
    server = make(LISTENS)
    async with open_server(server) as connect:
        assert not os.path.exists(server.socket)
        async with connect() as connection:
            process = identify(connection.pid)
            assert not is_gone(process)
        # The connection is over, the server is not.
        async with connect() as connection:
            assert identify(connection.pid) == process
    assert is_gone(process)


async def test_a_server_that_has_ended_is_started_anew(make):
    async with open_server(make(LISTENS)) as connect:
        async with connect() as connection:
            first = identify(connection.pid)
        os.kill(first.pid, signal.SIGKILL)
        await until(lambda: is_gone(first))
        async with connect() as connection:
            assert identify(connection.pid) != first


async def test_a_connection_that_ends_with_its_server_says_how_that_ended(make):
    async with open_server(make(LISTENS)) as connect:
        with pytest.raises(ServerEnded, match=r"has ended: signal SIGKILL$"):
            await kill_and_run(connect)


async def test_a_connection_that_ends_alone_is_no_end_of_the_server(make):
    async with open_server(make(LISTENS)) as connect:
        with pytest.raises(LinkLost, match="cut") as caught:
            async with connect():
                raise LinkLost("cut")
    assert type(caught.value) is LinkLost


async def test_a_server_that_does_not_come_up_is_quoted(make):
    async with open_server(make(FAILS)) as connect:
        # Once: the connection has ended by that, and has nothing to add.
        said = r"^codex app-server has ended: exit code 1; it said: Error: no good configuration$"
        with pytest.raises(ServerEnded, match=said):
            async with connect():
                pass


async def test_a_server_that_keeps_dying_is_given_up_with_its_last_words(make):
    server = make(FAILS.replace("sys.exit(", 'sys.exit("Caused by:\\n  a missing comma\\n" + '))
    server = server._replace(spawn=server.spawn._replace(deaths_max=3))
    async with open_server(server) as connect:
        for _ in range(2):
            with pytest.raises(ServerEnded):
                async with connect():
                    pass
        # At the death, and not after one more pause.
        with pytest.raises(ServerKeepsDying) as caught, structlog.testing.capture_logs() as logged:
            async with connect():
                pass
    said = "Caused by:\n  a missing comma\nError: no good configuration"
    assert caught.value.message == (
        "codex app-server has died 3 times within 10 minutes; the last time: exit code 1."
        f"\nThe end of what it said on stderr:\n{said}"
    )
    (line,) = [line for line in logged if line["event"] == "server.given_up"]
    assert line["log_level"] == "error"
    assert (line["deaths"], line["how"], line["stderr"]) == (3, "exit code 1", said)


async def test_a_server_that_may_not_die_once_is_given_up_at_its_first_death(make):
    server = make(LISTENS)
    server = server._replace(spawn=server.spawn._replace(deaths_max=1))
    async with open_server(server) as connect:
        with pytest.raises(ServerKeepsDying) as caught:
            await kill_and_run(connect)
    # It said nothing.
    assert caught.value.message == "codex app-server has died once: signal SIGKILL."


@pytest.mark.parametrize(
    ("end", "level", "how"),
    [
        ("os.kill(os.getpid(), 9)", "warning", "signal SIGKILL"),
        ("sys.exit(3)", "warning", "exit code 3"),
        ("sys.exit(0)", "info", "exit code 0"),
    ],
)
async def test_a_death_is_logged_when_it_comes_and_louder_when_it_is_no_good_end(
    make, end, level, how
):
    server = make(f"import os, sys\n{end}")
    own = OwnServer(server, server.spawn, find)
    with structlog.testing.capture_logs() as logged, pytest.raises(ServerEnded):
        async with own.connect():
            pass
    (line,) = [line for line in logged if line["event"] == "server.ended"]
    assert (line["log_level"], line["how"]) == (level, how)
    assert own.pid is None


async def test_of_last_words_that_are_long_the_error_has_the_end(make):
    server = make("import sys\nfor n in range(10): print(n, 'x' * 4000, file=sys.stderr)")
    own = OwnServer(server, server.spawn._replace(deaths_max=1), find)
    with pytest.raises(ServerKeepsDying) as caught:
        async with own.connect():
            pass
    end = caught.value.message.partition(" on stderr:\n")[2]
    assert len(end) == LAST_WORDS_MAX
    assert end.endswith("\n9 " + "x" * 4000)


async def test_deaths_of_long_ago_and_ends_that_we_wanted_do_not_count(make):
    server = make(LISTENS)
    own = OwnServer(server, server.spawn._replace(deaths_max=2), find)
    own._deaths.times_s = (anyio.current_time() - DEATHS_WINDOW_S - 1,) * 9
    for _ in range(3):
        async with own.connect() as connection:
            process = identify(connection.pid)
        # As for an upgrade.
        await own.renew()
        assert is_gone(process)
    async with own.connect() as connection:
        os.kill(connection.pid, signal.SIGKILL)
        process = identify(connection.pid)
    await until(lambda: is_gone(process))
    async with own.connect():
        pass
    assert len(own._deaths.times_s) == 1
    await own.stop()


SPARE_S = 0.1


def near_the_end_of_patience():
    return Silence(HUNG_S - SPARE_S, anyio.current_time())


async def sit_silent(own):
    """Hold a connection, or try to have one, for as long as there is patience left."""
    with anyio.move_on_after(2 * SPARE_S):
        async with own.connect():
            await anyio.sleep_forever()


@pytest.mark.parametrize("is_unlinked", [False, True])
async def test_a_server_that_has_answered_nothing_for_minutes_is_replaced(make, is_unlinked):
    server = make(LISTENS)
    own = OwnServer(server, server.spawn._replace(deaths_max=2), find)
    for _ in range(2):
        async with own.connect() as connection:
            hangs = identify(connection.pid)
        own._silence = near_the_end_of_patience()
        if is_unlinked:
            os.unlink(server.socket)
        await sit_silent(own)
        assert not is_gone(hangs)
    with pytest.raises(ServerKeepsDying, match="it answered nothing for 3 minutes: signal SIGTERM"):
        async with own.connect():
            pass
    assert is_gone(hangs)


async def test_a_server_that_answers_now_and_then_is_kept(make):
    server = make(ANSWERS)
    own = OwnServer(server, server.spawn, find)
    async with own.connect() as connection:
        process = identify(connection.pid)
    own._silence = near_the_end_of_patience()
    assert (await speak(own.connect)).pid == process.pid
    await sit_silent(own)
    async with own.connect() as connection:
        assert identify(connection.pid) == process
    await own.stop()


async def test_a_server_that_could_not_be_asked_is_not_silent(make):
    server = make(LISTENS)
    own = OwnServer(server, server.spawn, find)
    async with own.connect() as connection:
        process = identify(connection.pid)
    own._silence = near_the_end_of_patience()
    os.chmod(os.path.dirname(server.socket), 0o777)
    with pytest.raises(UnsafeSocket):
        await sit_silent(own)
    os.chmod(os.path.dirname(server.socket), 0o700)
    await sit_silent(own)
    async with own.connect() as connection:
        assert identify(connection.pid) == process
    await own.stop()


async def test_beside_another_server_none_is_started_and_that_one_is_left_alone(make):
    server = make(FAILS)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(server.socket)
        other.listen()
        async with open_server(server) as connect:
            with pytest.raises(UnsafeSocket, match=rf"already \(pid {os.getpid()}\)") as caught:
                async with connect():
                    pass
        assert 'mode = "attach"' in caught.value.hint
        with socket.socket(socket.AF_UNIX) as again:
            again.connect(server.socket)


async def test_a_socket_that_others_could_replace_is_refused_before_anything_is_started(make):
    server = make(LISTENS)
    os.chmod(os.path.dirname(server.socket), 0o777)
    async with open_server(server) as connect:
        with pytest.raises(UnsafeSocket, match="Others may write"):
            async with connect():
                pass
    assert not os.path.exists(server.socket)


async def test_a_home_that_is_not_there_is_no_server(make):
    server = make(LISTENS)
    os.rmdir(server.codex_home)
    async with open_server(server) as connect:
        with pytest.raises(NoServer, match="is not there") as caught:
            async with connect():
                pass
    assert "codex login" in caught.value.hint


async def test_over_stdio_it_is_heard_and_each_connection_is_a_process(make):
    async with open_server(make(READS_LINES, Listen.STDIO)) as connect:
        one = (await speak(connect)).peer
        other = (await speak(connect)).peer
        assert is_gone(one)
        assert not is_gone(other)
    assert is_gone(other)


async def test_over_stdio_the_end_of_the_server_is_the_end_of_the_connection(make):
    async with open_server(make(READS_LINES, Listen.STDIO)) as connect:
        with pytest.raises(ServerEnded, match=r"has ended: signal SIGKILL$"):
            await kill_and_run(connect)


@pytest.mark.parametrize("error", [MalformedMessage("no id"), MalformedFrame("?"), LinkLost("cut")])
async def test_over_stdio_a_connection_that_we_leave_is_no_death_of_the_server(make, error):
    server = make(READS_LINES, Listen.STDIO)
    server = server._replace(spawn=server.spawn._replace(deaths_max=1))
    async with open_server(server) as connect:
        for _ in range(3):
            with pytest.raises(type(error)) as caught:
                await leave(connect, error)
            # It ends with its pipes; that is not why the connection has ended.
            assert caught.value is error


async def test_a_server_that_was_never_wanted_is_never_started(make):
    server = make(LISTENS)
    await OwnServer(server, server.spawn, find).stop()
    assert not os.path.exists(server.socket)


async def test_a_server_of_somebody_else_is_connected_to_and_left_alone(tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        other.listen()
        server = Server(path, str(tmp_path))
        async with connecting(server) as connect, connect() as connection:
            assert connection.pid == os.getpid()


IGNORES_TERM = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
"""


async def test_a_stop_that_was_cancelled_is_made_good_by_the_next_one(make):
    server = make(IGNORES_TERM, Listen.STDIO)
    own = OwnServer(server, server.spawn._replace(stop_grace_s=0.05), find)
    heard = []
    async with own.connect() as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(connection.channel.run, heard.append)
        await until(lambda: heard == [b"ready"])
        process = identify(connection.pid)
        tasks.cancel_scope.cancel()
    with anyio.move_on_after(0.01):
        await own.stop()
    assert not is_gone(process)
    await own.stop()
    assert is_gone(process)


LISTENS_UNTIL_TOLD = LISTENS.replace("import socket", "import os, signal, socket").replace(
    "links = []",
    """links = []
def leave(*_):
    os.unlink(path)
    for link in links:
        link.close()
    listener.close()
    signal.pause()
signal.signal(signal.SIGTERM, leave)
""",
)


async def test_a_server_that_is_started_while_the_one_before_it_is_stopped_is_kept(make, tmp_path):
    server = make(LISTENS_UNTIL_TOLD)
    own = OwnServer(server, server.spawn, find, str(tmp_path))
    async with own.connect() as connection:
        old = connection.pid
    async with AsyncExitStack() as opened:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(own.renew)
            await until(lambda: not os.path.exists(server.socket))
            os.kill(old, signal.SIGKILL)
            # Nobody else runs meanwhile: who stops it has not seen its end yet.
            os.waitid(os.P_PID, old, os.WEXITED | os.WNOWAIT)
            connection = await opened.enter_async_context(own.connect())
        new = identify(connection.pid)
        noted = load_server(str(tmp_path))
        os.kill(new.pid, signal.SIGKILL)
        await own.stop()
    assert noted == new
    assert is_gone(new)


async def test_an_upgrade_that_moved_the_executable_is_followed(make, tmp_path):
    server = make(LISTENS)
    places = [server.codex]

    def find_now(_named, _search_path):
        if not os.path.exists(places[-1]):
            raise NoCodex("There is no codex now.", hint="Install it.")
        return Binary(places[-1], "PATH", None)

    async with connecting(server, find=find_now) as connect:
        async with connect() as connection:
            first = identify(connection.pid)
        os.rename(places[0], tmp_path / "codex-2")
        os.kill(first.pid, signal.SIGKILL)
        await until(lambda: is_gone(first))
        with pytest.raises(NoServer, match="no codex now"):
            async with connect():
                pass
        places.append(str(tmp_path / "codex-2"))
        async with connect() as connection:
            assert identify(connection.pid) != first


@pytest.mark.parametrize("is_restored", [False, True])
async def test_the_bundled_one_does_not_take_the_place_of_one_that_is_being_installed(
    make, tmp_path, is_restored
):
    server = make(LISTENS)
    bundled = tmp_path / "bundled"
    bundled.write_bytes((tmp_path / "codex").read_bytes())
    bundled.chmod(0o755)

    def find_now(named, _search_path):
        if os.path.exists(named):
            return Binary(named, "PATH", None)
        return Binary(str(bundled), SOURCE_BUNDLED, None)

    own = OwnServer(server, server.spawn, find_now)
    async with own.connect():
        pass
    os.rename(server.codex, tmp_path / "aside")
    await own.renew()
    with pytest.raises(NoServer, match=r"no codex at .*/codex any more, and none on PATH"):
        async with own.connect():
            pass
    if is_restored:
        os.rename(tmp_path / "aside", server.codex)
    else:
        own = OwnServer(server, server.spawn, find_now)
    async with own.connect():
        assert own.origin.place == (server.codex if is_restored else str(bundled))
    await own.stop()


async def test_what_an_earlier_life_left_is_named_for_as_long_as_it_is_waited_for(make, tmp_path):
    server = make(LISTENS)
    own = OwnServer(server, server.spawn, find, str(tmp_path))
    told = []
    own.on_change = lambda: told.append(own.waits_for)
    pipe = subprocess.PIPE
    with subprocess.Popen(["/bin/cat"], stdin=pipe, stdout=pipe) as left:
        note_server(str(tmp_path), identify(left.pid))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enter, own)
            await until(lambda: told)
            # It finishes its turn, and goes.
            left.stdin.close()
            await until(lambda: own.pid)
            tasks.cancel_scope.cancel()
    await own.stop()
    said = (
        f"still runs (pid {left.pid}): it has up to 1000 s to finish its turns, and is ended then."
    )
    assert told == [f"The server that an earlier life left {said}", None]


async def enter(own):
    async with own.connect():
        await anyio.sleep_forever()


async def test_a_stop_that_takes_long_is_told_and_so_is_one_that_was_cut(make):
    server = make(IGNORES_TERM, Listen.STDIO)
    own = OwnServer(server, server.spawn._replace(stop_grace_s=1.1), find)
    heard = []
    async with own.connect() as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(connection.channel.run, heard.append)
        await until(lambda: heard == [b"ready"])
        tasks.cancel_scope.cancel()
    with structlog.testing.capture_logs() as logged:
        await own.stop()
    assert [(line["event"], line["log_level"]) for line in logged] == [
        ("server.stopping", "info"),
        ("server.stopped", "warning"),
    ]
    assert logged[0]["up_to_s"] == 1.1
    assert own.was_cut
