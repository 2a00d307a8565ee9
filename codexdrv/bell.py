"""The bell: a datagram that says "look at the journal". It carries nothing and may be lost."""

import errno
import socket

from codexdrv.paths import short_socket_path


FILE_NAME = "bell"


def ring(directory: str) -> bool:
    """Ring the supervisor of a state directory; say whether one is up. Never blocks.

    Up means that its socket took the datagram or is full of them; down means that nobody has it
    open. Losing one costs a poll interval, never a message.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            with short_socket_path(f"{directory}/{FILE_NAME}") as path:
                sender.sendto(b"", socket.MSG_DONTWAIT, path)
        except BlockingIOError:
            return True
        except OSError as error:
            # A full queue of another kind: somebody is there.
            return error.errno == errno.ENOBUFS
    return True


def is_hung(directory: str) -> bool:
    """Say whether a supervisor is up, without a sound: who only looks must not hurry it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            with short_socket_path(f"{directory}/{FILE_NAME}") as path:
                sender.connect(path)
        except OSError:
            return False
    return True
