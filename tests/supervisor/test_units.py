"""What the units say, read back as systemd reads them; and that nothing in a path can break one."""

import plistlib
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codexdrv.doctor.unit_file import merge_settings, read_command, read_environment
from codexdrv.errors import ConfigurationError
from supervisor.units import Service, install_steps, launchd_plist, systemd_unit


COMMAND = ("/home/me/venv/bin/python", "-I", "-m", "codexdrv", "supervise")
ATTACHED = Service(COMMAND, {"PATH": "/usr/bin"}, None, "/home/me/.config/codexdrv/service.env")
SPAWNING = ATTACHED._replace(stop_grace_s=30.0)

# All that a path may hold, but for control characters.
TEXT = st.text(
    st.one_of(
        st.sampled_from(string.printable[:95] + "%$\\\"' ;#{}"),
        st.characters(exclude_categories=("Cc", "Cs")),
    ),
    max_size=130,
)


def read(text):
    """Read a unit's [Service] section, as the doctor does."""
    settings: dict[str, list[str]] = {}
    merge_settings(settings, text)
    return settings


def one(text, key):
    (value,) = read(text)[key]
    return value


# Words


@given(TEXT, TEXT)
@example("with space", "%h/$HOME/${X}")
@example("50%", "a'b\"c\\d")
@example("", "#;")
@example("x" * 120, "ends with \\")
def test_no_path_and_no_value_changes_its_meaning(directory, value):
    program = f"/opt/{directory}/python".translate(dict.fromkeys(map(ord, "\"'\\")))
    service = SPAWNING._replace(
        command=(program, "--config", f"/{value}", value),
        environment={"CODEX_HOME": value, "PATH": f"/{directory}:{value}"},
    )
    settings = read(systemd_unit(service))
    assert read_command(settings["ExecStart"][0], {"h": "/wrong"}) == service.command
    assert read_environment({"Environment": settings["Environment"]}, {"h": "/wrong"}) == (
        service.environment
    )


def test_plain_words_stay_plain():
    text = systemd_unit(ATTACHED)
    assert "\nExecStart=/home/me/venv/bin/python -I -m codexdrv supervise\n" in text
    assert "\nEnvironment=PATH=/usr/bin\n" in text


def test_a_dollar_is_none_of_systemds_business():
    service = ATTACHED._replace(command=("/opt/$x/python", "$y"))
    assert "\nExecStart=:/opt/$x/python $y\n" in systemd_unit(service)


@pytest.mark.parametrize("letter", ['"', "'", "\\"])
def test_a_program_that_systemd_refuses_is_refused_before(letter):
    service = ATTACHED._replace(command=(f"/opt/{letter}/python",))
    with pytest.raises(ConfigurationError, match="quotes or backslashes"):
        systemd_unit(service)


@pytest.mark.parametrize("letter", ["\n", "\0", "\x1b", "\x7f", "\x85", "\udcff"])
def test_what_cannot_stand_in_a_line_is_refused(letter):
    for service in (
        ATTACHED._replace(command=("/opt/python", letter)),
        ATTACHED._replace(environment={"A": letter}),
        SPAWNING._replace(secrets=letter),
    ):
        with pytest.raises(ConfigurationError, match="cannot stand in a service unit"):
            systemd_unit(service)
    with pytest.raises(ConfigurationError):
        launchd_plist(ATTACHED, log=f"/{letter}")


# The service


@pytest.mark.field_report("openclaw#60170")
@pytest.mark.parametrize("service", [ATTACHED, SPAWNING], ids=["attach", "spawn"])
def test_it_comes_back_for_ever_but_not_with_a_wrong_configuration(service):
    # FIELD-REPORTS: openclaw#60170, a bad configuration: 6,198 restarts in 12.5 h.
    text = systemd_unit(service)
    assert one(text, "Restart") == "always"
    assert one(text, "RestartPreventExitStatus") == "78"
    assert float(one(text, "RestartSec")) >= 10
    assert "\nStartLimitIntervalSec=0\n" in text.partition("[Service]")[0]


def test_it_is_ready_when_it_says_so_and_watched():
    assert one(systemd_unit(ATTACHED), "Type") == "notify"
    assert float(one(systemd_unit(ATTACHED), "WatchdogSec")) > 0
    assert one(systemd_unit(ATTACHED), "ExecReload").endswith(" -HUP $MAINPID")


@pytest.mark.parametrize("grace_s", [0.0, 0.5, 30.0, 600.0])
def test_a_server_of_our_own_gets_its_grace_from_us(grace_s):
    text = systemd_unit(SPAWNING._replace(stop_grace_s=grace_s))
    # The turns, then the server itself; the answers; its second SIGTERM, and its SIGKILL.
    assert float(one(text, "TimeoutStopSec")) >= 2 * grace_s + 5 + 2 + 5
    assert one(text, "KillMode") == "mixed"
    assert one(text, "OOMPolicy") == "continue"


def test_only_where_nobody_elses_commands_run_is_anything_forbidden():
    spawning, attached = read(systemd_unit(SPAWNING)), read(systemd_unit(ATTACHED))
    forbidding = set(attached) - set(spawning)
    assert "NoNewPrivileges" in forbidding
    assert set(spawning) - set(attached) == {"EnvironmentFile", "KillMode", "OOMPolicy"}
    # Newer servers have their sockets in /tmp; the journal and Codex's home are in ours.
    assert forbidding & {"PrivateTmp", "ProtectHome", "ProtectSystem", "DynamicUser"} == set()


def test_secrets_are_in_a_file_that_need_not_exist():
    text = systemd_unit(SPAWNING._replace(secrets="/home/50% me/service.env"))
    assert one(text, "EnvironmentFile") == "-/home/50%% me/service.env"


def test_a_unit_of_the_system_runs_as_the_user():
    text = systemd_unit(ATTACHED._replace(user="me"))
    assert one(text, "User") == "me"
    assert "\nWantedBy=multi-user.target\n" in text
    assert all(f"#   {line}\n" in text for line in install_steps(ATTACHED._replace(user="me")))
    assert "sudo" in text
    text = systemd_unit(ATTACHED)
    assert "User" not in read(text)
    assert "\nWantedBy=default.target\n" in text
    assert all(f"#   {line}\n" in text for line in install_steps(ATTACHED))
    assert "enable-linger" in text


def test_what_to_do_names_the_configuration_that_the_unit_was_made_with():
    service = ATTACHED._replace(command=(*COMMAND[:4], "--config", "/my {cfg}/c.toml", "supervise"))
    made = "codexdrv --config '/my {cfg}/c.toml' service-template systemd"
    assert f"#   {made} > ~/.config/systemd/user/codexdrv.service\n" in systemd_unit(service)
    assert any(step.startswith(made) for step in install_steps(service._replace(user="me")))


def test_the_agent_of_launchd_is_whole_and_says_that_nobody_has_tried_it():
    service = SPAWNING._replace(command=("/a & b/<python>", "--config", "/x--y"))
    text = launchd_plist(service, log="/home/me/Library/Logs/codexdrv.log")
    agent = plistlib.loads(text.encode())
    assert tuple(agent["ProgramArguments"]) == service.command
    assert agent["EnvironmentVariables"] == service.environment
    assert agent["KeepAlive"] is True
    assert agent["ExitTimeOut"] == service.stop_s
    assert "UNTESTED" in text.partition("<plist")[0]
