"""The start of a server of our own: which codex, with what; and noted for whoever comes later."""

import os
import time
from collections.abc import Callable, Sequence

import structlog

from codexdrv.binary import Binary, Origin, origin_of
from codexdrv.config import Listen, Server, Spawn
from codexdrv.errors import ConfigurationError, NoCodex, NoServer
from codexdrv.transport.child import Child
from supervisor.leftover import note_server
from supervisor.remarks import Remarks


Find = Callable[[str | None, str], Binary]
"""How codex is found, from `[server] codex` and $PATH."""

log = structlog.get_logger()


class Starts:
    """The starts of one life, one after the other."""

    def __init__(self, server: Server, spawn: Spawn, find: Find, directory: str | None) -> None:
        self._server = server
        self._spawn = spawn
        self._find = find
        self._directory = directory
        #: What was started last.
        self.origin: Origin | None = None

    def start(self, arguments: Sequence[str]) -> Child:
        """Start `codex app-server`.

        Raises:
            NoServer: there is nothing to start now, or it could not be started.
        """
        home = self._server.codex_home
        if not os.path.isdir(home):
            raise NoServer(
                f"The Codex home {home} is not there.",
                hint="Log in with `codex login`, or name it: [server] codex_home.",
            )
        binary = self._find_again()
        origin = origin_of(binary)
        child = Child(
            (binary.path, "app-server", *arguments),
            environment=self._server.environment,
            directory=home,
            on_stderr=Remarks(time.monotonic).hear,
            has_pipes=self._spawn.listen is Listen.STDIO,
        )
        log.info("server.started", server_pid=child.pid, codex=binary.path, home=home)
        self.origin = origin
        self._note(child)
        return child

    def _find_again(self) -> Binary:
        """Look for codex each time: an upgrade may have moved it, or be at it just now."""
        try:
            binary = self._find(self._server.codex, self._server.search_path)
        except (ConfigurationError, NoCodex) as error:
            raise NoServer(error.message, hint=error.hint) from error
        if binary.is_bundled and self.origin is not None and self.origin.place != binary.place:
            # It counts only because the other one is gone, and may be far older.
            raise NoServer(
                f"There is no codex at {self.origin.place} any more, and none on PATH: install it"
                " again; or start the supervisor anew, to have the bundled one.",
            )
        return binary

    def _note(self, child: Child) -> None:
        """Note it; without the note, nobody would end it after our death."""
        identity = child.identity
        if self._directory is None or identity is None:
            return
        try:
            note_server(self._directory, identity)
        except OSError as error:
            log.error("server.not_noted", error=str(error))
