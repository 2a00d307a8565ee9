"""How a command ends: one number for each kind of end, for ever."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ends (DESIGN.md, "Exit codes"); from 65 to 78 in the words of sysexits(3)."""

    #: Reached what was waited for.
    OK = 0
    #: Failed, cancelled, a bad outcome, or unhealthy.
    FAILED = 1
    #: The command line is wrong.
    USAGE = 2
    #: In doubt, or the caller's time is up.
    IN_DOUBT = 3
    #: Bad input, or the id stands for another request.
    BAD_INPUT = 65
    #: No such target, delivery, file, or thread.
    NOT_FOUND = 66
    #: No server, no supervisor, or no codex binary.
    UNAVAILABLE = 69
    #: A server of our own dies again and again.
    SERVER_KEEPS_DYING = 70
    #: The journal cannot be opened or is unsafe.
    JOURNAL = 73
    #: Try later: full, busy, or another supervisor.
    TRY_LATER = 75
    #: The configuration is wrong.
    CONFIGURATION = 78
    #: Ctrl-C.
    INTERRUPTED = 130
