"""The open questions of one connection: which there are, since when, and how each ends."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

import anyio
import structlog

from codexdrv.clock import now_ms as read_clock
from codexdrv.engine.question import OpenQuestion, identify_question
from codexdrv.ids import ThreadId
from codexdrv.protocol.asked import (
    RESOLVED,
    End,
    can_be_named,
    is_settled,
    is_shown_by_item,
    place_of,
    read_end,
    settles,
)
from codexdrv.protocol.printable import CUT
from codexdrv.protocol.questions import YES, offered, posture_of
from codexdrv.protocol.summaries import FILE_CHANGE, read_files, summarize
from codexdrv.transport.peer import PeerIdentity
from codexdrv.wire.message import Notification, Request


OPEN_MAX = 100
"""A thread has one or two; whoever made more would fill the status file."""

ENDED = {
    RESOLVED: "answered",
    "turn/completed": "turn_ended",
    "item/completed": "item_ended",
    "thread/closed": "thread_closed",
}
"""How a question is over, by what the server told; whose answer it was it never tells."""

Value = TypeVar("Value")

log = structlog.get_logger()


class KnownQuestions:
    """What one life has seen of the questions of a server, over all connections to it.

    A question that is asked again on a new connection is as old as it was on the last one.
    """

    def __init__(
        self,
        *,
        now_ms: Callable[[], int] = read_clock,
        on_change: Callable[[], None] = lambda: None,
        is_logged: bool = False,
        asked_since: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Begin with none.

        Args:
            now_ms: the wall clock.
            on_change: told that there are others now.
            is_logged: a supervisor's are; a command's would stand between its own words.
            asked_since: when an earlier life first saw a question, by its id.
        """
        self._asked_since = asked_since
        self.now_ms = now_ms
        self.on_change = on_change
        self._is_logged = is_logged
        self._server: PeerIdentity | None = None
        self._seen: dict[str, OpenQuestion] = {}

    def begin(self, server: PeerIdentity | None) -> None:
        """A connection begins; what another server asked went with it."""
        if server != self._server:
            self._seen.clear()
        self._server = server

    def recall(self, name: str) -> OpenQuestion | None:
        """Look up a question that was seen and not settled."""
        return self._seen.get(name)

    def first_seen_ms(self, name: str) -> int:
        """Say since when a question is open, as far as anybody of us has seen; Unix time."""
        now_ms = self.now_ms()
        return min(now_ms, self._asked_since.get(name, now_ms))

    def note(self, question: OpenQuestion) -> None:
        """Remember a question that was not seen before; the oldest ones are forgotten first."""
        while len(self._seen) >= 2 * OPEN_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[question.id] = question
        if self._is_logged:
            log.info("question.opened", **_logged(question))

    def amend(self, question: OpenQuestion) -> None:
        """More is known of what a question asks."""
        self._seen[question.id] = question

    def forget(self, question: OpenQuestion, by: str) -> None:
        """A question is settled, or can be by nobody any more."""
        self._seen.pop(question.id, None)
        if self._is_logged:
            age_s = round((self.now_ms() - question.since_ms) / 1000, 1)
            how = ENDED.get(by, by)
            log.info("question.closed", **_logged(question), how=how, by=by, age_s=age_s)

    def tell(self, question: OpenQuestion, shown: str) -> None:
        """What was answered shows by how its item has ended."""
        if self._is_logged:
            log.info("question.decided", **_logged(question), item=shown)

    def pass_over(self, request: Request) -> None:
        """A question is one too many, and is not listed."""
        if self._is_logged:
            log.warning("question.not_listed", method=request.method, most=OPEN_MAX)


class OpenQuestions:
    """What the server has asked on one connection and nobody has answered."""

    def __init__(self, known: KnownQuestions, server: PeerIdentity | None) -> None:
        """Begin with none.

        Args:
            known: what the connections before have seen.
            server: the process that asks, where that is known.
        """
        known.begin(server)
        self._known = known
        self._server = server
        # An id on the wire keeps its type: 1 and "1" are two.
        self._open: dict[tuple[type, int | str], OpenQuestion] = {}
        #: The files that items are about to change, by the item's id.
        self._files: dict[str, str] = {}
        #: A question, its item and its turn, whose ends are looked for; and how each has ended.
        self._watched: set[str | None] = set()
        #: Those that were answered and whose item will show how, by that item's id.
        self._answered: dict[str, OpenQuestion] = {}
        self.ends: dict[str | None, str] = {}
        self._changed = anyio.Event()

    def all(self) -> list[OpenQuestion]:
        """List them, oldest first."""
        now = self._known.now_ms()
        for question in [*self._open.values()]:
            lapses_ms = posture_of(question.request.method).lapses_ms
            if lapses_ms is not None and now - question.since_ms > lapses_ms:
                self._close(question, "lapsed")
        return sorted(self._open.values(), key=lambda question: question.since_ms)

    def find(self, name: str) -> OpenQuestion | None:
        """Look one up by its id; two of one id are none that anybody can mean."""
        found = [each for each in self._open.values() if each.id == name]
        return found[0] if len(found) == 1 else None

    def watch(self, question: OpenQuestion) -> None:
        """From now on, keep in `ends` how a question, its item and its turn end, by their ids."""
        self._watched = {question.id, question.place.item, question.place.turn} - {None}

    async def wait_for_change(self) -> None:
        """Wait until one is asked or settled, or another end is known."""
        await self._changed.wait()

    def ask(self, request: Request) -> None:
        """Take a question that gets no answer from us; asked once more, it is the same."""
        key = (type(request.id), request.id)
        if key in self._open:
            return
        if len(self._open) >= OPEN_MAX:
            self._known.pass_over(request)
            return
        name = identify_question(request, self._server)
        question = self._known.recall(name)
        if question is None:
            question = self._read(name, request)
            self._known.note(question)
        self._open[key] = question
        self._tell_change()

    def hear(self, news: Notification) -> None:
        """Take a notification: it may settle some."""
        if files := read_files(news):
            _keep(self._files, *files)
        end = read_end(news) if self._watched or self._answered else None
        if end is not None:
            self._note_end(end)
        settled = settles(news) if self._open else None
        if settled is not None:
            for question in [*self._open.values()]:
                if is_settled(question.request, settled):
                    self._close(question, news.method)

    def lacks_files(self, thread: ThreadId) -> bool:
        """Say whether a thread may ask about files that nobody has named to us."""
        asked = [each for each in self._open.values() if each.place.thread == thread]
        return not asked or any(
            each.request.method == FILE_CHANGE and each.place.item not in self._files
            for each in asked
        )

    def learn_files(self, thread: ThreadId, files: Mapping[str, str]) -> None:
        """Take from a read which files the items of a thread are about to change."""
        for item, said in files.items():
            _keep(self._files, item, said)
        for key, question in self._open.items():
            if question.place.thread == thread and question.place.item in files:
                again = self._read(question.id, question.request)
                self._open[key] = again._replace(since_ms=question.since_ms)
                self._known.amend(self._open[key])
                self._tell_change()

    def forget(self) -> None:
        """Something the server said is lost: what is still open, it says again."""
        self._open.clear()
        self._tell_change()

    def _read(self, name: str, request: Request) -> OpenQuestion:
        place = place_of(request)
        summary = summarize(request, self._files.get(place.item or "", ""))
        # Where nothing tells one server from the next, the turn must: no other has its id.
        is_certain = self._server is not None or place.turn is not None
        # Nobody says yes to what nobody has seen.
        is_whole = CUT not in summary and can_be_named(request)
        return OpenQuestion(
            name,
            request,
            posture_of(request.method).kind,
            place,
            self._known.first_seen_ms(name),
            summary,
            tuple(
                word for word in offered(request) if is_certain and (is_whole or word not in YES)
            ),
        )

    def _note_end(self, end: End) -> None:
        if end.name in self._watched:
            self.ends[end.name] = end.status
            self._tell_change()
        if answered := self._answered.pop(end.name, None):
            self._known.tell(answered, end.status)

    def _close(self, question: OpenQuestion, by: str) -> None:
        del self._open[type(question.request.id), question.request.id]
        item = question.place.item
        if by == RESOLVED and item is not None and is_shown_by_item(question.request):
            _keep(self._answered, item, question)
        if question.id in self._watched:
            self.ends[question.id] = by
        self._known.forget(question, by)
        self._tell_change()

    def _tell_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        self._known.on_change()


def _keep(found: dict[str, Value], name: str, value: Value) -> None:
    """Keep the newest ones."""
    while len(found) >= OPEN_MAX:
        del found[next(iter(found))]
    found[name] = value


def _logged(question: OpenQuestion) -> dict[str, object]:
    # Never what is asked: it may hold anything.
    return {
        "id": question.id,
        "method": question.request.method,
        "thread_id": question.place.thread,
    }
