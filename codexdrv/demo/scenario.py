"""The demo: four messages, four situations, one thread; and the thread's own word at the end.

Everything is real but the model: a `codex app-server` on a private home, the supervisor as a
process of its own, and `codexdrv deliver` as a user would run it.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import anyio

from codexdrv.client import ask_server
from codexdrv.demo.model import ScriptedModel
from codexdrv.demo.script import Hold, Reply, Step
from codexdrv.demo.server import AppServer, write_home
from codexdrv.engine.history import fetch_newest_page
from codexdrv.engine.session import Session
from codexdrv.errors import DeadlinePassed
from codexdrv.ids import DeliveryId, ThreadId
from codexdrv.journal.journal import Journal
from codexdrv.protocol.events import UserMessage
from codexdrv.protocol.methods import Call
from codexdrv.protocol.results import read_thread_view
from codexdrv.rules.lifecycle import Delivery, is_settled
from codexdrv.rules.ownership import Phase
from codexdrv.story import tell_briefly


Answer = TypeVar("Answer")

STEP_TIMEOUT_S = 20.0
"""Each step takes a second; a loaded machine gets more."""
POLL_S = 0.02
STOP_TIMEOUT_S = 10.0
"""The supervisor gives open answers 5 s."""


class Message(NamedTuple):
    """One of the four."""

    id: DeliveryId
    text: str
    #: What the thread is like when it is delivered.
    scene: str


DOWN = Message(
    DeliveryId("demo/1-down"),
    "Good morning. Is anybody there?",
    "Nobody is there: no supervisor runs. The message must wait on disk.",
)
IDLE = Message(
    DeliveryId("demo/2-idle"),
    "Please write a long report.",
    "The thread is idle: a new turn must start. (The model will take its time.)",
)
BUSY = Message(
    DeliveryId("demo/3-busy"),
    "Keep the report short, please.",
    "That turn still runs: the message must be steered into it, not start another.",
)
RESTART = Message(
    DeliveryId("demo/4-restart"),
    "Are you still there?",
    "The server was stopped; it comes back and knows nothing of us: resume, then start.",
)
MESSAGES = (DOWN, IDLE, BUSY, RESTART)

SCRIPT: dict[str, Step] = {
    DOWN.text: Reply("Good morning."),
    IDLE.text: Hold("A very long report."),
    BUSY.text: Reply("A short report."),
    RESTART.text: Reply("I am."),
}


class Proof(NamedTuple):
    """What the thread itself shows at the end."""

    #: User messages, oldest first.
    history: tuple[UserMessage, ...]
    #: How often one prompt of the model held each message, at most.
    seen_by_model: dict[str, int]

    @property
    def holds(self) -> bool:
        """Say whether each message is there once, in order, with our id."""
        shown = [(message.client_id, message.text) for message in self.history]
        wanted = [(message.id, message.text) for message in MESSAGES]
        return shown == wanted and all(self.seen_by_model[each.text] == 1 for each in MESSAGES)


class Stage:
    """The private world of one demo."""

    def __init__(self, root: Path, binary: str, *, version: str) -> None:
        self.root = root
        self.version = version
        self.socket = str(root / "server.sock")
        self.config = root / "config.toml"
        self.model = ScriptedModel(SCRIPT)
        self.server = AppServer(binary, root / "home", Path(self.socket), root / "server.log")
        self.thread = ThreadId("")

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Start the model and the server, and begin a thread."""
        write_home(self.root / "home", self.model.base_url)
        self.config.write_text(
            f'[server]\nsocket = "{self.socket}"\ncodex_home = "{self.root / "home"}"\n'
            f'[state]\ndir = "{self.root / "state"}"\n'
        )
        with self.model, self.server:
            self.thread = anyio.run(lambda: self._ask(self._start_thread))
            yield

    @contextlib.contextmanager
    def supervisor(self) -> Iterator[None]:
        """Run `codexdrv supervise` meanwhile; its log goes to a file."""
        with (self.root / "supervisor.log").open("ab") as log:
            child = subprocess.Popen(self._command("supervise"), stderr=log)
        try:
            yield
        finally:
            child.terminate()
            try:
                child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def deliver(self, message: Message) -> str:
        """Run `codexdrv deliver` as a user would; return what it says."""
        arguments = ("deliver", "--thread", self.thread, "--id", message.id, message.text)
        done = subprocess.run(
            self._command(*arguments),
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.stdout

    def wait_until_surfaced(self, message: Message) -> None:
        """Wait until the message is in the thread.

        Raises:
            DeadlinePassed: it is not.
        """
        self._wait(message, lambda found: found.standing.phase is Phase.SURFACED)

    def wait_until_settled(self, message: Message) -> list[str]:
        """Wait until nothing more can come; return the message's story.

        Raises:
            DeadlinePassed: something is missing.
        """
        found = self._wait(message, lambda found: is_settled(found.standing))
        with self._journal() as journal:
            return tell_briefly(found, journal.story(message.id))

    def proof(self) -> Proof:
        """Ask the thread, as another client, what is in it."""
        page = anyio.run(lambda: self._ask(lambda each: fetch_newest_page(each, self.thread)))
        counts = {each.text: self.model.occurrences(each.text) for each in MESSAGES}
        return Proof(page.messages[::-1], counts)

    def _wait(self, message: Message, is_done: Callable[[Delivery], bool]) -> Delivery:
        deadline = time.monotonic() + STEP_TIMEOUT_S
        with self._journal() as journal:
            while not is_done(found := journal.delivery(message.id)):
                if time.monotonic() > deadline:
                    raise DeadlinePassed(
                        f"{message.id} is {found.standing.phase} after {STEP_TIMEOUT_S:g} s.",
                        hint=f"Run again with --keep and read {self.root / 'supervisor.log'}.",
                    )
                time.sleep(POLL_S)
        return found

    def _journal(self) -> Journal:
        return Journal(str(self.root / "state"))

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "codexdrv", "--config", str(self.config), *arguments]

    async def _ask(self, question: Callable[[Session], Awaitable[Answer]]) -> Answer:
        return await ask_server(self.socket, question, version=self.version)

    async def _start_thread(self, session: Session) -> ThreadId:
        # The only place that creates a thread: a driver never does by itself.
        call = Call("thread/start", {"cwd": str(self.root)})
        return read_thread_view(await session.call(call)).id
