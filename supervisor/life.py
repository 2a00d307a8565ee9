"""One run of the dispatcher: numbered in the journal, under the lock."""

import os
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import structlog

from codexdrv.clock import now_ms
from codexdrv.config import Config, Listen, Server
from codexdrv.connect import Connect
from codexdrv.driver import Driver
from codexdrv.engine.worker import in_one_thread
from codexdrv.ids import ThreadId
from codexdrv.journal.journal import Journal
from codexdrv.protocol.questions import Policy
from codexdrv.transport.peer import identify


log = structlog.get_logger()


class Life(NamedTuple):
    """The parts of one run."""

    config: Config
    driver: Driver
    number: int
    #: Unix time, milliseconds.
    began_ms: int
    version: str


def begin(
    config: Config,
    journal: Journal,
    connect: Connect,
    *,
    version: str,
    scope: Collection[ThreadId] | None = None,
    asked_since: Mapping[str, int] = MappingProxyType({}),
) -> Life:
    """Begin a life in the journal, under the lock.

    Args:
        config: all of it.
        journal: for the dispatcher alone.
        connect: opens connections.
        version: ours.
        scope: the only threads that are served; None: all.
        asked_since: when the last life first saw a question of the server, by its id.

    Raises:
        JournalError: the journal cannot be used; nothing was written.
    """
    # Before the first write: a life must not begin in what is broken.
    journal.check()
    began_ms = now_ms()
    identity = identify(os.getpid())
    number = journal.begin_life(
        (os.getpid(), identity.start_ticks, identity.boot_id)
        if identity
        else (os.getpid(), None, None),
        version,
        now_ms=began_ms,
    )
    structlog.contextvars.bind_contextvars(life=number)
    spawn = config.server.spawn
    log.info("life.begun", state=config.state.directory, **_whereabouts(config.server))
    driver = Driver(
        config,
        journal,
        connect=connect,
        policy=Policy(spawn.approvals) if spawn else Policy.LEAVE,
        life=number,
        began_ms=began_ms,
        version=version,
        in_thread=in_one_thread(),
        scope=scope,
        asked_since=asked_since,
    )
    return Life(config, driver, number, began_ms, version)


def _whereabouts(server: Server) -> dict[str, str]:
    """Say whose server is used, and where it is."""
    if server.spawn is None:
        return {"mode": "attach", "socket": server.socket}
    if server.spawn.listen is Listen.STDIO:
        # Nobody makes the socket that is configured all the same.
        return {"mode": "spawn", "listen": "stdio"}
    return {"mode": "spawn", "listen": "unix", "socket": server.socket}
