"""Ask a running server something, and leave: for commands that need it once."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from codexdrv.config import Listen, Server
from codexdrv.connect import attach
from codexdrv.engine.session import Pace, Session
from codexdrv.errors import CodexdrvError, NoServer
from codexdrv.protocol.events import Event


Result = TypeVar("Result")

PACE = Pace(ping_interval_s=10.0, silence_s=30.0)
"""A question takes less; a server that says nothing for that long never will."""


async def ask_server(
    socket: str, question: Callable[[Session], Awaitable[Result]], *, version: str
) -> Result:
    """Connect, greet, ask, and say goodbye.

    Raises:
        LinkError, PeerError: there is no server, or it did not answer.
        Refused: it refused the question.
    """
    answers: list[Result] = []

    async def ask(session: Session) -> None:
        answers.append(await question(session))

    async with attach(socket) as connection:
        session = Session(connection.channel, generation=1, peer=connection.peer, on_event=_ignore)
        try:
            await session.run(ask, version=version, pace=PACE)
        except CodexdrvError:
            # How the connection ended does not matter once there is an answer.
            if not answers:
                raise
    return answers[0]


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
