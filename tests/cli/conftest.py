"""A desk: one state directory, and the commands as a user runs them on it, no supervisor up."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from codexdrv import bell
from codexdrv.cli.main import main
from codexdrv.journal.journal import Journal
from tests.fakes.children import CHECKOUT
from tests.fakes.orders import OTHER_THREAD, THREAD


class Ran(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def body(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        body: dict[str, Any] = json.loads(self.out)
        return body

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The JSON objects on stdout, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def sentence(self) -> str:
        """What stderr says: one sentence, and in a second line what to do."""
        said, advice = self.err.splitlines()
        assert said.startswith("codexdrv")
        assert said.endswith(".")
        assert advice.startswith("  ")
        return said.partition(": ")[2]


def end_of(process: subprocess.Popen[bytes], stdin: bytes = b"") -> Ran:
    """Wait for the end of a process; what it does not write through a pipe counts as nothing."""
    out, err = process.communicate(stdin)
    return Ran(process.returncode, (out or b"").decode(), (err or b"").decode())


class Desk:
    """Commands run in this process, or, where a process adds something, in one of their own."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.state = root / "xdg" / "codexdrv"
        self.config = root / "codexdrv.toml"
        self.configure()
        self._capsys = capsys
        self._ringers: list[socket.socket] = []

    def configure(self, more: str = "") -> None:
        """Write the configuration: two targets, and what a test adds."""
        self.config.write_text(
            f'state.dir = "{self.state}"\n'
            f'server.socket = "{self.root}/no.sock"\n'
            f'targets.ops.thread = "{THREAD}"\n'
            f'targets.calm = {{ thread = "{OTHER_THREAD}", when_busy = "wait" }}\n'
            f"{more}\n"
        )

    def run(self, *words: str) -> Ran:
        """Run a command here."""
        self._capsys.readouterr()
        try:
            code = main(["--config", str(self.config), *words])
        except SystemExit as end:
            code = int(end.code or 0)
        return Ran(code, *self._capsys.readouterr())

    def start(self, *words: str | bytes, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command in a process with an environment of its own."""
        return self.start_python("-m", "codexdrv", "--config", str(self.config), *words, **options)

    def start_python(self, *words: str | bytes, **options: Any) -> subprocess.Popen[bytes]:
        """Start Python with that environment."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(
            [sys.executable, *words], **{"env": self.environment(), **pipes, **options}
        )

    def call(self, *words: str | bytes, stdin: bytes = b"", **options: Any) -> Ran:
        """Run a command in a process of its own, to its end."""
        return end_of(self.start(*words, **options), stdin)

    def call_python(self, *words: str | bytes) -> Ran:
        """Run Python to its end."""
        return end_of(self.start_python(*words))

    def environment(self) -> dict[str, str]:
        """What a process of its own finds."""
        return {
            "HOME": str(self.root / "home"),
            "XDG_STATE_HOME": str(self.root / "xdg"),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(CHECKOUT),
        }

    def journal(self) -> Journal:
        """Open the journal beside the commands."""
        return Journal(str(self.state))

    def hang_up_bell(self) -> socket.socket:
        """Be up, as far as a command can tell."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        ringer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ringers.append(ringer)
        ringer.setblocking(False)
        ringer.bind(f"{self.state}/{bell.FILE_NAME}")
        return ringer

    def close(self) -> None:
        """Take the bells down."""
        for ringer in self._ringers:
            ringer.close()


@pytest.fixture
def desk(tmp_path, capsys):
    desk = Desk(tmp_path, capsys)
    yield desk
    desk.close()
