"""Ask a running server something, and leave: for commands that need it once."""

import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from codexdrv.config import Listen, Server
from codexdrv.connect import attach
from codexdrv.engine.session import Pace, Session
from codexdrv.errors import CodexdrvError, DeadlinePassed, NoServer
from codexdrv.health import how_to_wake
from codexdrv.protocol.events import Event


Result = TypeVar("Result")

PACE = Pace(ping_interval_s=10.0, silence_s=30.0)
"""A question takes less; a server that says nothing for that long never will."""

GREETING_TIMEOUT_S = 10.0
"""A healthy server greets within milliseconds; one that is stopped takes a connection, no more."""


async def ask_server(
    socket: str,
    question: Callable[[Session], Awaitable[Result]],
    *,
    version: str,
    greeting_timeout_s: float = GREETING_TIMEOUT_S,
) -> Result:
    """Connect, greet, ask, and say goodbye.

    Raises:
        LinkError, PeerError: there is no server, or it did not answer.
        Refused: it refused the question.
    """
    answers: list[Result] = []

    async with attach(socket) as connection:
        session = Session(connection.channel, generation=1, peer=connection.peer, on_event=_ignore)
        with anyio.move_on_after(greeting_timeout_s) as patience:

            async def ask(session: Session) -> None:
                patience.deadline = math.inf
                answers.append(await question(session))

            try:
                await session.run(ask, version=version, pace=PACE)
            except CodexdrvError:
                # How the connection ended does not matter once there is an answer.
                if not answers:
                    raise
        if patience.cancelled_caught:
            raise no_answer(connection.pid, greeting_timeout_s)
    return answers[0]


def no_answer(pid: int, timeout_s: float) -> DeadlinePassed:
    """Say that a server takes connections, and answers nothing; pid 0: nobody knows which."""
    return DeadlinePassed(
        f"The server (pid {pid or 'unknown'}) does not answer within {timeout_s:g} s.",
        hint=how_to_wake(pid),
    )


async def ask_configured(
    server: Server, question: Callable[[Session], Awaitable[Result]], *, version: str
) -> Result:
    """Ask the server that the configuration means, be it ours or not.

    Raises:
        LinkError, PeerError, Refused: as `ask_server`.
    """
    if server.spawn is None:
        return await ask_server(server.socket, question, version=version)
    if server.spawn.listen is Listen.STDIO:
        raise NoServer(
            "The server talks to its supervisor alone: listen is stdio.",
            hint='With listen = "unix" under [server] others can ask it, too.',
        )
    try:
        return await ask_server(server.socket, question, version=version)
    except NoServer as error:
        hint = "`codexdrv supervise` starts it, and it runs as long as that does."
        raise NoServer(error.message, hint=hint) from error


def _ignore(_event: Event) -> None:
    pass
