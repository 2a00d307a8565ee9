"""The one error tree: each class says whose fault it is, whether to retry, and how to exit.

CodexdrvError
├── CallerError            the caller asked for something that cannot be
│   ├── BadInput             text, id or thread that is refused before anything is stored
│   ├── Conflict             the id stands for another request
│   ├── NotFound             no such target, delivery, file or thread
│   ├── NotCancellable       too late: the input may be on its way, or has ended
│   ├── NotResolvable        the ownership table has no such move for an operator
│   └── ConfigurationError   the configuration file is wrong
├── JournalError           our own file cannot be used
│   ├── JournalUnsafe        owner, mode or file system
│   ├── JournalUnusable      cannot be opened, is corrupt, or is from a newer version
│   └── JournalBusy          another process holds it
├── Full                   a limit is reached; later it may not be
├── AlreadyRunning         another supervisor holds the lock
├── NoSupervisor           nobody runs who could say what is asked for
├── NoCodex                there is no codex executable, or it does not run
├── LinkError              the connection failed; nobody is to blame
│   ├── NoServer             nothing listens there
│   ├── UnsafeSocket         the socket, or a directory on the way, is not safe
│   ├── LinkLost             the connection ended
│   │   └── ServerEnded        so did the server of our own that was behind it
│   ├── AnswerTooBig         the answer came, and was over the cap
│   ├── DeadlinePassed       no answer in time
│   └── OutboxFull           the connection takes no more requests for now
├── PeerError              the server broke the protocol
│   ├── MalformedFrame       bytes that are no message
│   ├── FrameTooBig          a message over the cap
│   └── MalformedMessage     a known message without what it must have
├── Refused                the server answered with an error
├── ServerKeepsDying       a server of our own; starting it once more is no use
└── Bug                    ours
    ├── IllegalMove          a blank of the ownership table
    └── LifeEnded            a write of an older life
"""

from typing import Any, ClassVar

from codexdrv.exits import ExitCode as ExitCode  # noqa: PLC0414 - whoever raises asks here


class CodexdrvError(Exception):
    """Anything that codexdrv raises on purpose: one sentence, and what to do about it."""

    #: A stable word for programs; the `code` of a JSON error.
    code: ClassVar[str] = "error"
    #: How a command that meets it ends.
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    #: Whether the same call may succeed later with nothing changed by the caller.
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def as_object(self) -> dict[str, str]:
        """Lay it out as commands print it with `--json`."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class CallerError(CodexdrvError):
    """The caller asked for something that cannot be."""

    code = "caller"
    exit_code = ExitCode.BAD_INPUT


class BadInput(CallerError):
    """Text, id or thread that is refused before anything is stored."""

    code = "bad_input"


class Conflict(CallerError):
    """The id stands for another request."""

    code = "conflict"


class NotFound(CallerError):
    """No such target, delivery, file or thread."""

    code = "not_found"
    exit_code = ExitCode.NOT_FOUND


class NotCancellable(CallerError):
    """Too late to cancel: the input may be on its way, or has ended."""

    code = "too_late"
    exit_code = ExitCode.FAILED


class NotResolvable(CallerError):
    """The ownership table has no such move for an operator."""

    code = "not_resolvable"
    exit_code = ExitCode.FAILED


class ConfigurationError(CallerError):
    """The configuration is wrong; a service manager must not restart us for it."""

    code = "configuration"
    exit_code = ExitCode.CONFIGURATION


class JournalError(CodexdrvError):
    """Our own file cannot be used; nothing was stored."""

    code = "journal"
    exit_code = ExitCode.JOURNAL


class JournalUnsafe(JournalError):
    """Owner, mode or file system of the journal is not safe."""

    code = "journal_unsafe"


class JournalUnusable(JournalError):
    """The journal cannot be opened or written, is corrupt, or is from a newer version."""

    code = "journal_unusable"


class JournalBusy(JournalError):
    """Another process holds the journal's write lock for longer than we wait."""

    code = "journal_busy"
    exit_code = ExitCode.TRY_LATER
    retryable = True


class Full(CodexdrvError):
    """A limit is reached; later it may not be."""

    code = "full"
    exit_code = ExitCode.TRY_LATER
    retryable = True


class AlreadyRunning(CodexdrvError):
    """Another supervisor holds the lock of this state directory."""

    code = "already_running"
    exit_code = ExitCode.TRY_LATER
    retryable = True


class NoSupervisor(CodexdrvError):
    """No supervisor runs that could say what is asked for, or none that is ours."""

    code = "no_supervisor"
    exit_code = ExitCode.UNAVAILABLE
    retryable = True


class NoCodex(CodexdrvError):
    """There is no codex executable, or it does not run; somebody has to install one."""

    code = "no_codex"
    exit_code = ExitCode.UNAVAILABLE


class LinkError(CodexdrvError):
    """The connection failed; nobody is to blame.

    `maybe_written` is what decides between `queued` and `uncertain`: False means that not one
    byte of the request was handed to the kernel.
    """

    code = "link"
    exit_code = ExitCode.UNAVAILABLE
    retryable = True

    def __init__(self, message: str, *, hint: str = "", maybe_written: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.maybe_written = maybe_written


class NoServer(LinkError):
    """Nothing listens there."""

    code = "no_server"


class UnsafeSocket(LinkError):
    """The socket, or a directory on the way to it, is not safe to trust."""

    code = "unsafe_socket"


class LinkLost(LinkError):
    """The connection ended."""

    code = "link_lost"


class ServerEnded(LinkLost):
    """The server of our own has ended, by itself or by a signal."""

    code = "server_ended"


class AnswerTooBig(LinkError):
    """The answer came, and was over the cap: what it said is not known."""

    code = "answer_too_big"


class DeadlinePassed(LinkError):
    """The server did not answer in time."""

    code = "deadline_passed"


class OutboxFull(LinkError):
    """The connection takes no more requests for now."""

    code = "outbox_full"


class PeerError(CodexdrvError):
    """The server broke the protocol; the connection is retired."""

    code = "peer"
    exit_code = ExitCode.UNAVAILABLE
    retryable = True


class MalformedFrame(PeerError):
    """Bytes that are no JSON-RPC message."""

    code = "malformed_frame"


class FrameTooBig(PeerError):
    """A message over the cap."""

    code = "frame_too_big"


class MalformedMessage(PeerError):
    """A known message without what it must have."""

    code = "malformed_message"


class Refused(CodexdrvError):
    """The server answered with an error; `protocol/refusals.py` says what it means."""

    code = "refused"
    exit_code = ExitCode.FAILED

    def __init__(self, rpc_code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code
        self.data = data


class ServerKeepsDying(CodexdrvError):
    """A server of our own has died so often that starting it once more is no use."""

    code = "server_keeps_dying"
    exit_code = ExitCode.SERVER_KEEPS_DYING


class Bug(CodexdrvError):
    """Ours: the program is wrong, not its input."""

    code = "bug"


class IllegalMove(Bug):
    """A blank of the ownership table."""

    code = "illegal_move"


class LifeEnded(Bug):
    """A write of an older life: another supervisor has taken over."""

    code = "life_ended"
    exit_code = ExitCode.TRY_LATER
