"""`doctor`: each check in each state it knows, and nothing on the machine is changed by it."""

import json
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from codexdrv import __version__, lock
from codexdrv.binary import Binary, bundled_binary
from codexdrv.cli.doctor import tell
from codexdrv.config import load_config, parse_config
from codexdrv.doctor import codex, environment, journal, places, resident
from codexdrv.doctor.finding import Finding, State, look_at
from codexdrv.errors import NoServer
from codexdrv.health import OLD_MS, Machine, judge_health, server_table
from codexdrv.journal.opening import FILE_NAME
from codexdrv.journal.rows import Summary
from codexdrv.paths import Offence
from codexdrv.protocol.results import Greeting
from codexdrv.rules.lifecycle import Delivery, Standing
from codexdrv.rules.ownership import Phase
from codexdrv.snapshot import FILE_NAME as SNAPSHOT_NAME
from codexdrv.snapshot import STALE_AFTER_MS
from tests.fakes.children import CHECKOUT, run_child, start_child
from tests.fakes.orders import NOW_MS, THREAD, admit_in, make_order
from tests.fakes.pictures import (
    CONNECTED,
    FAR_FUTURE_MS,
    QUESTION,
    SUBSCRIBED,
    make_picture,
    make_snapshot,
)


US = os.geteuid()
STRANGER = 54321
BROKEN = Offence("it is broken", "mend it")
BINARY = Binary("/usr/bin/codex", "PATH", None)
LINK_BINARY = Binary("/opt/native/codex", "PATH", "/usr/bin/codex")
GIB_BLOCKS = 2**30 // 4096


@pytest.fixture
def desk(desk, monkeypatch):
    """A desk with a Codex home of its own, and no service of whoever runs the tests."""
    monkeypatch.setenv("HOME", f"{desk.root}/home")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    home = desk.root / "codex"
    home.mkdir(mode=0o700)
    desk.configure(f'server.codex_home = "{home}"')
    return desk


def named(desk, name, *, code=1):
    """Run the doctor and take what one check found."""
    ran = desk.run("doctor", "--json")
    assert (ran.code, ran.err) == (code, "")
    return [each for each in ran.body["checks"] if each["name"] == name]


def server_of(root, **options):
    """The configuration's part about the server."""
    environment = {"HOME": str(root), "PATH": "/usr/bin"}
    table = {"codex_home": str(root), **options}
    return parse_config({"server": table}, environment, path=None).server


def status_of(mode, *, owner=US):
    return os.stat_result((mode, 1, 1, 1, owner, owner, 0, 0, 0, 0))


def tree(root):
    """Every file below, with what is in it and when it was touched."""
    return {
        path: (path.lstat().st_mode, path.lstat().st_mtime_ns, path.lstat().st_size)
        for path in root.rglob("*")
    }


# The command


def test_a_newcomer_is_told_what_to_do_in_words_that_can_be_run(desk):
    ran = desk.run("doctor")
    assert (ran.code, ran.err) == (1, "")
    *lines, last = ran.out.splitlines()
    assert last == "1 thing is wrong"
    (server,) = (at for at, line in enumerate(lines) if line.startswith("WRONG"))
    assert lines[server] == (
        f"WRONG  server         No server listens at {desk.root}/no.sock: No such file or directory"
    )
    listen = f"app-server --listen unix://{desk.root}/no.sock"
    command = "codex" if shutil.which("codex") else bundled_binary()
    assert [line.removeprefix(22 * " ") for line in lines[server + 1 : server + 4]] == [
        f"Start it: `CODEX_HOME={desk.root}/codex {command} {listen}`",
        "or name the socket where it listens: socket under [server],",
        'or let codexdrv start a server of its own: mode = "spawn" under [server].',
    ]
    names = [line[7:20].strip() for line in lines if not line.startswith(" ")]
    assert names == [
        *("python", "package", "configuration", "binary", "socket", "server", "home"),
        *("permissions", "sandbox", "file system", "disk", "journal", "supervisor", "unit"),
    ]


def test_a_machine_is_well_with_notes_alone(desk):
    home = desk.root / "codex"
    desk.configure(f'server.mode = "spawn"\nserver.codex_home = "{home}"')
    ran = desk.run("doctor")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("\nall is well\n")
    assert "WRONG" not in ran.out
    body = desk.run("doctor", "--json").body
    assert body["healthy"] is True
    assert {each["state"] for each in body["checks"]} == {"ok", "note"}


def test_the_lines_are_aligned_and_a_remedy_stands_below_its_finding():
    findings = [
        Finding("a", State.OK, "fine."),
        Finding("server", State.WRONG, "none", "one way\nor another"),
        Finding("b", State.NOTE, "so so", "think"),
        Finding("c", State.WRONG, "bad", "mend"),
    ]
    assert tell(findings) == [
        "ok     a       fine",
        "WRONG  server  none",
        "               one way",
        "               or another",
        "note   b       so so",
        "               think",
        "WRONG  c       bad",
        "               mend",
        "2 things are wrong",
    ]
    assert tell(findings[:1]) == ["ok     a  fine", "all is well"]


def test_it_makes_nothing(desk):
    before = tree(desk.root)
    desk.run("doctor")
    assert tree(desk.root) == before


@pytest.mark.parametrize("is_open", [False, True])
def test_it_changes_nothing(desk, is_open):
    with desk.journal() as opened:
        admit_in(opened, Phase.QUEUED)
        if is_open:
            before = tree(desk.root)
            desk.run("doctor")
            assert tree(desk.root) == before
    before = tree(desk.root)
    desk.run("doctor")
    assert tree(desk.root) == before


def test_a_wrong_configuration_is_an_error_and_no_finding(desk):
    desk.configure("nonsense = 1")
    ran = desk.run("doctor", "--json")
    assert (ran.code, ran.body["error"]["code"]) == (78, "configuration")


# A look that fails


def test_what_breaks_one_look_is_a_finding_and_no_more():
    def refuse():
        raise NoServer("There is none.", hint="Start it.")

    assert look_at(refuse) == Offence("There is none.", "Start it.")
    missing = look_at(lambda: os.stat("/nonexistent"))
    assert missing.sentence == "/nonexistent: No such file or directory."
    assert missing.hint
    broken = look_at(lambda: 1 // 0)
    assert "ZeroDivisionError" in broken.sentence
    assert "bug" in broken.hint


def test_many_broken_things_do_not_hide_each_other(desk):
    home = desk.root / "codex"
    home.chmod(0o777)
    desk.state.mkdir(parents=True, mode=0o700)
    desk.state.chmod(0o755)
    (desk.state / FILE_NAME).write_bytes(b"garbage " * 1000)
    ran = desk.run("doctor", "--json")
    wrong = {each["name"]: each for each in ran.body["checks"] if each["state"] == "wrong"}
    assert [*wrong] == ["server", "home", "permissions", "journal"]
    assert all(each["remedy"] for each in wrong.values())
    assert desk.run("doctor").out.endswith("\n4 things are wrong\n")


# Python and the package beside us


@pytest.mark.parametrize(
    ("sqlite", "state"), [((3, 36, 9), State.WRONG), ((3, 37, 0), State.OK), ((4, 0), State.OK)]
)
def test_sqlite_must_be_new_enough(sqlite, state):
    finding = environment.judge_python(environment.Python("3.11.4", sqlite))
    assert finding.state is state
    assert "Python 3.11.4, SQLite " in finding.found
    assert ("SQLite 3.37 or newer" in finding.remedy) == (state is State.WRONG)


def make_foreign(root, *, has_dist=True):
    """Install PyPI's `supervisor`, as much of it as can be seen from outside."""
    package = root / "supervisor"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("# this is a package\n")
    (package / "supervisord.py").touch()
    if has_dist:
        meta = root / "supervisor-4.3.0.dist-info"
        meta.mkdir()
        (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: supervisor\nVersion: 4.3.0\n")
    return root


def neighbour_in_process(*search_path):
    """Judge it in a process that finds modules there, in this order."""
    script = (
        "import sys\n"
        "from codexdrv.doctor import environment\n"
        "found = environment.judge_neighbour(environment.look_at_neighbour())\n"
        "print(found.state, found.found, found.remedy, sep='\\n')\n"
        "assert 'supervisor' not in sys.modules\n"
    )
    where = os.pathsep.join(map(str, search_path))
    done = subprocess.run(
        # Without `site`, which would find the checkout of an editable installation.
        [sys.executable, "-S", "-P", "-c", script],
        env={"PYTHONPATH": where},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def elsewhere():
    """Where modules are found, but for the places that have a package of our name."""
    return [path for path in sys.path[1:] if not Path(path, "supervisor").is_dir()]


def test_ours_alone_is_fine():
    state, found, *_ = neighbour_in_process(CHECKOUT)
    assert (state, found) == ("ok", f"`supervisor` is ours, in {CHECKOUT}/supervisor")


def test_pypis_package_in_front_of_ours_keeps_supervise_from_starting(tmp_path):
    foreign = make_foreign(tmp_path)
    state, found, remedy = neighbour_in_process(foreign, CHECKOUT)
    assert state == "wrong"
    assert found.startswith(
        f"`import supervisor` finds {foreign}/supervisor (PyPI's supervisor 4.3.0), not {CHECKOUT}"
    )
    assert "`pipx install PATH_OF_CHECKOUT`" in remedy


def test_any_other_package_in_front_of_ours_is_as_bad(tmp_path):
    foreign = make_foreign(tmp_path, has_dist=False)
    state, found, _ = neighbour_in_process(foreign, CHECKOUT)
    assert state == "wrong"
    assert f"finds {foreign}/supervisor, not" in found


def test_pypis_package_behind_ours_is_hidden(tmp_path):
    state, found, remedy = neighbour_in_process(CHECKOUT, make_foreign(tmp_path))
    assert state == "note"
    assert "supervisor 4.3.0 is installed here, too, and hidden by ours" in found
    assert "`pipx install PATH_OF_CHECKOUT`" in remedy


@pytest.mark.parametrize("has_init", [True, False], ids=["both", "after an uninstall"])
def test_in_one_directory_the_two_live_together(tmp_path, has_init):
    # As pip leaves it, in whatever order; the `__init__` goes with the first that is uninstalled.
    for package in ("codexdrv", "supervisor"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / package, tmp_path / package, ignore=ignore)
    make_foreign(tmp_path)
    if not has_init:
        (tmp_path / "supervisor" / "__init__.py").unlink()
    state, found, _ = neighbour_in_process(tmp_path, *elsewhere())
    assert state == "note"
    assert found.endswith("is installed here, too, in the same directory: both work")


def test_no_package_at_all_is_a_broken_installation(tmp_path):
    shutil.copytree(
        CHECKOUT / "codexdrv", tmp_path / "codexdrv", ignore=shutil.ignore_patterns("__pycache__")
    )
    state, found, remedy = neighbour_in_process(tmp_path, *elsewhere())
    assert (state, "finds nothing" in found) == ("wrong", True)
    assert "--force-reinstall" in remedy


# The configuration


def test_the_configuration_is_named_with_its_mode(desk):
    (finding,) = named(desk, "configuration")
    assert (finding["state"], finding["found"]) == ("ok", f"{desk.config}; mode attach, 2 targets")
    config = parse_config({"server": {"mode": "spawn"}}, {"HOME": "/home/me"}, path=None)
    said = environment.judge_configuration(config).found
    assert said == "no file, so the defaults; mode spawn"


# The binary


@pytest.mark.parametrize(
    ("version", "state", "words"),
    [
        ("0.144.4", State.WRONG, "older than 0.144.5, the oldest that is supported"),
        ("0.99.0", State.WRONG, "older than 0.144.5"),
        ("0.144.5", State.OK, ""),
        ("0.163.0", State.OK, ""),
        ("0.171.0", State.OK, ""),
        ("0.171.1", State.NOTE, "newer than 0.171.0, the newest that was tested"),
        ("0.172.0-alpha.3", State.NOTE, "newer than 0.171.0"),
        ("1.0.0", State.NOTE, "newer than 0.171.0"),
    ],
)
def test_the_version_of_a_binary_that_we_start_is_judged(tmp_path, version, state, words):
    spawn = server_of(tmp_path, mode="spawn")
    finding = codex.judge_binary(codex.Installed(BINARY, version), spawn)
    assert finding.state is state
    assert finding.found.startswith(f"codex {version}, /usr/bin/codex (from PATH)")
    assert words in finding.found
    assert bool(finding.remedy) == (state is not State.OK)
    attached = codex.judge_binary(codex.Installed(LINK_BINARY, version), server_of(tmp_path))
    assert attached.state is State.OK
    assert "(from PATH, through /usr/bin/codex); attached: it is not used" in attached.found


def test_the_binary_is_found_and_asked(tmp_path):
    server = server_of(tmp_path, codex=bundled_binary())
    found = codex.look_at_binary(server)
    assert (found.binary.path, found.version) == (bundled_binary(), "0.163.0")


def test_a_binary_that_is_missing_is_wrong_only_if_we_must_start_it(tmp_path):
    missing = {"codex": f"{tmp_path}/codex"}
    attached, ours = server_of(tmp_path, **missing), server_of(tmp_path, mode="spawn", **missing)
    seen = look_at(lambda: codex.look_at_binary(ours))
    finding = codex.judge_binary(seen, ours)
    assert finding.state is State.WRONG
    assert f"{tmp_path}/codex" in finding.found
    assert "[server]" in finding.remedy
    finding = codex.judge_binary(seen, attached)
    assert (finding.state, finding.remedy) == (State.NOTE, "")
    assert finding.found.startswith("attached: no binary is needed. ")


# The socket


def test_a_socket_that_is_not_there_is_a_note(desk):
    (finding,) = named(desk, "socket")
    assert finding["state"] == "note"
    assert finding["found"] == f"{desk.root}/no.sock is not there: no server has made it"


def test_over_stdio_there_is_no_socket(tmp_path):
    server = server_of(tmp_path, mode="spawn", listen="stdio")
    assert codex.look_at_socket(server) is None
    assert codex.judge_socket(None, server).state is State.NOTE


@contextmanager
def listening(path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield listener


def test_a_socket_that_is_safe_is_fine_also_behind_a_link(desk):
    with listening(desk.root / "real.sock"):
        (desk.root / "no.sock").symlink_to(desk.root / "real.sock")
        seen = codex.look_at_socket(server_of(desk.root, socket=f"{desk.root}/no.sock"))
        server = server_of(desk.root, socket=f"{desk.root}/no.sock")
        finding = codex.judge_socket(seen, server)
    assert finding.state is State.OK
    assert f"no.sock, a link to {desk.root}/real.sock" in finding.found


def test_a_socket_that_others_can_replace_is_wrong_and_nobody_is_asked(desk):
    with listening(desk.root / "no.sock"):
        desk.root.chmod(0o777)
        checks = {each["name"]: each for each in desk.run("doctor", "--json").body["checks"]}
        desk.root.chmod(0o700)
    assert checks["socket"]["state"] == "wrong"
    assert checks["socket"]["remedy"] == f"`chmod go-w {desk.root}`"
    assert checks["server"]["state"] == "note"
    assert checks["server"]["found"] == "not asked: first mend the socket"


# The server


def met(version="0.163.0", *, other_home=None):
    return codex.Met(4242, Greeting(f"codex/{version} (Linux)", "/home/me/.codex"), other_home)


def judge_server(seen, server, installed=BROKEN, *, is_safe=True, is_up=True):
    return codex.judge_server(seen, server, installed, is_safe=is_safe, is_up=is_up)


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("0.144.4", State.WRONG),
        ("0.144.5", State.OK),
        ("0.171.0", State.OK),
        ("0.172.0", State.NOTE),
    ],
)
def test_the_version_of_the_server_is_judged(tmp_path, version, state):
    finding = judge_server(met(version), server_of(tmp_path))
    assert finding.state is state
    assert finding.found.startswith(f"codex {version}, pid 4242")


def test_a_server_that_does_not_say_its_version_is_a_note(tmp_path):
    seen = met()._replace(greeting=Greeting("something", None))
    assert judge_server(seen, server_of(tmp_path)).state is State.NOTE


@pytest.mark.parametrize(
    ("options", "remedy"),
    [({}, "Restart the server, if"), ({"mode": "spawn"}, "Restart the supervisor, if")],
)
def test_a_server_that_is_not_the_binary_on_disk_is_a_note(tmp_path, options, remedy):
    server = server_of(tmp_path, **options)
    same = judge_server(met("0.163.0"), server, codex.Installed(BINARY, "0.163.0"))
    assert same.state is State.OK
    other = judge_server(met("0.163.0"), server, codex.Installed(BINARY, "0.171.0"))
    assert other.state is State.NOTE
    assert other.found == "codex 0.163.0, pid 4242; but /usr/bin/codex is 0.171.0"
    assert other.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("is_ours", "is_up", "state"),
    [
        (False, False, State.WRONG),
        (False, True, State.WRONG),
        (True, True, State.WRONG),
        (True, False, State.NOTE),
    ],
)
def test_no_server_is_wrong_unless_the_supervisor_starts_it_and_is_down(
    tmp_path, is_ours, is_up, state
):
    options = {"mode": "spawn"} if is_ours else {}
    server = server_of(tmp_path, socket=f"{tmp_path}/no.sock", **options)
    seen = look_at(lambda: codex.look_at_server(server, __version__))
    finding = judge_server(seen, server, is_up=is_up)
    assert finding.state is state
    if state is State.WRONG:
        assert finding.found.startswith(f"No server listens at {tmp_path}/no.sock")
        assert ("supervisor" if is_ours else "codex app-server") in finding.remedy
    else:
        assert finding.found == "none: `codexdrv supervise` starts it"


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "bundled"])
def test_how_to_start_a_server_names_a_codex_that_is_not_on_path_by_where_it_lies(
    tmp_path, is_named
):
    named = {"codex": bundled_binary()} if is_named else {}
    table = {"codex_home": f"{tmp_path}/a home", "socket": f"{tmp_path}/no.sock", **named}
    nowhere = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    server = parse_config({"server": table}, nowhere, path=None).server
    seen = look_at(lambda: codex.look_at_server(server, __version__))
    assert judge_server(seen, server).remedy.startswith(
        f"Start it: `CODEX_HOME='{tmp_path}/a home' {bundled_binary()} app-server --listen unix://"
    )


def test_how_to_start_a_server_says_codex_where_a_shell_finds_it(tmp_path):
    (tmp_path / "codex").symlink_to(bundled_binary())
    environment = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    server = parse_config({"server": {}}, environment, path=None).server
    seen = look_at(lambda: codex.look_at_server(server, __version__))
    assert f"CODEX_HOME={tmp_path}/.codex codex app-server" in judge_server(seen, server).remedy


def test_a_server_of_ours_without_its_supervisor_is_a_note(tmp_path):
    finding = judge_server(met(), server_of(tmp_path, mode="spawn"), is_up=False)
    assert finding.state is State.NOTE
    assert "listens although no supervisor runs" in finding.found
    assert 'mode = "attach"' in finding.remedy


@pytest.mark.parametrize(
    ("is_up", "words"), [(True, "alone talks to it"), (False, "the supervisor starts it")]
)
def test_a_server_over_stdio_is_not_asked(tmp_path, is_up, words):
    server = server_of(tmp_path, mode="spawn", listen="stdio")
    seen = codex.look_at_server(server, __version__)
    finding = judge_server(seen, server, is_up=is_up)
    assert (finding.state, words in finding.found) == (State.NOTE, True)


def test_a_server_that_does_not_answer_is_named_and_does_not_stop_the_doctor(tmp_path):
    path = tmp_path / "s.sock"
    server = server_of(tmp_path, socket=str(path))
    with listening(path):
        seen = look_at(lambda: codex.look_at_server(server, __version__, timeout_s=0.05))
    finding = judge_server(seen, server)
    assert finding.state is State.WRONG
    assert finding.found == f"The server (pid {os.getpid()}) does not answer within 0.05 s."
    assert f"`kill -CONT {os.getpid()}`" in finding.remedy


def test_somebody_who_is_no_codex_is_wrong_and_has_a_remedy(tmp_path):
    def answer_and_leave(listener):
        for _ in range(2):
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 404 Not Found\r\n\r\n")

    path = tmp_path / "s.sock"
    server = server_of(tmp_path, socket=str(path))
    with listening(path) as listener:
        stranger = threading.Thread(target=answer_and_leave, args=(listener,))
        stranger.start()
        finding = judge_server(look_at(lambda: codex.look_at_server(server, __version__)), server)
        stranger.join()
    assert finding.state is State.WRONG
    assert finding.remedy


# The home


def test_a_home_that_is_ours_is_fine(desk):
    (finding,) = named(desk, "home")
    assert (finding["state"], finding["found"]) == ("ok", f"{desk.root}/codex")
    desk.root.joinpath("codex").chmod(0o755)
    assert named(desk, "home")[0]["state"] == "ok"


def test_a_home_that_is_not_there_is_wrong(desk):
    desk.root.joinpath("codex").rmdir()
    (finding,) = named(desk, "home")
    assert finding["state"] == "wrong"
    assert finding["found"] == f"The Codex home {desk.root}/codex is not there."
    assert "codex login" in finding["remedy"]


def test_a_home_that_is_a_file_is_wrong(desk):
    desk.root.joinpath("codex").rmdir()
    desk.root.joinpath("codex").touch()
    (finding,) = named(desk, "home")
    assert "is not a directory" in finding["found"]
    assert "codex_home under [server]" in finding["remedy"]


def test_a_home_that_others_may_write_is_wrong(desk):
    desk.root.joinpath("codex").chmod(0o775)
    (finding,) = named(desk, "home")
    assert finding["state"] == "wrong"
    assert "mode 0775" in finding["found"]
    assert finding["remedy"] == f"`chmod go-w {desk.root}/codex`"


def test_a_home_of_somebody_else_is_wrong():
    seen = codex.HomeSeen("/h", status_of(stat.S_IFDIR | 0o700, owner=STRANGER), US)
    finding = codex.judge_home(seen, BROKEN)
    assert (finding.state, f"uid {STRANGER}" in finding.found) == (State.WRONG, True)


def test_a_server_of_another_home_is_wrong_whatever_ours_looks_like(tmp_path):
    seen = codex.look_at_home(str(tmp_path))
    assert codex.judge_home(seen, met()).found == f"{tmp_path}, the one that the server serves"
    finding = codex.judge_home(seen, met(other_home=BROKEN))
    assert finding[1:] == (State.WRONG, *BROKEN)


# Permissions


def test_a_state_directory_that_is_not_there_yet_is_a_note(desk):
    (finding,) = named(desk, "permissions")
    assert finding["state"] == "note"
    assert "made by the first `codexdrv deliver`" in finding["found"]


def test_a_state_directory_that_nobody_can_make_is_wrong(desk):
    (desk.root / "xdg").symlink_to(desk.root / "unmounted")
    (finding,) = named(desk, "permissions")
    assert finding["state"] == "wrong"
    assert f"{desk.root}/xdg is a link to {desk.root}/unmounted, which is not" in finding["found"]
    assert finding["remedy"].startswith("Mount or make what it leads to")


def test_a_state_directory_that_we_may_not_make_is_wrong():
    script = (
        "import os, sys; from codexdrv.doctor.places import judge_state, look_at_state\n"
        "if os.geteuid() == 0: os.setuid(54321)\n"
        "(found,) = judge_state(look_at_state(sys.argv[1]))\n"
        "print(found.state, found.found, found.remedy)"
    )
    said = run_child(script, "/usr/nowhere/state")
    assert said.startswith(
        "wrong /usr/nowhere/state is not there, and we may not make it: /usr is closed to us."
        " Choose another one"
    )


def test_a_state_directory_that_is_ours_alone_is_fine(desk):
    desk.journal().close()
    desk.hang_up_bell()
    (desk.state / "bell").chmod(0o600)
    (finding,) = named(desk, "permissions")
    assert (finding["state"], finding["remedy"]) == ("ok", None)


def test_each_file_that_others_may_touch_is_told_with_its_command(desk):
    desk.journal().close()
    (desk.state / FILE_NAME).chmod(0o640)
    (desk.state / "lock").touch(0o600)
    (desk.state / "lock").chmod(0o644)
    desk.hang_up_bell()
    (desk.state / "bell").chmod(0o666)
    found = named(desk, "permissions")
    assert {each["state"] for each in found} == {"wrong"}
    assert [each["remedy"] for each in found] == [
        f"`chmod 600 {desk.state}/{name}`" for name in (FILE_NAME, "lock", "bell")
    ]


def test_a_state_directory_that_others_may_enter_is_wrong(desk):
    desk.journal().close()
    desk.state.chmod(0o750)
    (finding,) = named(desk, "permissions")
    assert (finding["state"], finding["remedy"]) == ("wrong", f"`chmod 700 {desk.state}`")


@pytest.mark.parametrize("is_there", [True, False])
def test_an_unsafe_way_to_the_state_directory_is_wrong(desk, is_there):
    if is_there:
        desk.journal().close()
    desk.state.parent.mkdir(exist_ok=True)
    desk.state.parent.chmod(0o777)
    (finding,) = named(desk, "permissions")
    desk.state.parent.chmod(0o700)
    assert (finding["state"], finding["remedy"]) == ("wrong", f"`chmod go-w {desk.state.parent}`")


def test_what_cannot_be_looked_at_is_wrong():
    assert [each.state for each in places.judge_state(BROKEN)] == [State.WRONG]


# Sandbox


@pytest.mark.parametrize(
    ("directory", "tmpdir", "place"),
    [
        ("/tmp/state", "", "/tmp"),
        ("/tmp", "", "/tmp"),
        ("/tmpfiles/state", "", None),
        ("/home/me/state", "", None),
        ("/home/me/tmp/state", "/home/me/tmp", "/home/me/tmp"),
        ("/home/me/state", "tmp", None),
        ("/home/me/tmp/../state", "/home/me/tmp", None),
    ],
)
def test_a_place_that_a_sandboxed_command_may_write_in_is_found(directory, tmpdir, place):
    assert places.sandbox_place_above(directory, tmpdir) == place


def test_a_way_into_such_a_place_counts_by_its_end(tmp_path):
    (tmp_path / "away").symlink_to("/tmp")
    assert places.sandbox_place_above(f"{tmp_path}/away/state", f"{tmp_path}/away") is not None
    assert places.sandbox_place_above(f"{tmp_path}/away/state", "") == "/tmp"


def test_a_state_directory_in_such_a_place_is_a_note(desk):
    (finding,) = named(desk, "sandbox")
    assert finding["state"] == "note"
    assert f"{desk.state} lies in /tmp, where a model's" in finding["found"]
    assert "dir under [state]" in finding["remedy"]


def test_any_other_place_is_fine():
    assert places.judge_sandbox("/home/me/state", None).state == State.OK
    assert places.judge_sandbox("/home/me/state", BROKEN).state == State.WRONG


# File system and disk


def disk(path="/x", *, network=None, device=1, **room):
    names = ("f_blocks", "f_bavail", "f_files", "f_favail", "f_flag")
    given = {"f_blocks": 2**30, "f_bavail": GIB_BLOCKS, "f_files": 0, "f_favail": 0, "f_flag": 0}
    blocks, bavail, files, favail, flag = ((given | room)[name] for name in names)
    values = (4096, 4096, blocks, bavail, bavail, files, favail, favail, flag, 255)
    return places.Disk(path, network, device, os.statvfs_result(values))


def test_local_disks_with_room_are_fine(desk):
    for name in ("file system", "disk"):
        (finding,) = named(desk, name)
        assert finding["state"] == "ok"
    assert "for the state directory and the Codex home" in finding["found"]


def test_a_network_file_system_is_wrong_for_the_journal_and_a_note_for_codex():
    remote = disk("/remote", network="nfs4")
    (finding,) = places.judge_file_systems(remote, disk())
    assert finding.state is State.WRONG
    assert finding.found.startswith("/remote lies on a network file system (nfs4)")
    assert "[state]" in finding.remedy
    (finding,) = places.judge_file_systems(disk(), remote)
    assert (finding.state, "/remote" in finding.found) == (State.NOTE, True)
    assert len(places.judge_file_systems(remote, remote)) == 2


def test_a_disk_that_cannot_be_looked_at_is_told_once():
    assert [each.state for each in places.judge_file_systems(BROKEN, disk())] == [State.WRONG]
    assert [each.state for each in places.judge_room(BROKEN, disk())] == [State.OK]
    assert [each.state for each in places.judge_room(BROKEN, BROKEN)] == [State.OK]


@pytest.mark.parametrize(
    ("room", "words"),
    [
        ({"f_bavail": 0}, "its disk is full"),
        ({"f_bavail": 64 * 2**20 // 4096 - 1}, "only 64.0 MiB are free; 64 may be needed"),
        ({"f_bavail": 64 * 2**20 // 4096}, None),
        ({"f_files": 5000, "f_favail": 999}, "only 999 more files fit"),
        ({"f_files": 5000, "f_favail": 1000}, None),
        ({"f_files": 0, "f_favail": 0}, None),
        ({"f_blocks": 0, "f_bavail": 0}, None),
        ({"f_flag": os.ST_RDONLY}, "its file system is read-only"),
    ],
)
def test_a_disk_wants_room_for_bytes_and_for_files(room, words):
    findings = places.judge_room(disk("/s", device=1, **room), disk("/h", device=2))
    if words is None:
        assert [each.state for each in findings] == [State.OK]
        return
    (finding,) = findings
    assert finding.state is State.WRONG
    assert finding.found.startswith(f"the state directory, /s: {words}")
    assert finding.remedy


def test_one_full_disk_is_one_thing_and_two_are_two():
    full = {"f_bavail": 0}
    assert len(places.judge_room(disk(**full), disk(**full))) == 1
    assert len(places.judge_room(disk(**full), disk(device=2, **full))) == 2
    silent = disk(device=3)._replace(room=None)
    assert [each.state for each in places.judge_room(silent, disk())] == [State.OK]
    (home,) = places.judge_room(disk(), disk("/h", device=2, **full))
    assert home.found.startswith("the Codex home, /h: ")


# The journal


def test_no_journal_is_a_note(desk):
    (finding,) = named(desk, "journal")
    assert finding["state"] == "note"
    assert not desk.state.exists()


@pytest.mark.parametrize("is_open", [True, False])
def test_a_whole_journal_is_counted_by_phase(desk, is_open):
    with desk.journal() as opened:
        admit_in(opened, Phase.SURFACED, "m1")
        admit_in(opened, Phase.FAILED, "m2")
        admit_in(opened, Phase.SURFACED, "m3")
        if is_open:
            (finding,) = named(desk, "journal")
    if not is_open:
        (finding,) = named(desk, "journal")
    assert finding["state"] == "ok"
    assert finding["found"].startswith("version 1, whole, ")
    assert finding["found"].endswith(" MiB; deliveries: 1 failed, 2 surfaced")


def test_what_a_killed_process_left_is_read(desk):
    script = (
        "import os, sys; from codexdrv.journal.journal import Journal\n"
        "from tests.fakes.orders import make_order\n"
        "Journal(sys.argv[1]).admit(make_order()); os._exit(0)"
    )
    run_child(script, str(desk.state))
    assert (desk.state / f"{FILE_NAME}-wal").exists()
    seen = journal.look_at_journal(str(desk.state))
    assert (seen.phases, seen.live) == ({"queued": 1}, 1)


def test_a_copy_with_its_log_is_left_alone_until_a_command_has_read_it(desk):
    with desk.journal() as opened:
        admit_in(opened, Phase.QUEUED)
        saved = {name: (desk.state / name).read_bytes() for name in (FILE_NAME, f"{FILE_NAME}-wal")}
    for name, content in saved.items():
        (desk.state / name).write_bytes(content)
        (desk.state / name).chmod(0o600)
    before = tree(desk.root)
    (finding,) = named(desk, "journal")
    assert tree(desk.root) == before
    assert finding["state"] == "wrong"
    assert "a copy, or restored" in finding["found"]
    assert "`codexdrv list`" in finding["remedy"]
    assert desk.run("list").code == 0
    (finding,) = named(desk, "journal")
    assert finding["found"].endswith("deliveries: 1 queued")


def test_commands_that_come_and_go_do_not_make_the_journal_look_damaged(desk):
    script = (
        "import sys; from codexdrv.journal.journal import Journal\n"
        "from tests.fakes.orders import make_order\n"
        "print(flush=True)\n"
        "for number in range(60):\n"
        "    with Journal(sys.argv[1]) as journal: journal.admit(make_order(f'm{number}'))"
    )
    desk.journal().close()
    busy = "is opened and closed all the time"
    with start_child(script, str(desk.state)) as writer:
        writer.stdout.readline()
        while writer.poll() is None:
            seen = journal.look_at_journal(str(desk.state))
            assert busy in seen.sentence if isinstance(seen, Offence) else not seen.complaints
    assert journal.look_at_journal(str(desk.state)).live == 60


def test_a_journal_of_a_newer_version_is_wrong_and_both_are_named(desk):
    desk.journal().close()
    with sqlite3.connect(desk.state / FILE_NAME) as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    (finding,) = named(desk, "journal")
    assert finding["state"] == "wrong"
    assert finding["found"].endswith("has version 9; this codexdrv knows version 1")
    assert "`git pull` in its checkout" in finding["remedy"]


def page_of(database, name):
    query = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
    (page,) = database.execute(query, (name,)).fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    return slice((page - 1) * size, page * size)


@pytest.mark.parametrize("what", ["header", "table", "index", "end"])
def test_a_damaged_journal_is_wrong(desk, what):
    with desk.journal() as opened:
        for number in range(20):
            admit_in(opened, Phase.QUEUED, f"m{number}")
    file = desk.state / FILE_NAME
    with sqlite3.connect(file) as database:
        at = {
            "header": slice(100),
            "table": page_of(database, "deliveries"),
            "index": page_of(database, "live_deliveries"),
            "end": slice(20_000, None),
        }[what]
    database.close()
    bad = bytearray(file.read_bytes())
    bad[at] = b"" if what == "end" else b"\xff" * len(bad[at])
    file.write_bytes(bad)
    (finding,) = named(desk, "journal")
    assert finding["state"] == "wrong"
    assert str(file) in finding["found"]
    assert f"move {file}* away" in finding["remedy"]
    assert file.read_bytes() == bad


def test_what_is_no_plain_file_is_not_opened(desk):
    desk.state.mkdir(parents=True, mode=0o700)
    os.mkfifo(desk.state / FILE_NAME, 0o600)
    (finding,) = named(desk, "journal")
    assert (finding["state"], finding["remedy"]) == ("wrong", "Move it away.")


def test_a_path_with_odd_letters_is_opened_all_the_same(desk):
    odd = desk.root / "a?b#c%20d é"
    desk.configure(f'server.codex_home = "{desk.root}/codex"')
    text = desk.config.read_text().replace(str(desk.state), str(odd))
    desk.config.write_text(text)
    desk.run("deliver", "--target", "ops", "hello")
    (finding,) = named(desk, "journal")
    assert finding["found"].endswith("deliveries: 1 queued")


# The supervisor


def snapshot(*, age_ms=0, problem=None, version=__version__, **kept):
    server = CONNECTED | {"connected": problem is None, "problem": problem}
    return make_snapshot(server, age_ms=age_ms, version=version, **kept)


AROUND = resident.Around(0, None, False, [], __version__, NOW_MS)


def judge_supervisor(seen, **around):
    return resident.judge_supervisor(seen, AROUND._replace(**around))


UP = resident.ResidentSeen(True, None, snapshot())
DOWN = resident.ResidentSeen(False, None, None)


@pytest.mark.parametrize(
    ("seen", "flags", "state", "words"),
    [
        (UP, {}, State.OK, "up, pid 77, life 3, connected"),
        (DOWN, {}, State.NOTE, "down; nothing waits"),
        (DOWN, {"live": 1}, State.WRONG, "down, and 1 delivery waits for it"),
        (DOWN, {"live": 2}, State.WRONG, "down, and 2 deliveries wait for it"),
        (DOWN._replace(deaf=77), {}, State.WRONG, "pid 77 holds the lock, but does not hear"),
        (UP._replace(snapshot=None), {}, State.WRONG, "up, but it has written no status"),
        (
            UP._replace(snapshot=snapshot(age_ms=STALE_AFTER_MS + 1)),
            {},
            State.WRONG,
            "up, pid 77, life 3, but has not written its status for 15 s",
        ),
        (UP._replace(snapshot=snapshot(age_ms=STALE_AFTER_MS)), {}, State.OK, "connected"),
        (
            UP._replace(snapshot=snapshot(problem="It ended:\n gone.")),
            {},
            State.WRONG,
            "without a server: It ended: gone",
        ),
        (
            UP._replace(snapshot=snapshot(problem="None there.")),
            {"is_told": True},
            State.NOTE,
            "without a server: None there",
        ),
        (
            UP._replace(snapshot=snapshot(version="0.0.1")),
            {},
            State.WRONG,
            f"is codexdrv 0.0.1; installed is {__version__}",
        ),
        (
            UP._replace(snapshot=snapshot(format=1)),
            {},
            State.WRONG,
            f"is another codexdrv {__version__} (its status file has format 1, not 2); installed",
        ),
        (UP, {"changed": ["mode"]}, State.NOTE, "than the configuration says (mode)"),
        (
            UP._replace(snapshot=snapshot(threads={THREAD: SUBSCRIBED | {"subscription": "gone"}})),
            {},
            State.WRONG,
            f"target ops ({THREAD}) cannot be loaded: the server has no record of it",
        ),
        (BROKEN, {}, State.WRONG, BROKEN.sentence),
    ],
)
def test_a_supervisor_is_judged_by_what_it_shows(seen, flags, state, words):
    # What is well comes first, if it is not all.
    *_, finding = judge_supervisor(seen, **flags)
    assert (finding.state, words in finding.found) == (state, True), finding
    assert bool(finding.remedy) == (state is not State.OK)


OLD_QUESTION = QUESTION | {"since_ms": NOW_MS - OLD_MS - 1}
OLD_DELIVERY = Delivery(make_order(at_ms=NOW_MS - OLD_MS - 1), Standing(Phase.QUEUED))
ILL = {
    "journal_problem": "It is locked.",
    "questions": [OLD_QUESTION],
    "threads": {THREAD: SUBSCRIBED | {"subscription": "archived"}},
}


@pytest.mark.parametrize(
    ("picture", "oldest", "is_up"),
    [
        (snapshot(), OLD_DELIVERY, True),
        (snapshot(), OLD_DELIVERY, False),
        (snapshot(), None, False),
        (None, None, True),
        (None, OLD_DELIVERY, False),
        (snapshot(**ILL), OLD_DELIVERY, True),
        (snapshot(problem="None there."), None, True),
        (snapshot(age_ms=STALE_AFTER_MS + 1), OLD_DELIVERY, True),
        (snapshot(version="0.0.1"), OLD_DELIVERY, True),
    ],
)
def test_whatever_status_calls_a_problem_the_doctor_calls_wrong(picture, oldest, is_up):
    summary = Summary({"queued": 1} if oldest else {}, oldest, {})
    problems = judge_health(Machine(summary, picture, is_up, NOW_MS, __version__))
    findings = judge_supervisor(
        resident.ResidentSeen(is_up, None, picture), live=1 if oldest else 0, oldest=oldest
    )
    wrongs = [each for each in findings if each.state is State.WRONG]
    assert len(wrongs) == len(problems) > 0
    assert all(each.remedy for each in wrongs)


def test_each_problem_is_a_finding_with_its_own_remedy():
    seen = UP._replace(snapshot=snapshot(**ILL))
    connected, *findings = judge_supervisor(seen, live=1, oldest=OLD_DELIVERY)
    assert connected.state is State.OK
    assert [found.found.split(" for ")[0].split(":")[0] for found in findings] == [
        "the supervisor cannot use its journal, so nothing is sent",
        f"target ops ({THREAD}) cannot be loaded",
        "the server asks (command), and nobody has answered",
        "m1 is queued",
    ]
    assert [found.remedy for found in findings[1:]] == [
        f"`codex unarchive {THREAD}`",
        "`codexdrv attention` shows what is asked, and how to answer.",
        "`codexdrv status m1 --explain` tells its story.",
    ]


def test_a_delivery_that_waits_for_long_is_wrong_although_all_is_connected(desk):
    with desk.journal() as opened:
        opened.admit(make_order(at_ms=1))
    desk.hang_up_bell()
    config = server_table(load_config(str(desk.config)).server)
    picture = make_picture(written_at_ms=FAR_FUTURE_MS, config=config)
    (desk.state / SNAPSHOT_NAME).write_text(json.dumps(picture))
    connected, finding = named(desk, "supervisor")
    assert (connected["state"], finding["state"]) == ("ok", "wrong")
    assert finding["found"].startswith("m1 is queued for ")
    assert finding["remedy"] == "`codexdrv status m1 --explain` tells its story."


@pytest.mark.parametrize("mode", ["spawn", "attach"])
def test_a_supervisor_with_another_server_than_the_configuration_says_wants_a_restart(desk, mode):
    desk.hang_up_bell()
    (desk.state / SNAPSHOT_NAME).write_text(json.dumps(make_picture()))
    desk.configure(f'server.mode = "{mode}"\nserver.codex_home = "{desk.root}/codex"')
    checks = {each["name"]: each for each in desk.run("doctor", "--json").body["checks"]}
    assert checks["supervisor"]["state"] == "note"
    assert "another [server] than the configuration says" in checks["supervisor"]["found"]
    assert checks["supervisor"]["remedy"].startswith("Restart it")
    # Nobody listens where the configuration says, and nobody has to.
    assert checks["server"]["state"] == "note"
    assert ("see below" in checks["server"]["found"]) == (mode == "attach")


def test_a_supervisor_that_is_down_while_something_waits_is_wrong(desk):
    desk.run("deliver", "--target", "ops", "hello")
    (finding,) = named(desk, "supervisor")
    assert (finding["state"], finding["found"]) == ("wrong", "down, and 1 delivery waits for it")
    assert "`codexdrv supervise`" in finding["remedy"]


def test_a_supervisor_that_hears_the_bell_is_up(desk):
    desk.hang_up_bell()
    seen = resident.look_at_supervisor(str(desk.state))
    assert seen == resident.ResidentSeen(True, None, None)


def test_a_supervisor_that_connects_when_the_bell_rings_is_waited_for(desk):
    ringer = desk.hang_up_bell()
    ringer.setblocking(True)
    path = desk.state / SNAPSHOT_NAME

    def write(problem):
        draft = desk.state / "draft"
        draft.write_text(json.dumps({"written_at_ms": NOW_MS, "server": {"problem": problem}}))
        draft.replace(path)

    def connect_when_rung():
        ringer.recv(1)
        write(None)

    write("None there.")
    supervisor = threading.Thread(target=connect_when_rung)
    supervisor.start()
    seen = resident.look_at_supervisor(str(desk.state), patience_s=10.0)
    supervisor.join()
    assert seen.snapshot.problem is None
    write("None there.")
    seen = resident.look_at_supervisor(str(desk.state), patience_s=0.05)
    assert seen.snapshot.problem == "None there."


def test_a_holder_of_the_lock_that_is_deaf_is_named_and_the_lock_is_not_taken(desk):
    desk.journal().close()
    script = (
        "import sys; from codexdrv.lock import held_lock\n"
        "with held_lock(sys.argv[1]): print(flush=True); sys.stdin.read()"
    )
    with start_child(script, str(desk.state)) as holder:
        holder.stdout.readline()
        assert resident.look_at_supervisor(str(desk.state)).deaf == holder.pid
        holder.stdin.close()
    # The file is still there, and says so; nobody holds it.
    assert (desk.state / lock.FILE_NAME).exists()
    assert resident.look_at_supervisor(str(desk.state)) == DOWN
