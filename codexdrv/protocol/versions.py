"""Versions of the server: told to people, never asked by a decision.

What a server can do is found by asking it, a thread at a time, and a "no" is never remembered: the
next turn may change it (WIRE-FACTS, "Handshake and errors"). So a version that is not in this list
works as far as it answers.
"""

import re


TESTED = ("0.144.5", "0.163.0", "0.171.0")
"""The versions that the tests run against, oldest first."""

_VERSION = re.compile(r"/(\d+\.\d+\.\d+\S*)")


def server_version(user_agent: str) -> str | None:
    """Read the version out of the server's `userAgent`; None if it says none.

    The name in front of it is that of the first client that greeted the server, not ours.
    """
    found = _VERSION.search(user_agent)
    return found[1] if found else None
