"""Command lines of a service: which codexdrv they start, and for how long."""

import re
import sys

import pytest

from codexdrv import __version__
from codexdrv.doctor.interpreter import ask_version, is_fleeting, place_offence
from codexdrv.errors import NotFound
from tests.fakes.children import CHECKOUT


HOME = {"HOME": "/home/me"}


def test_a_command_line_says_which_codexdrv_it_starts():
    command = (sys.executable, "-P", "-m", "codexdrv")
    assert ask_version(command, {"PYTHONPATH": str(CHECKOUT)}) == __version__


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("/nonexistent/python",), "No such file"),
        ((sys.executable, "-I", "-m", "no_such_module"), "No module named no_such_module"),
        (("/bin/sh", "-c", "exit 0"), "exit 0"),
        (("/bin/echo", "hello"), "hello --version"),
        (("/bin/sh", "-c", "exit 3"), "exit 3"),
    ],
)
def test_one_that_starts_something_else_says_what(command, said):
    with pytest.raises(NotFound, match=said) as caught:
        ask_version(command, {})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("path", "fleeting"),
    [
        ("/home/me/.local/share/pipx/venvs/codexdrv/bin/python", False),
        ("/home/me/.local/share/uv/tools/codexdrv/bin/python", False),
        ("/usr/bin/python3", False),
        ("/home/me/tmp/venv/bin/python", False),
        ("/tmpfoo/python", False),
        # `uvx`, `pipx run` of two ages, fnm, and what a test or a notebook makes.
        ("/home/me/.cache/uv/archive-v0/AbC/bin/python", True),
        ("/home/me/.cache/pipx/0123/bin/python", True),
        ("/home/me/.local/pipx/.cache/0123/bin/python", True),
        ("/run/user/1000/fnm_multishells/1_2/bin", True),
        ("/tmp/venv/bin/python", True),
        ("/dev/shm", True),
        ("/scratch/x/python", True),
        ("/big/uv/archive-v0/AbC/bin/python", True),
        ("/home/me/Library/Caches/pipx/python", True),
    ],
)
def test_places_that_are_emptied_are_known(path, fleeting):
    environment = {**HOME, "TMPDIR": "/scratch/", "UV_CACHE_DIR": "/big/uv", "XDG_CACHE_HOME": ""}
    assert is_fleeting(path, environment) is fleeting


@pytest.mark.parametrize(
    ("path", "who"),
    [
        ("/opt/homebrew/Cellar/python@3.13/3.13.1/bin/python3.13", "Homebrew"),
        ("/nix/store/0123-python3-3.13.1/bin/python3.13", "Nix"),
        ("/home/me/.local/share/mise/installs/python/3.13.1/bin/python", "mise"),
    ],
)
def test_a_python_that_somebody_moves_is_told(path, who):
    offence = place_offence(path, HOME)
    assert offence.sentence.startswith(path)
    assert who in offence.sentence
    assert "/usr/bin/python3" in offence.hint


def test_a_link_to_such_a_place_is_one(tmp_path):
    (tmp_path / "python").symlink_to("/nix/store/0123/bin/python3")
    offence = place_offence(f"{tmp_path}/python", HOME)
    # Where tests have their files is emptied, too.
    assert offence is not None


@pytest.mark.parametrize("path", ["/usr/bin/env", "/home/me/.pyenv/versions/3.13.1/bin/python"])
def test_a_python_that_stays_is_fine(path):
    assert place_offence(path, HOME) is None


def test_no_hint_of_the_doctor_or_a_command_installs_what_no_index_has():
    # Whoever takes the name there would be installed in our place.
    sources = [*(CHECKOUT / "codexdrv" / "doctor").glob("*.py")]
    sources += (CHECKOUT / "codexdrv" / "cli").glob("*.py")
    named = re.compile(r"(pip|pipx|uv tool) (install|upgrade)( -\S+)* '?codexdrv")
    assert [path.name for path in sources if named.search(path.read_text())] == []
