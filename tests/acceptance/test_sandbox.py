"""What a model's command may do to us from inside Codex's sandbox: why the state lies elsewhere."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest


PROBE = """
import json, pathlib, socket, sys
state, workspace, tmpdir = sys.argv[1:]
def may(do):
    try:
        do()
    except OSError:
        return False
    return True
def send():
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", f"{state}/bell")
print(json.dumps({
    "read": may(pathlib.Path(state, "journal").read_bytes),
    "write": may(pathlib.Path(state, "journal").touch),
    "ring": may(send),
    "workspace": may(pathlib.Path(workspace, "mine").touch),
    "tmpdir": may(pathlib.Path(tmpdir, "mine").touch),
}))
"""


class Places(NamedTuple):
    """Directories outside of /tmp."""

    home: Path
    state: Path
    workspace: Path
    tmpdir: Path


@pytest.fixture
def places() -> Iterator[Places]:
    """A state directory with a journal and a bell, and what a sandbox knows."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        made = Places(*(Path(directory, name) for name in Places._fields))
        for path in made:
            path.mkdir()
        (made.state / "journal").write_text("what was said")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
            bell.bind(str(made.state / "bell"))
            yield made


def probe(codex: str, places: Places, *settings: str) -> dict[str, bool]:
    """Run the probe as a command of the model runs."""
    words = [word for setting in settings for word in ("-c", setting)]
    command = (sys.executable, "-c", PROBE, places.state, places.workspace, places.tmpdir)
    done = subprocess.run(
        [codex, "sandbox", *words, "--", *command],
        cwd=places.workspace,
        env=os.environ | {"CODEX_HOME": str(places.home), "TMPDIR": str(places.tmpdir)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


READ_ONLY = 'sandbox_mode="read-only"'
WORKSPACE = 'sandbox_mode="workspace-write"'
NETWORK = "sandbox_workspace_write.network_access=true"


@pytest.mark.parametrize(
    ("settings", "writes_its_own", "rings"),
    [
        ((READ_ONLY,), False, False),
        ((WORKSPACE,), True, False),
        ((WORKSPACE, NETWORK), True, True),
    ],
    ids=["read-only", "workspace-write", "network"],
)
def test_a_sandboxed_command_reads_our_state_and_cannot_write_it(
    codex: str, places: Places, settings: tuple[str, ...], writes_its_own: bool, rings: bool
):
    assert probe(codex, places, *settings) == {
        "read": True,
        "write": False,
        "ring": rings,
        "workspace": writes_its_own,
        "tmpdir": writes_its_own,
    }


def test_a_state_directory_in_the_workspace_is_the_model_s(codex: str, places: Places):
    inside = places._replace(workspace=places.state)
    assert probe(codex, inside, WORKSPACE)["write"]
