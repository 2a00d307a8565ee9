"""Ask a running server something, and leave: for commands that need it once."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from codexdrv.connect import attach
from codexdrv.engine.session import Pace, Session
from codexdrv.errors import CodexdrvError
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


def _ignore(_event: Event) -> None:
    pass
