"""What the status file says of the open questions: for `attention`, and for `answer`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from codexdrv import __version__
from codexdrv.bell import is_hung
from codexdrv.clock import now_ms
from codexdrv.config import Config, Listen
from codexdrv.errors import BadInput, NoServer, NoSupervisor, NotFound
from codexdrv.snapshot import STALE_AFTER_MS, load_snapshot


Question = dict[str, Any]
"""As `schemas/question.schema.json` describes it."""


class Open(NamedTuple):
    """The open questions, as the supervisor last wrote them down."""

    #: Oldest first.
    questions: list[Question]
    #: Milliseconds ago.
    age_ms: int
    #: The server that asks, as the supervisor sees it.
    server: Mapping[str, Any]

    @property
    def warning(self) -> str | None:
        """Why it may not be so any more."""
        if self.age_ms <= STALE_AFTER_MS:
            return None
        seconds = self.age_ms // 1000
        return f"the supervisor has not written its status for {seconds} s, so this may be old"


def load_open(config: Config) -> Open:
    """Read what is open.

    Raises:
        NoSupervisor: nobody collects it, or another codexdrv does.
        NoServer: the supervisor has none.
    """
    is_up = is_hung(config.state.directory)
    snapshot = load_snapshot(config.state.directory) if is_up else None
    if snapshot is None:
        raise NoSupervisor(
            "No supervisor is running, so nobody hears what the server asks.",
            hint="Start one: `codexdrv supervise`.",
        )
    if other := snapshot.stranger(__version__):
        raise NoSupervisor(
            f"The supervisor is {other}, and this is {__version__}.",
            hint="Start it anew, to run what is installed.",
        )
    if snapshot.problem is not None:
        raise NoServer(
            f"The supervisor has no server that could ask: {snapshot.problem}",
            hint="`codexdrv doctor` looks for the reason.",
        )
    age_ms = max(0, now_ms() - snapshot.written_at_ms)
    return Open(snapshot.body["questions"], age_ms, snapshot.body["server"])


def pick(known: Open, prefix: str) -> Question:
    """Find the one question whose id begins so.

    Raises:
        NotFound: none does.
        BadInput: several do.
    """
    found = [each for each in known.questions if each["id"].startswith(prefix)]
    if not found:
        raise NotFound(
            f"No open question has an id that begins with {prefix!r}.",
            hint="It was answered, or its turn has ended, or the server that asked it is gone."
            " `codexdrv attention` lists what is open.",
        )
    if len(found) > 1:
        raise BadInput(
            f"{len(found)} open questions have an id that begins with {prefix!r}.",
            hint="Give more of it.",
        )
    return found[0]


def is_out_of_reach(config: Config) -> bool:
    """Say whether the supervisor alone can talk to the server, so that no command can answer."""
    spawn = config.server.spawn
    return spawn is not None and spawn.listen is Listen.STDIO
