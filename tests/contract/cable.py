"""A child that speaks for a test: its stdin and stdout are one connection to a socket in its cwd.

A script: `cable.py NAME`. Each direction ends alone, and a broken end is passed on to the other.
"""

import os
import socket
import sys
import threading
from contextlib import suppress


CHUNK_BYTES = 65_536


def copy(reading, writing):
    with suppress(OSError):  # one of the two is gone
        while data := os.read(reading, CHUNK_BYTES):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(writing, rest) :]


def main(name):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(name)

    def hear():
        copy(0, sock.fileno())
        os.close(0)
        with suppress(OSError):
            sock.shutdown(socket.SHUT_WR)

    def say():
        copy(sock.fileno(), 1)
        os.close(1)
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RD)

    ways = [threading.Thread(target=way) for way in (hear, say)]
    for way in ways:
        way.start()
    for way in ways:
        way.join()


if __name__ == "__main__":
    main(sys.argv[1])
