"""Stdout and stderr: a result that cannot be written is an error, the talk beside it never is."""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast


class Unwritten(Exception):
    """Stdout takes no more."""

    def __init__(self, why: str, *, is_unheard: bool) -> None:
        super().__init__(why)
        self.why = why
        #: Nobody reads it any more: the pipe is closed, or the terminal has hung up.
        self.is_unheard = is_unheard


@contextmanager
def guarded_output() -> Iterator[None]:
    """Tell a failure of stdout from that of any other file, and let none of stderr count."""
    out, err = _Guard(sys.stdout), _Guard(sys.stderr, is_lossy=True)
    try:
        with redirect_stdout(out.stream), redirect_stderr(err.stream):
            yield
    finally:
        out.forget()
        err.forget()


class _Guard:
    """A stream that says, or does not say, that it cannot be written; None: it is closed."""

    def __init__(self, stream: TextIO | None, *, is_lossy: bool = False) -> None:
        self._stream = stream
        self._is_lossy = is_lossy

    @property
    def stream(self) -> TextIO | None:
        """What to write to in its place."""
        return cast("TextIO", self) if self._stream else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write as a stream does. Raises: Unwritten."""
        try:
            return self._open().write(text)
        except OSError as error:
            self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Flush as a stream does. Raises: Unwritten."""
        try:
            self._open().flush()
        except OSError as error:
            self._fail(error)

    def forget(self) -> None:
        """Drop what could not be written: Python tries again, and ends with a code of its own."""
        if self._stream is None:
            return
        try:
            self._stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def _open(self) -> TextIO:
        assert self._stream is not None, "nobody is given a closed one"
        return self._stream

    def _fail(self, error: OSError) -> None:
        if self._is_lossy:
            return
        is_device = stat.S_ISCHR(os.fstat(self._open().fileno()).st_mode)
        is_unheard = error.errno == errno.EPIPE or (error.errno == errno.EIO and is_device)
        raise Unwritten(error.strerror or str(error), is_unheard=is_unheard) from error
