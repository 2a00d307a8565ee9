"""Requests and their answers over one channel; whoever waits is woken, whatever happens.

Every end of a request is told twice: at once, and in the order of the wire, to `on_answer`, and to
whoever awaits the call. What must not be lost goes through `on_answer`: it is told of each request
how it ended, also when the caller was cancelled, and of an answer that came after the deadline.
"""

import itertools
import re
from collections.abc import Callable
from typing import Any, NoReturn

import anyio
import structlog

from codexdrv.errors import (
    AnswerTooBig,
    DeadlinePassed,
    LinkError,
    LinkLost,
    MalformedFrame,
    Refused,
)
from codexdrv.protocol.methods import Call
from codexdrv.transport.channel import Channel, Ticket
from codexdrv.wire.message import (
    Message,
    Refusal,
    Request,
    Response,
    decode,
    encode,
)


Answer = Response | Refused | LinkError
"""How a request ended: carried out, refused, or nobody can say more than the error does."""

OnAnswer = Callable[[Answer], None]

_ANSWER = re.compile(rb'\s*\{\s*"id"\s*:\s*(\d+)\s*,\s*"(?:result|error)"')
_CALL = re.compile(rb'\s*\{\s*(?:"id"\s*:\s*(?:\d+|"[^"]*")\s*,\s*)?"method"')
"""How messages begin; the server writes their members in this order."""

log = structlog.get_logger()


class _Waiter:
    __slots__ = ("answer", "is_resolved", "on_answer", "ticket")

    def __init__(self, on_answer: OnAnswer | None) -> None:
        self.ticket: Ticket | None = None
        self.on_answer = on_answer
        self.is_resolved = anyio.Event()
        self.answer: Answer = LinkLost("The request was not answered.")

    def tell(self, answer: Answer) -> None:
        """Tell how it stands; more may come."""
        self.answer = answer
        if self.on_answer is not None:
            self.on_answer(answer)

    def resolve(self, answer: Answer) -> None:
        """Tell how it ended."""
        self.tell(answer)
        self.is_resolved.set()


class Rpc:
    """One connection's requests; used once."""

    def __init__(
        self,
        channel: Channel,
        on_message: Callable[[Message], None],
        on_gap: Callable[[], None] = lambda: None,
    ) -> None:
        """Take a channel that does not run yet.

        Args:
            channel: the connection.
            on_message: told of what is no answer, synchronously, in the order of the wire.
            on_gap: told that something was over the cap and is lost; it may have been news.
        """
        self._channel = channel
        self._on_message = on_message
        self._on_gap = on_gap
        self._noise_left = channel.noise_frames_max
        self._waiters: dict[int, _Waiter] = {}
        self._numbers = itertools.count(1)
        self._resolved = anyio.Event()
        #: When the server last answered anything (at first: when we began), by anyio's clock.
        self.last_answered_at = anyio.current_time()

    async def wait_until_quiet(self) -> None:
        """Wait until every request that was sent has its answer, or none can come any more."""
        while self._waiters:
            await self._resolved.wait()

    async def call(self, call: Call, *, on_answer: OnAnswer | None = None) -> Any:
        """Send a request and wait for its result.

        Cancelled, or past its deadline, it is taken back if no byte was written.

        Raises:
            Refused: the server answered with an error.
            LinkError: no answer; `maybe_written` says whether the server may have got it.
        """
        number = next(self._numbers)
        waiter = _Waiter(on_answer)
        try:
            ticket = self._channel.post(encode(Request(number, call.method, call.params)))
        except LinkError as error:
            waiter.resolve(error)
            raise
        self._waiters[number] = waiter
        waiter.ticket = ticket
        try:
            with anyio.move_on_after(call.timeout_s):
                await waiter.is_resolved.wait()
        finally:
            if not waiter.is_resolved.is_set() and ticket.withdraw():
                # What was not written never will be, so no answer can come.
                del self._waiters[number]
                waiter.resolve(LinkLost(f"{call.method} was not sent."))
                self._tell_resolved()
        if not waiter.is_resolved.is_set():
            if on_answer is None:
                # Nobody would hear a late answer; some requests never get one.
                del self._waiters[number]
                self._tell_resolved()
            # Else it stays among the waiters: a late answer is the best proof there is.
            waiter.tell(
                DeadlinePassed(
                    f"{call.method} was not answered within {call.timeout_s:g} s.",
                    maybe_written=True,
                )
            )
        if isinstance(waiter.answer, Response):
            return waiter.answer.result
        raise waiter.answer

    def send(self, message: Message) -> None:
        """Send what has no answer, or one that nobody waits for.

        Raises:
            LinkError: it was not sent.
        """
        self._channel.post(encode(message))

    def probe(self, call: Call) -> None:
        """Send a request for the sake of any answer; it is dropped.

        Raises:
            LinkError: it was not sent.
        """
        self.send(Request(next(self._numbers), call.method, call.params))

    async def run(self) -> NoReturn:
        """Read until the connection ends, then wake everybody.

        Raises:
            LinkLost, PeerError: why it ended.
        """
        try:
            await self._channel.run(self._receive, self._lose)
        finally:
            waiters, self._waiters = self._waiters, {}
            for waiter in waiters.values():
                started = waiter.ticket is not None and waiter.ticket.is_started
                waiter.resolve(
                    LinkLost("The connection ended before the answer.", maybe_written=started)
                )
            self._tell_resolved()

    def _receive(self, frame: bytes) -> None:
        try:
            message = decode(frame)
        except MalformedFrame as error:
            if not self._noise_left:
                raise
            # A child's wrapper, or a shell on the way, says something before the server does.
            self._noise_left -= 1
            log.warning("frame.skipped", error=str(error))
            return
        self._noise_left = 0
        match message:
            case Response(id=number):
                self._resolve(number, message)
            case Refusal(id=number, code=code, message=text, data=data):
                self._resolve(number, Refused(code, text, data))
            case _:
                self._on_message(message)

    def _resolve(self, number: int | str, answer: Answer) -> None:
        self.last_answered_at = anyio.current_time()
        # Ours are integers; an answer that nobody waits for is dropped.
        waiter = self._waiters.pop(number, None) if isinstance(number, int) else None
        if waiter is not None:
            waiter.resolve(answer)
        self._tell_resolved()

    def _lose(self, head: bytes) -> None:
        """Take the beginning of a message over the cap: tell its waiter, and that there is a gap.

        Where the beginning does not tell whose it was, it may have been anybody's.
        """
        log.warning("message.dropped", begins=head.decode(errors="replace"))
        error = AnswerTooBig(
            "The answer was larger than any that we need, and was dropped.", maybe_written=True
        )
        if answered := _ANSWER.match(head):
            self._resolve(int(answered[1]), error)
        elif not _CALL.match(head):
            for number, waiter in list(self._waiters.items()):
                waiter.resolve(error)
                if waiter.on_answer is None:
                    del self._waiters[number]
                # Else it stays: its answer may yet come, and is the best proof there is.
            self._tell_resolved()
        self._on_gap()

    def _tell_resolved(self) -> None:
        self._resolved.set()
        self._resolved = anyio.Event()
