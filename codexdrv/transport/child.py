"""A server process of our own: started in a session of its own, heard, and seen gone."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

import anyio

from codexdrv.errors import NoServer
from codexdrv.transport import launch
from codexdrv.transport.ladder import KILLED_GRACE_S, SECOND_GRACE_S
from codexdrv.transport.peer import PeerIdentity, identify
from codexdrv.transport.stream import DescriptorStream


EXIT_POLL_S = 0.02
"""`wait` of asyncio also waits for the pipes, which a grandchild may hold: so its end is polled."""

STDERR_LINE_BYTES_MAX = 4096
"""A longer line is cut into several: the log is no place for bodies."""

STDERR_TAIL_LINES = 10
"""Enough of its last words for an error message."""

LAST_WORDS_S = 2.0
"""What it said before that is not why it ended: codex complains at each start without bubblewrap,
and runs well for weeks. Whoever says why it ends does so milliseconds before."""

LISTEN_ON_S = 0.2
"""What it said last is on its way through the thread; only a process that left its session still
holds the pipe then."""

_COLOUR = re.compile("\x1b\\[[0-9;]*m")


class Child:
    """A running command, the head of its own session and process group."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: str,
        on_stderr: Callable[[str], None],
        has_pipes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start it; from the main thread, whose end it is told of.

        Args:
            command: the executable by its absolute path, and its arguments.
            environment: all of it.
            directory: where it runs.
            on_stderr: called with each line that it says on stderr, in a thread of its own.
            has_pipes: whether we talk to it through its stdin and stdout.
            clock: seconds; read in that thread, too.

        Raises:
            NoServer: it could not be started.
        """
        pipe = subprocess.PIPE if has_pipes else subprocess.DEVNULL
        launcher = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid())]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command is the configured binary
                [*launcher, *command],
                stdin=pipe,
                stdout=pipe,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=directory,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise NoServer(
                f"{error.filename or command[0]} cannot be started: {error.strerror}.",
                hint=f"Check it, and the directory {directory}.",
            ) from error
        self._clock = clock
        #: When it said what.
        self._tail: deque[tuple[float, str]] = deque(maxlen=STDERR_TAIL_LINES)
        #: When nobody could say anything any more.
        self._fell_silent_s: float | None = None
        self._on_stderr = on_stderr
        # A thread, because it must go on whatever the loop does: a full pipe stops the server.
        self._listener = threading.Thread(target=self._hear_stderr, name="stderr", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """The process id; the launcher's is the command's."""
        return self._process.pid

    @property
    def identity(self) -> PeerIdentity | None:
        """Which process it is, for as long as it has not been reaped."""
        return identify(self.pid)

    @property
    def last_words(self) -> str:
        """The end of what it said on stderr, whenever that was; empty if nothing."""
        return "\n".join(line for _, line in list(self._tail))

    @property
    def has_failed(self) -> bool:
        """Say whether it has ended, and not as if all were well."""
        return bool(self._process.returncode)

    def has_ended(self) -> bool:
        """Say whether it has; what it left running is killed with that."""
        if self._process.returncode is not None:
            return True
        # Not reaped yet, so that the group's id is still its own while we kill.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        # Where SIGCHLD is ignored there is nothing left to wait for: it has ended.
        with suppress(ChildProcessError):
            if os.waitid(os.P_PID, self.pid, flags) is None:
                return False
        self._kill_group()
        self._process.wait()
        return True

    def how_it_ended(self) -> str:
        """Say how it ended, in words of ours."""
        code = self._process.returncode
        if code is None:
            return "it still runs"
        return f"signal {_signal_name(-code)}" if code < 0 else f"exit code {code}"

    def why_it_ended(self) -> str:
        """Say how it ended, and what it said in its last moments, if anything."""
        # That may still be on its way through the thread.
        self._listener.join(timeout=LISTEN_ON_S)
        fell_silent_s = self._fell_silent_s or self._clock()
        # All of them are in the log; a sentence has room for one.
        said = [line for at_s, line in list(self._tail) if fell_silent_s - at_s <= LAST_WORDS_S]
        return f"{self.how_it_ended()}; it said: {said[-1]}" if said else self.how_it_ended()

    async def ended_within(self, patience_s: float) -> bool:
        """Wait for its end; say whether it came."""
        deadline = anyio.current_time() + patience_s
        while not self.has_ended():
            if anyio.current_time() >= deadline:
                return False
            await anyio.sleep(EXIT_POLL_S)
        return True

    async def stop(self, grace_s: float, *, second_grace_s: float = SECOND_GRACE_S) -> bool:
        """End it, kindly if it lets us: it may finish its turn first, where it does so.

        SIGTERM, `grace_s`, SIGTERM, 2 s, SIGKILL of its group. Not to be cancelled.

        Returns:
            Whether it was told once only, and had the time that it took.
        """
        is_in_time = await self._ends_when_told(grace_s)
        if not is_in_time and not await self._ends_when_told(second_grace_s):
            self._kill_group()
            await self.ended_within(KILLED_GRACE_S)
        self._listener.join(timeout=LISTEN_ON_S)
        # Not stderr: its thread may be reading it, and would read what has its number next.
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return is_in_time

    def stream(self) -> DescriptorStream:
        """Take its stdout and stdin as one stream, which ends with it, whoever holds its pipes."""
        reading, writing = _unblock(self._process.stdout), _unblock(self._process.stdin)
        return DescriptorStream(reading, writing, is_over=self.has_ended)

    async def _ends_when_told(self, patience_s: float) -> bool:
        if not self.has_ended():
            # Not `terminate`, which may reap it: its group could not be killed then.
            os.kill(self.pid, signal.SIGTERM)
        return await self.ended_within(patience_s)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _hear_stderr(self) -> None:
        assert self._process.stderr is not None, "it was started with a pipe"
        # Its end may come long after the child's: a process that left the session can hold it.
        with (
            self._process.stderr as stderr,
            open(stderr.fileno(), "rb", closefd=False) as pipe,
        ):
            for line in iter(lambda: pipe.readline(STDERR_LINE_BYTES_MAX), b""):
                said = _COLOUR.sub("", line.decode(errors="replace")).rstrip()
                if said:
                    self._tail.append((self._clock(), said))
                    self._on_stderr(said)
            self._fell_silent_s = self._clock()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _unblock(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "it was started with pipes"
    os.set_blocking(pipe.fileno(), False)
    return pipe
