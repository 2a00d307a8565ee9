"""`service-template`: what it writes down of a shell, and what it says beside that."""

import os
import plistlib
import pty
import subprocess

import pytest

from codexdrv import __version__
from codexdrv.binary import bundled_binary
from codexdrv.cli.service_template import PATH_DEFAULT, service_path
from codexdrv.config import parse_config
from codexdrv.doctor.interpreter import ask_version
from codexdrv.doctor.unit_file import merge_settings, read_command, read_environment
from tests.cli.conftest import Ran
from tests.fakes.environments import make_environment


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return make_environment(tmp_path_factory.mktemp("installed") / "venv")


def shell(desk, **more):
    """The variables of a shell."""
    return {"HOME": f"{desk.root}/home", "PATH": "/usr/bin:/bin", **more}


def template(desk, python, *words, environment=None, **options):
    """Run it as it is installed; the configuration is named as a person does."""
    done = subprocess.run(
        [str(python), "-m", "codexdrv", "--config", desk.config.name, "service-template", *words],
        env=environment or shell(desk),
        capture_output=True,
        text=True,
        cwd=desk.root,
        check=False,
        **options,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def read(unit):
    settings: dict[str, list[str]] = {}
    merge_settings(settings, unit)
    return settings


def said_of(ran):
    """The warnings, without the one about where tests have their files."""
    lines = ran.err.partition("To install it:")[0].splitlines()
    first = [line for line in lines if line.startswith("codexdrv")]
    return [
        line.removeprefix("codexdrv service-template: ")
        for line in first
        if "among temporary files" not in line and "you are root" not in line
    ]


# The command line


@pytest.mark.field_report("remodex#47", "agent-deck#204")
@pytest.mark.parametrize("words", [["systemd"], ["systemd", "--system"]])
def test_the_unit_starts_the_supervisor_of_this_environment_with_this_configuration(
    desk, python, words
):
    ran = template(desk, python, *words)
    assert ran.code == 0
    command = read_command(read(ran.out)["ExecStart"][0], {})
    assert command == (
        *(str(python), "-I", "-m", "codexdrv"),
        *("--config", str(desk.config), "supervise"),
    )
    assert ask_version(command[:4], {}) == __version__


def test_without_a_configuration_file_the_service_has_none_either(desk, python):
    command = [str(python), "-m", "codexdrv", "service-template", "systemd"]
    out = subprocess.run(command, env=shell(desk), capture_output=True, text=True, check=True)
    assert read(out.stdout)["ExecStart"][0].endswith(" -I -m codexdrv supervise")


def test_an_installation_that_only_this_shell_can_import_is_refused(desk, python, tmp_path):
    bare = tmp_path / "bare" / "bin" / "python"
    make_environment(tmp_path / "bare")
    (found,) = (tmp_path / "bare").rglob("checkout.pth")
    checkout = found.read_text().strip()
    found.unlink()
    ran = template(desk, bare, "systemd", environment=shell(desk, PYTHONPATH=checkout))
    assert (ran.code, ran.out) == (78, "")
    assert "$PYTHONPATH" in ran.sentence
    assert "`pipx install PATH_OF_CHECKOUT`" in ran.err


def test_a_place_that_is_emptied_is_warned_of(desk, python):
    ran = template(desk, python, "systemd")
    assert f"{python} lies among temporary files" in ran.err
    assert "`pipx install PATH_OF_CHECKOUT`" in ran.err


# The environment


@pytest.mark.field_report("remodex#47", "agent-deck#204")
def test_the_environment_is_that_of_the_shell_and_absolute(desk, python):
    environment = shell(
        desk,
        CODEX_HOME="my codex",
        XDG_STATE_HOME=f"{desk.root}/50% $HOME",
        XDG_CONFIG_HOME="relative",
        XDG_RUNTIME_DIR="/run/user/1000",
        SECRET="x",
    )
    ran = template(desk, python, "systemd", environment=environment)
    assert read_environment(read(ran.out), {}) == {
        "HOME": f"{desk.root}/home",
        "PATH": "/usr/bin:/bin",
        "CODEX_HOME": f"{desk.root}/my codex",
        "XDG_STATE_HOME": f"{desk.root}/50% $HOME",
    }
    assert "x" not in read_environment(read(ran.out), {}).values()


def path_of(entries, **options):
    environment = {"HOME": "/home/me", "PATH": ":".join(entries)}
    return service_path(parse_config({"server": options}, environment, path=None))


@pytest.mark.field_report("remodex#47", "agent-deck#204")
def test_the_path_is_the_shells_without_what_a_service_does_not_find(tmp_path):
    # remodex#47, agent-deck#204: found in a shell, not by a service.
    (tmp_path / "shell").symlink_to("/usr/bin")
    entries = ["", ".", "relative", "/nonexistent", f"{tmp_path}/shell", "/usr/bin/", "/bin"]
    assert path_of([*entries, str(tmp_path)]) == "/usr/bin:/bin"
    assert path_of([str(tmp_path)]) == PATH_DEFAULT


def test_a_directory_that_codex_makes_for_its_commands_is_left_out():
    assert path_of(["/usr/lib", "/usr/bin"], codex_home="/usr/lib") == "/usr/lib:/usr/bin"
    assert path_of(["/usr/lib/python3", "/bin"], codex_home="/usr/lib") == "/bin"


# A server of our own


def test_with_a_server_of_our_own_codex_must_be_found_with_that_path(desk, python):
    desk.configure(f'server.mode = "spawn"\nserver.codex = "{desk.root}/gone"')
    ran = template(desk, python, "systemd")
    assert (ran.code, ran.out) == (78, "")
    assert f"{desk.root}/gone" in ran.sentence


def test_what_the_server_may_need_and_the_unit_must_not_hold_is_told(desk, python):
    desk.configure(f'server.mode = "spawn"\nserver.codex = "{bundled_binary()}"')
    environment = shell(desk, OPENAI_API_KEY="sk-secret", https_proxy="http://me:word@proxy")
    ran = template(desk, python, "systemd", environment=environment)
    assert said_of(ran) == ["set here, and not in the unit: OPENAI_API_KEY, https_proxy."]
    assert f"put them into {desk.root}/service.env (chmod 600)" in ran.err
    assert read(ran.out)["EnvironmentFile"] == [f"-{desk.root}/service.env"]
    assert "secret" not in ran.out + ran.err
    assert "word" not in ran.out + ran.err
    assert read(ran.out)["KillMode"] == ["mixed"]


def test_attached_no_server_needs_anything(desk, python):
    ran = template(desk, python, "systemd", environment=shell(desk, OPENAI_API_KEY="sk-secret"))
    assert said_of(ran) == []


# What to do with it


def test_a_file_gets_the_unit_and_the_terminal_what_to_do_with_it(desk, python):
    ran = template(desk, python, "systemd")
    assert ran.out.endswith("WantedBy=default.target\n")
    steps = [line.strip() for line in ran.err.partition("To install it:\n")[2].splitlines()]
    assert "systemctl --user enable --now codexdrv" in steps
    assert all(f"#   {step}\n" in ran.out for step in steps)
    assert "sudo" in template(desk, python, "systemd", "--system").err


def test_a_terminal_gets_both_once(desk, python):
    ours, theirs = pty.openpty()
    command = [str(python), "-m", "codexdrv", "service-template", "systemd"]
    with os.fdopen(ours), os.fdopen(theirs):
        done = subprocess.run(
            command,
            env=shell(desk),
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
            timeout=15,
        )
    assert "To install it:" not in done.stderr


def test_the_agent_of_launchd_says_that_nobody_has_tried_it(desk, python):
    ran = template(desk, python, "launchd")
    assert plistlib.loads(ran.out.encode())["ProgramArguments"][-1] == "supervise"
    assert "UNTESTED" in ran.out
    assert "launchctl bootstrap" in ran.err
    ran = template(desk, python, "launchd", "--system")
    assert (ran.code, ran.out) == (2, "")
    assert ran.sentence == "--system is for systemd."


def test_it_installs_nothing(desk, python):
    before = sorted(desk.root.rglob("*"))
    assert template(desk, python, "systemd").code == 0
    assert sorted(desk.root.rglob("*")) == before
