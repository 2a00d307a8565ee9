"""A real `codex app-server` as a child, on a home of its own, with a scripted model."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from codexdrv.errors import NoServer
from codexdrv.transport.ladder import SECOND_GRACE_S


READY_TIMEOUT_S = 20.0
"""It takes 0.1 s; a cold disk has 360 MB to read."""

READY_POLL_S = 0.02
"""Much less than a start takes; the wait ends at once when the child dies."""

STOP_GRACE_S = 10.0
"""SIGTERM lets the server finish its turn; the model of a demo answers in milliseconds."""

STDERR_TAIL_BYTES = 2048
"""Enough of its last words for an error message."""

CHILD_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Commands of the model's script find a shell and the coreutils; nothing of the caller's."""


def write_home(home: Path, base_url: str) -> None:
    """Make a CODEX_HOME whose only model is the one at `base_url`: no login, no retries."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "config.toml").write_text(
        'model = "scripted"\n'
        'model_provider = "scripted"\n'
        "[model_providers.scripted]\n"
        'name = "scripted"\n'
        f"base_url = {json.dumps(base_url)}\n"
        'wire_api = "responses"\n'
        "request_max_retries = 0\n"
        "stream_max_retries = 0\n"
    )


class AppServer:
    """One `codex app-server --listen unix://SOCKET`; after its end it may be started again."""

    def __init__(
        self, binary: str | Path, home: Path, socket_path: Path, stderr_path: Path
    ) -> None:
        self.binary = binary
        self.home = home
        self.socket_path = socket_path
        self.stderr_path = stderr_path
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the running, or last, child."""
        return self._started().pid

    @property
    def is_running(self) -> bool:
        """Whether the child has not ended."""
        return self._child is not None and self._child.poll() is None

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the server; on return its socket accepts connections.

        Raises:
            NoServer: it does not run, or not in time; nothing is left behind.
        """
        assert not self.is_running, "a server is started once at a time"
        self._child = self._spawn()
        try:
            self._wait_until_ready(time.monotonic() + timeout_s)
        except BaseException:
            self.kill()
            raise

    def terminate(self) -> None:
        """Ask the server to finish its turn and exit; a second time, to exit now.

        Until it has answered its first `initialize`, SIGTERM may end it like SIGKILL.
        """
        self._started().terminate()

    def wait(self, timeout_s: float) -> int:
        """Wait for the server's end and return its exit code, negative for a signal.

        Raises:
            TimeoutError: it still runs.
        """
        try:
            return self._started().wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"codex app-server still runs after {timeout_s} s") from None

    def kill(self) -> None:
        """End the server's process group with SIGKILL; its socket stays, as after a crash."""
        child = self._started()
        if child.poll() is None:  # not reaped, so that the group's id is still ours
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def stop(
        self, *, grace_s: float = STOP_GRACE_S, second_grace_s: float = SECOND_GRACE_S
    ) -> None:
        """End the server, kindly if it lets us; neither process nor socket is left behind."""
        if self._child is None:
            return
        for patience_s in (grace_s, second_grace_s):
            self.terminate()
            with contextlib.suppress(TimeoutError):
                self.wait(patience_s)
                break
        self.kill()
        self._sweep()

    def _started(self) -> subprocess.Popen[bytes]:
        assert self._child is not None, "the server was never started"
        return self._child

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [str(self.binary), "app-server", "--listen", f"unix://{self.socket_path}"]
        home = str(self.home)
        try:
            with self.stderr_path.open("ab") as stderr:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    cwd=home,
                    env={"PATH": CHILD_PATH, "HOME": home, "CODEX_HOME": home, "LANG": "C.UTF-8"},
                    start_new_session=True,
                )
        except OSError as error:
            raise NoServer(f"{self.binary} cannot be started: {error}.") from error

    def _wait_until_ready(self, deadline: float) -> None:
        while not self._accepts():
            with contextlib.suppress(TimeoutError):
                code = self.wait(READY_POLL_S)
                raise NoServer(f"codex app-server ended with {code}: {self._last_words()}")
            if time.monotonic() > deadline:
                raise NoServer(f"codex app-server does not listen: {self._last_words()}")

    def _accepts(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket_path))
            except OSError:
                return False
            return True

    def _last_words(self) -> str:
        words = self.stderr_path.read_bytes()[-STDERR_TAIL_BYTES:]
        return words.decode(errors="replace").strip() or "it said nothing"

    def _sweep(self) -> None:
        # After SIGKILL, 0.163 and newer leave our link and, behind it, a socket with its lock.
        if self.socket_path.is_symlink():
            behind = self.socket_path.readlink()
            if behind.is_socket():
                behind.with_name(behind.name + ".lock").unlink(missing_ok=True)
                behind.unlink()
        self.socket_path.unlink(missing_ok=True)
