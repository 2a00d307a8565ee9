"""Configuration: what works with no file, where a file is found, and what one may say."""

import datetime as dt
import os

import pytest

from codexdrv.config import (
    Config,
    Limits,
    Listen,
    Server,
    Spawn,
    State,
    Target,
    load_config,
    parse_config,
)
from codexdrv.errors import ConfigurationError, ExitCode
from codexdrv.rules.lifecycle import WhenBusy
from tests.fakes.orders import OTHER_THREAD, THREAD


HOME = {"HOME": "/home/me"}
SERVER_KEYS = (
    *("approvals", "codex", "codex_home", "deaths_max", "listen", "mode", "socket"),
    "stop_grace_s",
)
EVERY_KEY = f"""
[server]
mode = "attach"
socket = "/run/user/1000/x.sock"
codex_home = "/srv/codex"
[state]
dir = "/srv/state"
[limits]
live_per_thread = 7
settle_s = 0.5
[targets.ops]
thread = "{THREAD}"
[targets."dev ops"]
thread = "{OTHER_THREAD.upper()}"
when_busy = "interrupt"
hold_in_doubt = true
"""


@pytest.fixture
def write(tmp_path):
    """Write a configuration; return its path."""

    def write(text, name="codexdrv.toml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


def test_no_file_at_all_works():
    assert load_config(None, HOME) == Config(
        Server(
            "/home/me/.codex/app-server-control/app-server-control.sock",
            "/home/me/.codex",
            environment={**HOME, "CODEX_HOME": "/home/me/.codex"},
        ),
        State("/home/me/.local/state/codexdrv"),
        Limits(),
        {},
        None,
    )
    assert Limits().live_per_thread == 512


def test_the_environment_moves_the_defaults():
    moved = {**HOME, "CODEX_HOME": "/srv/codex", "XDG_STATE_HOME": "/srv/state"}
    config = load_config(None, moved)
    assert config.server.codex_home == "/srv/codex"
    assert config.server.socket == "/srv/codex/app-server-control/app-server-control.sock"
    assert config.state.directory == "/srv/state/codexdrv"


def test_a_relative_codex_home_is_one_of_the_working_directory():
    config = load_config(None, {**HOME, "CODEX_HOME": "codex"})
    assert config.server.codex_home == f"{os.getcwd()}/codex"


def test_a_relative_base_directory_is_ignored(write, tmp_path):
    write("nonsense", "codexdrv/config.toml")
    relative = os.path.relpath(tmp_path)
    config = load_config(None, {**HOME, "XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": relative})
    assert config.state.directory == "/home/me/.local/state/codexdrv"
    assert config.path is None


def test_an_empty_variable_is_none():
    names = ("CODEX_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "CODEXDRV_CONFIG")
    config, plain = load_config(None, HOME | dict.fromkeys(names, "")), load_config(None, HOME)
    assert config.server.codex_home == plain.server.codex_home
    assert (config.state, config.path) == (plain.state, plain.path)


def test_every_key_is_read(write):
    path = write(EVERY_KEY)
    assert load_config(path, HOME) == Config(
        Server(
            "/run/user/1000/x.sock",
            "/srv/codex",
            environment={**HOME, "CODEX_HOME": "/srv/codex"},
        ),
        State("/srv/state"),
        Limits(live_per_thread=7, settle_s=0.5),
        {
            "ops": Target(THREAD, WhenBusy.STEER),
            "dev ops": Target(OTHER_THREAD, WhenBusy.INTERRUPT, hold_in_doubt=True),
        },
        path,
    )


def test_a_server_of_our_own_listens_in_the_state_directory(write):
    config = load_config(write('[server]\nmode = "spawn"\n[state]\ndir = "/srv/state"\n'), HOME)
    assert config.server == Server(
        "/srv/state/server.sock",
        "/home/me/.codex",
        None,
        {"HOME": "/home/me", "CODEX_HOME": "/home/me/.codex"},
        Spawn(Listen.UNIX, "decline", 30.0),
    )


def test_every_key_of_a_server_of_our_own_is_read(write):
    path = write("""
[server]
mode = "spawn"
codex = "/opt/codex"
codex_home = "/srv/codex"
listen = "stdio"
approvals = "decline"
stop_grace_s = 2.5
""")
    environment = {**HOME, "PATH": "/bin", "NOTIFY_SOCKET": "/run/n", "CODEXDRV_CONFIG": "x"}
    server = load_config(path, environment).server
    assert (server.codex, server.search_path) == ("/opt/codex", "/bin")
    # Its own home, our PATH; not what a service manager says to us alone.
    inherited = {**HOME, "PATH": "/bin", "CODEX_HOME": "/srv/codex"}
    assert server.environment == inherited
    assert server.spawn == Spawn(Listen.STDIO, "decline", 2.5)


def test_the_executable_may_be_named_where_nothing_is_started(write):
    assert load_config(write('[server]\ncodex = "/opt/codex"\n'), HOME).server.codex == "/opt/codex"


def test_the_socket_follows_the_codex_home_of_the_file(write):
    config = load_config(write('[server]\ncodex_home = "/srv/codex"\n'), HOME)
    assert config.server.socket == "/srv/codex/app-server-control/app-server-control.sock"


def test_a_path_is_made_plain(write):
    assert load_config(write('[state]\ndir = "/srv/./a/../state/"\n'), HOME).state == State(
        "/srv/state"
    )


def test_the_named_file_comes_before_the_variable_and_that_before_the_usual_place(write, tmp_path):
    usual = write('[state]\ndir = "/usual"\n', "base/codexdrv/config.toml")
    variable = write('[state]\ndir = "/variable"\n', "variable.toml")
    named = write('[state]\ndir = "/named"\n', "named.toml")
    environment = {**HOME, "XDG_CONFIG_HOME": str(tmp_path / "base")}
    assert load_config(None, environment).path == usual
    environment["CODEXDRV_CONFIG"] = variable
    assert load_config(None, environment).state.directory == "/variable"
    assert load_config(named, environment).state.directory == "/named"


def test_the_usual_place_is_in_the_home_directory(write, tmp_path):
    usual = write("", "home/.config/codexdrv/config.toml")
    assert load_config(None, {"HOME": str(tmp_path / "home")}).path == usual


@pytest.mark.parametrize("path", ["/nonexistent/codexdrv.toml", ""])
def test_a_named_file_that_is_missing_is_an_error(path):
    with pytest.raises(ConfigurationError, match="cannot be read: No such file") as caught:
        load_config(path, HOME)
    assert caught.value.exit_code is ExitCode.CONFIGURATION


def test_a_file_that_the_variable_names_and_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_config(None, {**HOME, "CODEXDRV_CONFIG": str(tmp_path / "none.toml")})


def test_a_directory_is_no_configuration(tmp_path):
    with pytest.raises(ConfigurationError, match="Is a directory"):
        load_config(str(tmp_path), HOME)


@pytest.mark.parametrize("text", ["[server", "a = ", "\0", "a = 1\na = 2\n"])
def test_what_is_no_toml_is_an_error_that_names_the_file(write, text):
    path = write(text)
    with pytest.raises(ConfigurationError, match="is not TOML") as caught:
        load_config(path, HOME)
    assert path in caught.value.message


def test_a_file_that_is_no_utf8_is_an_error(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b'[state]\ndir = "/sr\xe9"\n')
    with pytest.raises(ConfigurationError, match="is not TOML"):
        load_config(str(tmp_path / "latin.toml"), HOME)


@pytest.mark.parametrize(
    ("document", "key", "known"),
    [
        ({"sever": {}}, "'sever'", "at the top: limits, server, state, targets"),
        (
            {"server": {"port": 1}},
            "'server.port'",
            f"in [server]: {', '.join(SERVER_KEYS)}",
        ),
        ({"state": {"directory": "/x"}}, "'state.directory'", "in [state]: dir"),
        ({"limits": {"live": 1}}, "'limits.live'", "in [limits]: live_per_thread, settle_s"),
        (
            {"targets": {"ops": {"thread": THREAD, "busy": "wait"}}},
            "'targets.ops.busy'",
            "in [targets.ops]: hold_in_doubt, thread, when_busy",
        ),
    ],
)
def test_an_unknown_key_is_an_error_that_says_what_is_known(document, key, known):
    with pytest.raises(ConfigurationError) as caught:
        parse_config(document, HOME, path="/etc/codexdrv.toml")
    assert caught.value.message == f"/etc/codexdrv.toml: the key {key} is not known."
    assert caught.value.hint == f"Known {known}."


def test_all_unknown_keys_are_told_at_once():
    document = {
        "state": {"dir": "/x", "place": "/y"},
        "tagets": {},
        "targets": {"ops": {"thread": THREAD, "busy": 1, "hold": True}},
    }
    with pytest.raises(ConfigurationError) as caught:
        parse_config(document, HOME, path=None)
    names = "'tagets', 'state.place', 'targets.ops.busy', 'targets.ops.hold'"
    assert caught.value.message == f"the configuration: the keys {names} are not known."
    assert caught.value.hint == (
        "Known at the top: limits, server, state, targets; in [state]: dir;"
        " in [targets.ops]: hold_in_doubt, thread, when_busy."
    )


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"server": "attach"}, "'server' must be a table"),
        ({"server": []}, "'server' must be a table"),
        ({"state": 1}, "'state' must be a table"),
        ({"limits": True}, "'limits' must be a table"),
        ({"targets": "ops"}, "'targets' must be a table"),
        ({"targets": {"ops": THREAD}}, "'targets.ops' must be a table"),
        ({"server": {"mode": "adopt"}}, '\'server.mode\' must be one of "attach", "spawn"'),
        ({"server": {"mode": 1}}, "'server.mode' must be one of"),
        ({"server": {"socket": "x.sock"}}, "'server.socket' must be an absolute path"),
        ({"server": {"socket": 7}}, "'server.socket' must be an absolute path"),
        ({"server": {"codex": "codex"}}, "'server.codex' must be an absolute path"),
        ({"server": {"approvals": "leave"}}, "'server.approvals' must be left out"),
        ({"server": {"stop_grace_s": 1}}, "'server.stop_grace_s' must be left out"),
        ({"server": {"listen": "unix"}}, "'server.listen' must be left out"),
        (
            {"server": {"mode": "spawn", "listen": "tcp"}},
            '\'server.listen\' must be one of "unix", "stdio"',
        ),
        (
            {"server": {"mode": "spawn", "listen": "stdio", "socket": "/s"}},
            "'server.socket' must be left out",
        ),
        (
            {"server": {"mode": "spawn", "listen": "stdio", "approvals": "leave"}},
            '\'server.approvals\' must be "decline" (with listen = "stdio" nobody else can answer)',
        ),
        (
            {"server": {"mode": "spawn", "approvals": "accept"}},
            '\'server.approvals\' must be one of "decline", "leave"',
        ),
        *(
            (
                {"server": {"mode": "spawn", "stop_grace_s": wrong}},
                "'server.stop_grace_s' must be a number of seconds, 0 or more",
            )
            for wrong in (-1, True, "30", float("inf"), float("nan"))
        ),
        ({"server": {"codex_home": "~/.codex"}}, "'server.codex_home' must be an absolute path"),
        ({"state": {"dir": ""}}, "'state.dir' must be an absolute path"),
        ({"state": {"dir": "/a\0b"}}, "'state.dir' must be an absolute path"),
        ({"limits": {"live_per_thread": 0}}, "'limits.live_per_thread' must be a whole number"),
        ({"limits": {"live_per_thread": 1.5}}, "'limits.live_per_thread' must be a whole number"),
        ({"limits": {"live_per_thread": True}}, "'limits.live_per_thread' must be a whole number"),
        ({"limits": {"live_per_thread": "9"}}, "'limits.live_per_thread' must be a whole number"),
        ({"limits": {"settle_s": -1}}, "'limits.settle_s' must be a number of seconds"),
        (
            {"targets": {"ops": {"thread": THREAD, "hold_in_doubt": 1}}},
            "'targets.ops.hold_in_doubt' must be true or false",
        ),
        ({"targets": {"ops": {}}}, "'targets.ops.thread' must be a thread id"),
        ({"targets": {"ops": {"thread": "x"}}}, "'targets.ops.thread' must be a thread id"),
        ({"targets": {"ops": {"thread": 5}}}, "'targets.ops.thread' must be a thread id"),
        (
            {"targets": {"ops": {"thread": THREAD, "when_busy": "never"}}},
            '\'targets.ops.when_busy\' must be one of "steer", "wait", "interrupt"',
        ),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error_that_says_the_right_one(document, said):
    with pytest.raises(ConfigurationError) as caught:
        parse_config(document, HOME, path=None)
    assert caught.value.message.startswith(f"the configuration: {said}")
    assert caught.value.exit_code is ExitCode.CONFIGURATION
    assert ", and is " in caught.value.message


@pytest.mark.parametrize(
    ("document", "found", "hint"),
    [
        (
            {"state": {"dir": "~/x"}},
            'is "~/x"',
            'Left out, it is "/home/me/.local/state/codexdrv".',
        ),
        ({"limits": {"settle_s": "2"}}, 'is "2"', "Left out, it is 2.0."),
        ({"limits": {"live_per_thread": True}}, "is true", "Left out, it is 512."),
        ({"server": {"mode": ["spawn"]}}, 'is ["spawn"]', 'Left out, it is "attach".'),
        ({"server": {"codex": "codex"}}, 'is "codex"', "Or leave it out."),
        ({"server": {"listen": "unix"}}, 'is "unix"', 'Leave it out, or say mode = "spawn".'),
        (
            {"limits": 3},
            "is 3",
            "Its keys stand below [limits], or after it as { KEY = VALUE }.",
        ),
        (
            {"targets": {"ops": {}}},
            "is not there",
            "`codexdrv threads` lists those of the server.",
        ),
        ({"state": {"dir": "x" * 999}}, f'is "{"x" * 79}…', None),
        ({"state": {"dir": dt.date(2026, 1, 2)}}, 'is "2026-01-02"', None),
    ],
)
def test_a_wrong_value_is_shown_and_what_to_do(document, found, hint):
    with pytest.raises(ConfigurationError) as caught:
        parse_config(document, HOME, path=None)
    assert caught.value.message.endswith(f", and {found}.")
    assert caught.value.hint == hint or hint is None
