"""One generation: one connection from its greeting to its end, used once."""

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn

import anyio
import structlog

from codexdrv.engine.questions import KnownQuestions, OpenQuestions
from codexdrv.engine.rpc import OnAnswer, Rpc
from codexdrv.errors import CodexdrvError, LinkError, LinkLost, NoServer, Refused
from codexdrv.protocol.events import Event, translate
from codexdrv.protocol.methods import PAGE_ITEMS, Call, initialize, list_loaded
from codexdrv.protocol.questions import Policy, answer
from codexdrv.protocol.results import Greeting, read_greeting
from codexdrv.protocol.versions import server_version
from codexdrv.transport.channel import Channel
from codexdrv.transport.peer import PeerIdentity
from codexdrv.wire.message import Message, Notification, Request, Response


CLIENT_NAME = "codexdrv"

log = structlog.get_logger()


class Pace(NamedTuple):
    """How often a quiet connection is asked for a sign of life; seconds."""

    ping_interval_s: float
    #: How long not even a pong may come.
    silence_s: float
    #: How long no request may be answered; far longer than a locked database holds one up.
    unanswered_s: float = 180.0


OnEvent = Callable[[Event], None]
"""Who is told what the server says, synchronously and in the order of the wire."""


class Link(NamedTuple):
    """How the connection stands, for `status`."""

    is_connected: bool
    generation: int
    #: pid of the server, from the socket.
    server_pid: int | None = None
    user_agent: str | None = None
    version: str | None = None
    codex_home: str | None = None
    #: Why there is none.
    problem: str | None = None
    #: Seconds since the server was last heard, if only by a pong.
    silent_s: float | None = None
    #: Seconds since it last answered a request.
    answered_s: float | None = None
    #: Which process it is, where that is known.
    peer: PeerIdentity | None = None
    #: Since when the connection stands; Unix time, milliseconds.
    since_ms: int | None = None
    #: How often in this life the server was another process than before.
    restarts: int = 0


class Session:
    """A greeted server: call it, and hear what it tells."""

    def __init__(
        self,
        channel: Channel,
        *,
        generation: int,
        peer: PeerIdentity | None,
        on_event: OnEvent,
        on_gap: Callable[[], None] = lambda: None,
        policy: Policy = Policy.LEAVE,
        known: KnownQuestions | None = None,
        page_items: int = PAGE_ITEMS,
    ) -> None:
        """Take a connection that nobody has greeted.

        Args:
            channel: the connection.
            generation: its number in this life.
            peer: the server's process, where that is known.
            on_event: told what the server says.
            on_gap: told that something it said was over the cap and is lost.
            policy: how its questions are answered.
            known: what the connections before have seen of its questions.
            page_items: see the attribute.
        """
        #: How many items a page of history may hold; fewer once a page was over the cap.
        self.page_items = page_items
        self.generation = generation
        self.peer = peer
        #: What the server said of itself; set once it was greeted.
        self.greeting = Greeting("", None)
        self._channel = channel
        self._on_event = on_event
        self._on_gap = on_gap
        self._policy = policy
        #: What the server asks, and gets no answer from us.
        self.questions = OpenQuestions(known or KnownQuestions(), peer)
        self._rpc = Rpc(channel, self._hear, self._lose)

    async def run(
        self, serve: Callable[["Session"], Awaitable[None]], *, version: str, pace: Pace
    ) -> NoReturn:
        """Greet the server, then serve until the connection ends.

        Raises:
            LinkError, PeerError: why it ended; also when `serve` returned.
        """
        ends: list[CodexdrvError] = []

        async def run_part(part: Callable[[], Awaitable[None]]) -> None:
            try:
                await part()
            except CodexdrvError as error:
                ends.append(error)
            parts.cancel_scope.cancel()

        async def greet_and_serve() -> None:
            await self._greet(version)
            await serve(self)

        try:
            async with anyio.create_task_group() as parts:
                parts.start_soon(run_part, self._rpc.run)
                parts.start_soon(run_part, lambda: self._keep_alive(pace))
                parts.start_soon(run_part, greet_and_serve)
        finally:
            await self._channel.aclose()
        raise ends[0] if ends else LinkLost("We closed the connection.")

    async def call(self, call: Call, *, on_answer: OnAnswer | None = None) -> object:
        """Send a request and wait for its result; see `Rpc.call`."""
        result: object = await self._rpc.call(call, on_answer=on_answer)
        return result

    @property
    def silent_s(self) -> float:
        """How long nothing has come, not even the answer to a ping; seconds."""
        return anyio.current_time() - self._channel.last_received_at

    @property
    def unanswered_s(self) -> float:
        """How long no request was answered, and the sign of life is one; seconds."""
        return anyio.current_time() - self._rpc.last_answered_at

    def link(self, server_pid: int | None) -> Link:
        """Say how this connection stands, once it was greeted."""
        return Link(
            True,
            self.generation,
            server_pid,
            self.greeting.user_agent,
            server_version(self.greeting.user_agent),
            self.greeting.codex_home,
            None,
            self.silent_s,
            self.unanswered_s,
            self.peer,
        )

    def reply(self, response: Response) -> None:
        """Answer a question of the server as an operator has decided; the first answer wins.

        Raises:
            LinkError: it was not sent.
        """
        self._rpc.send(response)

    async def wait_until_quiet(self) -> None:
        """Wait until every request that was sent has its answer, or none can come any more."""
        await self._rpc.wait_until_quiet()

    async def _greet(self, version: str) -> None:
        try:
            answer = await self.call(initialize(CLIENT_NAME, version))
        except Refused as refused:
            # An overloaded server refuses this as anything else: try again later.
            raise LinkLost(f"The server refused to be greeted: {refused}") from refused
        self.greeting = read_greeting(answer)
        self._rpc.send(Notification("initialized", {}))

    async def _keep_alive(self, pace: Pace) -> None:
        while True:
            began = anyio.current_time()
            await anyio.sleep(pace.ping_interval_s)
            # Whoever was stopped (a laptop, Ctrl-Z) has heard nothing by its own fault.
            was_stopped = anyio.current_time() - began > 2 * pace.ping_interval_s
            if not was_stopped:
                self._check_life(pace)
            if self._channel.has_ping:
                self._channel.ping()
            # A pong comes from the connection alone; an answer, from the server behind it.
            # What cannot be sent now is no sign of life; the silence will tell.
            with suppress(LinkError):
                self._rpc.probe(list_loaded())

    def _check_life(self, pace: Pace) -> None:
        if self.silent_s > pace.silence_s:
            raise LinkLost(f"The server has said nothing for {self.silent_s:.0f} s.")
        if self.unanswered_s > pace.unanswered_s:
            # The connection lives, and what is behind it does not.
            raise LinkLost(f"The server has answered nothing for {self.unanswered_s:.0f} s.")

    def _hear(self, message: Message) -> None:
        if isinstance(message, Notification):
            self.questions.hear(message)
            self._on_event(translate(message))
        elif isinstance(message, Request):
            self._answer(message)

    def _lose(self) -> None:
        self.questions.forget()
        self._on_gap()

    def _answer(self, question: Request) -> None:
        # Attached, we answer no request of the server: the first answer wins over the user's own
        # client, which sees the same request (DESIGN.md, "Supervisor").
        reply = answer(question, self._policy)
        if reply is None:
            self.questions.ask(question)
            return
        thread = question.params.get("threadId")
        try:
            self._rpc.send(reply)
        except LinkError as error:
            # It is asked again when the next generation resumes the thread.
            log.warning("question.unanswered", method=question.method, error=str(error))
        else:
            log.info("question.declined", method=question.method, thread_id=thread)


def check_home(greeting: Greeting, ours: str) -> None:
    """Make sure that the server has our threads: one of another home would know none of them.

    Raises:
        NoServer: it serves another home.
    """
    home = greeting.codex_home
    if home is not None and os.path.realpath(home) != os.path.realpath(ours):
        raise NoServer(
            f"The server at the socket serves {home}, not {ours}.",
            hint="Name the home of that server: [server] codex_home in the configuration.",
        )
