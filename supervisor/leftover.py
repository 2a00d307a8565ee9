"""The server that an earlier life left behind: noted when it starts, ended before ours does.

By its identity, never by a name: a process that has its pid now is another one. All signals go
through a pidfd, which means that very process.
"""

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress

import anyio
import structlog

from codexdrv.errors import NoServer
from codexdrv.transport.child import EXIT_POLL_S
from codexdrv.transport.ladder import KILLED_GRACE_S, SECOND_GRACE_S
from codexdrv.transport.peer import PeerIdentity, current_namespace, identify, is_gone


FILE_NAME = "server.json"
"""In the state directory; there for as long as a server of ours may run."""

Tell = Callable[[str | None], None]
"""Take what is waited for, in a sentence; None: nothing any more."""

Send = Callable[[PeerIdentity, int], None]
"""Send a signal to that process, and to no other."""

log = structlog.get_logger()


def note_server(directory: str, server: PeerIdentity) -> None:
    """Note a server that was started, in place of what was noted before.

    Raises:
        OSError: it could not be written; nobody will find that server after our death.
    """
    draft = f"{directory}/{FILE_NAME}.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(server._asdict(), file)
    os.replace(draft, f"{directory}/{FILE_NAME}")


def forget_server(directory: str) -> None:
    """Take the note away: the server was seen gone."""
    with suppress(OSError):
        os.unlink(f"{directory}/{FILE_NAME}")


def load_server(directory: str) -> PeerIdentity | None:
    """Say which server an earlier life left, if it still runs."""
    try:
        with open(f"{directory}/{FILE_NAME}", encoding="utf-8") as file:
            noted = PeerIdentity(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None
    is_here = noted.namespace == current_namespace()
    return noted if is_here and identify(noted.pid) == noted else None


def _send(server: PeerIdentity, number: int) -> None:
    with suppress(OSError):
        descriptor = os.pidfd_open(server.pid)
        try:
            # The identity was looked at with the pidfd open: it is that process, or it is gone.
            if identify(server.pid) == server:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


async def reap_server(
    directory: str, *, grace_s: float, tell: Tell = lambda _: None, send: Send = _send
) -> None:
    """End what an earlier life left, if anything; not to be cancelled.

    The kernel has told it of our death already (`transport/launch.py`): it may be finishing its
    turn, so it has `grace_s` for that before it is told again. `tell` hears what is waited for.

    Raises:
        NoServer: it does not end, and stays noted.
    """
    left = load_server(directory)
    if left is not None:
        log.warning("server.left", server_pid=left.pid, grace_s=grace_s)
        tell(
            f"The server that an earlier life left still runs (pid {left.pid}): it has up to"
            f" {grace_s:g} s to finish its turns, and is ended then."
        )
        has_ended = await _ends(left, grace_s, send)
        tell(None)
        if not has_ended:
            raise NoServer(
                f"The server that an earlier life left does not end (pid {left.pid}).",
                hint="SIGKILL did not end it: it hangs in the kernel, perhaps on a dead disk.",
            )
    forget_server(directory)


async def _ends(server: PeerIdentity, grace_s: float, send: Send) -> bool:
    if await _is_gone_within(server, grace_s):
        return True
    send(server, signal.SIGTERM)
    if await _is_gone_within(server, SECOND_GRACE_S):
        return True
    send(server, signal.SIGKILL)
    return await _is_gone_within(server, KILLED_GRACE_S)


async def _is_gone_within(server: PeerIdentity, patience_s: float) -> bool:
    deadline = anyio.current_time() + patience_s
    while not is_gone(server):
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(EXIT_POLL_S)
    return True
