"""Become a command that is told when its parent dies. A script: `launch.py PARENT_PID COMMAND…`.

Between `fork` and `exec` Python can run nothing safely once there are threads (`preexec_fn`), so
this interpreter does it, and then is the command: same pid, same start ticks.
"""

import ctypes
import os
import signal
import sys


PR_SET_PDEATHSIG = 1
"""prctl(2). The signal comes when the *thread* that started us ends: start from the main one."""

DEATH_SIGNAL = signal.SIGTERM
"""A server on a socket finishes its turn and goes.

Seen: the kernel may say it more than once, as each thread of ours that the server is handed to on
our way out ends (about every fourth time); the second one cuts the turn.
"""


def main(arguments: list[str]) -> None:
    """Arrange for the signal, and become the command; does not return."""
    parent, *command = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, DEATH_SIGNAL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl")
    if os.getppid() != int(parent):
        sys.exit("The parent ended before its child began.")
    # Python ignores them, and what is ignored stays so through `exec`.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.exit(f"{command[0]} cannot be run: {error.strerror}.")


if __name__ == "__main__":
    main(sys.argv[1:])
