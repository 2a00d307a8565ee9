"""How long each step waits that stops a server: SIGTERM, SIGTERM again, SIGKILL.

Apart from what takes the steps, so that whoever only adds them up needs no event loop.
"""

SECOND_GRACE_S = 2.0
"""A second SIGTERM ends the server at once, but still lets it remove its socket."""

KILLED_GRACE_S = 5.0
"""After SIGKILL only a process that hangs in the kernel is still there."""
