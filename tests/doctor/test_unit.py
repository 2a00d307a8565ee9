"""The service as it would find things, and what the doctor says of that.

FIELD-REPORTS: remodex#47, agent-deck#204: fine in a shell, not as a service: PATH, interpreter.
"""

import os
from typing import NamedTuple

import pytest

from codexdrv import __version__
from codexdrv.binary import bundled_binary
from codexdrv.config import load_config
from codexdrv.doctor import unit
from codexdrv.doctor.finding import State
from codexdrv.doctor.unit_file import NAME
from codexdrv.paths import Offence
from supervisor.units import Service, systemd_unit
from tests.fakes.environments import make_environment


US, _ = unit._who()


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return make_environment(tmp_path_factory.mktemp("installed") / "venv")


class Machine(NamedTuple):
    """A home with a configuration, and a unit that was made for it."""

    root: str
    service: Service
    environment: dict[str, str]
    config_path: str

    @property
    def unit_path(self):
        return f"{self.root}/.config/systemd/user/{NAME}"

    def write(self, path, text):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def install(self, text=None):
        self.write(self.unit_path, systemd_unit(self.service) if text is None else text)
        wants = f"{self.root}/.config/systemd/user/default.target.wants"
        os.makedirs(wants, exist_ok=True)
        os.symlink(self.unit_path, f"{wants}/{NAME}")
        self.write(f"{self.root}/linger/{US}", "")

    def findings(self, *, version=__version__, **options):
        """What the doctor says in a shell, but for where tests have their files."""
        config = load_config(self.config_path, self.environment)
        places = {"places": (f"{self.root}/system",), "linger": f"{self.root}/linger"}
        seen = unit.look_at_units(config, **places | options)
        found = unit.judge_units(seen, config, version=version)
        return [each for each in found if "among temporary files" not in each.found]

    def finding(self, **options):
        (finding,) = self.findings(**options)
        assert (finding.state is State.OK) == (not finding.remedy)
        return finding


@pytest.fixture
def machine(tmp_path, python):
    config = tmp_path / "my config" / "codexdrv.toml"
    config.parent.mkdir()
    config.touch()
    environment = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "CODEX_HOME": f"{tmp_path}/50% codex",
        "XDG_STATE_HOME": f"{tmp_path}/state",
    }
    command = (str(python), "-I", "-m", "codexdrv", "--config", str(config), "supervise")
    service = Service(command, environment, None, f"{tmp_path}/service.env")
    return Machine(str(tmp_path), service, environment, str(config))


def test_no_unit_is_a_note_with_the_command_that_makes_one(machine):
    finding = machine.finding()
    assert (finding.state, finding.found) == (State.NOTE, "no systemd unit is installed")
    assert "`codexdrv service-template systemd`" in finding.remedy


def test_a_unit_that_finds_what_the_shell_finds_is_fine(machine):
    machine.install()
    assert machine.findings() == []
    (fleeting,) = unit.judge_units(
        unit.look_at_units(
            load_config(machine.config_path, machine.environment),
            places=(),
            linger=f"{machine.root}/linger",
        ),
        load_config(machine.config_path, machine.environment),
        version=__version__,
    )
    assert (fleeting.state, "it will not start for long" in fleeting.found) == (State.NOTE, True)


@pytest.mark.field_report("openclaw#60170")
@pytest.mark.parametrize(
    ("old", "new", "state", "found"),
    [
        # The interpreter.
        ("/bin/python ", "/bin/gone ", State.WRONG, "/bin/gone is not there"),
        ("-I -m codexdrv", "-I -S -m codexdrv", State.WRONG, "No module named codexdrv"),
        # The configuration.
        ("codexdrv.toml", "other.toml", State.WRONG, "other.toml cannot be read"),
        # What a shell has and a service lacks.
        ("Environment=XDG_STATE_HOME", "#", State.WRONG, "it does not see what you deliver"),
        ("/50%% codex", "/other", State.WRONG, "its Codex home is "),
        # How it is run.
        ("Type=notify", "Type=simple", State.NOTE, "without Type=notify"),
        ("Restart=always", "", State.NOTE, "it does not come back"),
        # openclaw#60170: a bad configuration: 6,198 restarts in 12.5 h.
        ("Status=78", "Status=1", State.WRONG, "(exit 78) is restarted for ever"),
        ("[Install]", "PrivateTmp=yes", State.WRONG, "socket is hidden by PrivateTmp"),
        (" supervise", " status", State.NOTE, "not `codexdrv supervise` itself"),
        ("-m codexdrv", "-m other", State.NOTE, "not `codexdrv supervise` itself"),
        ("ExecStart=", "Exec=", State.NOTE, "runs nothing, not"),
        ("Type=notify", "Type=notify\nUser=nobody", State.NOTE, "runs as nobody: not looked at"),
    ],
)
def test_each_thing_that_differs_is_told_with_its_remedy(machine, old, new, state, found):
    text = systemd_unit(machine.service)
    assert old in text
    machine.install(text.replace(old, new))
    finding = machine.finding()
    assert (finding.state, found in finding.found) == (state, True), finding
    assert finding.found.startswith(machine.unit_path)


@pytest.mark.field_report("remodex#47", "agent-deck#204")
def test_an_interpreter_that_an_upgrade_has_moved_is_named_with_where_it_led(machine):
    os.symlink("/nonexistent/python3.11", f"{machine.root}/python")
    machine.install(
        systemd_unit(
            machine.service._replace(
                command=(f"{machine.root}/python", *machine.service.command[1:])
            )
        )
    )
    assert "a link to /nonexistent/python3.11, is not there" in machine.finding().found


def test_another_version_is_a_note(machine):
    machine.install()
    finding = machine.finding(version="9.9.9")
    assert finding.state is State.NOTE
    assert f"it runs codexdrv {__version__}, and this is 9.9.9" in finding.found


def test_a_configuration_that_became_wrong_is_what_the_service_would_exit_78_for(machine):
    machine.install()
    config = load_config(machine.config_path, machine.environment)
    machine.write(machine.config_path, "nonsense = 1")
    seen = unit.look_at_units(config, places=(), linger=f"{machine.root}/linger")
    wrong = unit.judge_units(seen, config, version=__version__)[-1]
    assert wrong.state is State.WRONG
    assert "the service would not start: " in wrong.found
    assert "'nonsense' is not known" in wrong.found


# A server of our own


def spawning(machine, *, codex=""):
    machine.write(machine.config_path, f'server.mode = "spawn"\n{codex}')
    return systemd_unit(machine.service._replace(stop_grace_s=30.0))


@pytest.mark.field_report("remodex#47", "agent-deck#204")
def test_the_codex_of_a_shell_must_be_on_the_path_of_the_service(machine, tmp_path):
    text = spawning(machine)
    (tmp_path / "shims").mkdir()
    (tmp_path / "shims" / "codex").write_text("#!/bin/sh\nexec other-codex\n")
    (tmp_path / "shims" / "codex").chmod(0o755)
    machine.install(text.replace("PATH=/usr/bin", f"PATH={tmp_path}/shims:/usr/bin"))
    finding = machine.finding()
    assert finding.state is State.WRONG
    assert "it finds no codex to start: " in finding.found
    assert f"{tmp_path}/shims/codex" in finding.found


def test_what_breaks_the_sandbox_of_codex_is_named(machine):
    text = spawning(machine, codex=f'server.codex = "{bundled_binary()}"')
    machine.install(text)
    assert machine.findings() == []
    machine.write(
        f"{machine.unit_path}.d/harden.conf",
        "[Service]\nNoNewPrivileges=yes\nProtectHome=no\nProtectSystem=strict\n",
    )
    finding = machine.finding()
    assert finding.state is State.WRONG
    assert "under NoNewPrivileges, ProtectSystem" in finding.found


def test_a_unit_made_for_attaching_is_not_one_for_a_server_of_our_own(machine):
    spawning(machine, codex=f'server.codex = "{bundled_binary()}"')
    machine.install(systemd_unit(machine.service))
    assert "Codex cannot run its commands under NoNewPrivileges" in machine.finding().found


# How it is started


def test_a_unit_that_nothing_starts_or_that_a_logout_ends_is_a_note(machine):
    machine.write(machine.unit_path, systemd_unit(machine.service))
    enabled, lingering = machine.findings()
    assert {enabled.state, lingering.state} == {State.NOTE}
    assert enabled.remedy == "`systemctl --user enable --now codexdrv`"
    assert lingering.remedy == "`loginctl enable-linger`"


def test_a_unit_of_the_system_needs_no_login(machine):
    path = f"{machine.root}/system/{NAME}"
    machine.write(path, systemd_unit(machine.service._replace(user=US)))
    finding = machine.finding()
    assert finding.found == f"{path}: it is not enabled: nothing starts it"
    assert finding.remedy == "`sudo systemctl enable --now codexdrv`"


def test_a_masked_unit_is_a_note(machine):
    machine.install("")
    assert "masked" in machine.finding().found


def test_a_look_that_failed_is_wrong(machine):
    config = load_config(machine.config_path, machine.environment)
    (finding,) = unit.judge_units(Offence("it is broken", "mend it"), config, version="1")
    assert finding[1:] == (State.WRONG, "it is broken", "mend it")
