"""What an acceptance test stands on: a real server of its own, and a witness of the truth.

`Truth` is an independent client, written without a line of codexdrv's engine or protocol, so
that the two cannot be wrong in the same way.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import unix_connect

from codexdrv.demo.model import ScriptedModel
from codexdrv.demo.script import Step
from codexdrv.demo.server import AppServer, write_home


WAIT_S = 15.0
"""Everything that a test waits for comes in milliseconds; a busy CI machine is slow."""

PAGE_ITEMS = 50

Message = dict[str, Any]


class Said(NamedTuple):
    """A user message as a witness saw it."""

    client_id: str | None
    text: str


class ServerError(Exception):
    """The server refused a request of the witness."""

    def __init__(self, method: str, error: Message) -> None:
        super().__init__(f"{method}: {error}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Truth:
    """Another client of the server: its inputs are a user's, its answers are the truth.

    Calls block; from async tests run them in a thread. It may be used from several threads.
    """

    def __init__(self, socket_path: Path) -> None:
        self._open = contextlib.ExitStack()
        link = unix_connect(
            str(socket_path), "ws://localhost/", max_size=None, max_queue=None, compression=None
        )
        self._link = self._open.enter_context(link)
        self._ids = count(1)
        self._arrived = threading.Condition()
        self._answers: dict[int, Message] = {}
        self._closed = False
        #: Every notification and every request of the server, oldest first.
        self.seen: list[Message] = []
        self._reader = threading.Thread(target=self._read, name="truth", daemon=True)
        self._reader.start()
        me = {"name": "truth", "title": "truth", "version": "0"}
        able = {"experimentalApi": True}
        try:
            #: The answer to `initialize`.
            self.server_info = self.call("initialize", clientInfo=me, capabilities=able)
            self._send({"method": "initialized"})
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended."""
        return self._closed

    def close(self) -> None:
        """Leave; twice is fine."""
        self._open.close()
        self._reader.join()

    def call(self, method: str, **params: Any) -> Any:
        """Call the server. Raises: ServerError, ConnectionError, TimeoutError."""
        number = next(self._ids)
        self._send({"id": number, "method": method, "params": params})
        answer = self._wait(lambda: self._answers.get(number), f"the answer to {method}", WAIT_S)
        if "error" in answer:
            raise ServerError(method, answer["error"])
        return answer["result"]

    def answer(self, request: Message, result: Any) -> None:
        """Answer a request that the server made of its clients (an approval, for one)."""
        self._send({"id": request["id"], "result": result})

    def wait_for(
        self, matches: Callable[[Message], bool], *, after: int = 0, timeout_s: float = WAIT_S
    ) -> Message:
        """Block until a message from `seen[after:]` matches. Raises: like `call`."""

        def first() -> Message | None:
            return next((message for message in self.seen[after:] if matches(message)), None)

        return self._wait(first, "a notification", timeout_s)

    def wait_for_turn(self, turn_id: str, *, timeout_s: float = WAIT_S) -> Message:
        """Block until a turn of a subscribed thread has ended, and return it as it ended."""

        def ended(message: Message) -> bool:
            method, params = message["method"], message["params"]
            return method == "turn/completed" and params["turn"]["id"] == turn_id

        turn: Message = self.wait_for(ended, timeout_s=timeout_s)["params"]["turn"]
        return turn

    def wait_for_input(self, client_id: str, *, timeout_s: float = WAIT_S) -> Message:
        """Block until a user message with this id is an item of a subscribed thread."""

        def surfaced(message: Message) -> bool:
            method, params = message["method"], message["params"]
            return method == "item/completed" and params["item"].get("clientId") == client_id

        return self.wait_for(surfaced, timeout_s=timeout_s)

    def start_thread(self, cwd: Path, *, approval_policy: str = "never") -> str:
        """Start a thread, and subscribe to it; its commands run without a sandbox."""
        policy = {"approvalPolicy": approval_policy, "sandbox": "danger-full-access"}
        return str(self.call("thread/start", cwd=str(cwd), **policy)["thread"]["id"])

    def resume(self, thread_id: str) -> Message:
        """Load a thread, and subscribe to it."""
        resumed: Message = self.call("thread/resume", threadId=thread_id, excludeTurns=True)
        return resumed

    def start_turn(self, thread_id: str, text: str, *, client_id: str | None = None) -> str:
        """Say something, as another client's user; return the turn's id."""
        started = self.call("turn/start", **_input(thread_id, text, client_id))
        return str(started["turn"]["id"])

    def steer(
        self, thread_id: str, turn_id: str, text: str, *, client_id: str | None = None
    ) -> None:
        """Say something into a running turn."""
        self.call("turn/steer", expectedTurnId=turn_id, **_input(thread_id, text, client_id))

    def running_turn(self, thread_id: str) -> str | None:
        """Ask what the thread is doing, by a steer that changes nothing."""
        nil = "00000000-0000-0000-0000-000000000000"
        try:
            self.call("turn/steer", threadId=thread_id, expectedTurnId=nil, input=[])
        except ServerError as refusal:
            if refusal.message == "no active turn to steer":
                return None
            if "but found" in refusal.message:
                return refusal.message.rpartition("but found ")[2].strip("`")
            raise
        raise AssertionError("the server steered a turn that does not exist")

    def history(self, thread_id: str) -> list[Said]:
        """Every user message that the server lists for a thread, in order."""
        try:
            items = [row["item"] for row in self._pages("thread/items/list", thread_id)]
        except ServerError as refusal:
            if "not supported yet" not in refusal.message:
                raise
            turns = self._pages("thread/turns/list", thread_id, itemsView="full")
            items = [item for turn in turns for item in turn["items"]]
        return [
            Said(item.get("clientId"), _text(item["content"]))
            for item in items
            if item["type"] == "userMessage"
        ]

    def loaded_threads(self) -> list[str]:
        """The ids of the threads that the server has in memory."""
        return list(self.call("thread/loaded/list")["data"])

    def rollout(self, thread_id: str) -> list[Said]:
        """Every user message in a thread's rollout file; the server is not asked."""
        return read_rollout(Path(self.server_info["codexHome"]), thread_id)

    def _pages(self, method: str, thread_id: str, **params: Any) -> Iterator[Message]:
        params |= {"threadId": thread_id, "sortDirection": "asc", "limit": PAGE_ITEMS}
        page = self.call(method, **params)
        yield from page["data"]
        while page["nextCursor"] is not None:
            page = self.call(method, **params, cursor=page["nextCursor"])
            yield from page["data"]

    def _send(self, message: Message) -> None:
        try:
            self._link.send(json.dumps(message))
        except ConnectionClosed as error:
            raise ConnectionError(f"the server is gone: {error}") from error

    def _read(self) -> None:
        try:
            for frame in self._link:
                self._note(json.loads(frame))
        except ConnectionClosed:
            pass  # a killed server says no goodbye
        finally:
            with self._arrived:
                self._closed = True
                self._arrived.notify_all()

    def _note(self, message: Message) -> None:
        with self._arrived:
            if "method" in message:
                self.seen.append(message)
            else:
                self._answers[message["id"]] = message
            self._arrived.notify_all()

    def _wait(self, find: Callable[[], Message | None], what: str, timeout_s: float) -> Message:
        with self._arrived:
            self._arrived.wait_for(lambda: self._closed or find() is not None, timeout_s)
            found = find()
            methods = [message["method"] for message in self.seen[-20:]]
        if found is not None:
            return found
        if self._closed:
            raise ConnectionError(f"the server is gone; the witness waited for {what}")
        raise TimeoutError(f"{what} did not come in {timeout_s} s; last seen: {methods}")


class Rig:
    """One test's own world: home, socket, model and server, under one directory."""

    def __init__(
        self, root: Path, *, binary: str | Path, script: Mapping[str, Step] | None = None
    ) -> None:
        self.root = root
        self.home = root / "home"
        self.socket_path = root / "s.sock"
        self.cwd = root / "cwd"
        self.model = ScriptedModel(script)
        self.server = AppServer(binary, self.home, self.socket_path, root / "server.log")
        self._witnesses: list[Truth] = []

    def __enter__(self) -> Self:
        self.cwd.mkdir()
        write_home(self.home, self.model.base_url)
        self.model.start()
        try:
            self.server.start()
        except BaseException:
            self.model.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for witness in self._witnesses:
            witness.close()
        self.model.stop()  # first: a held turn would keep the server alive
        self.server.stop(grace_s=1.0)

    def truth(self) -> Truth:
        """Open a witness; it is closed with the rig, and a server's end is its end."""
        witness = Truth(self.socket_path)
        self._witnesses.append(witness)
        return witness

    def rollout(self, thread_id: str) -> list[Said]:
        """Every user message in a thread's rollout file; no server is needed."""
        return read_rollout(self.home, thread_id)


def read_rollout(home: Path, thread_id: str) -> list[Said]:
    """Read the user messages of a thread's newest rollout file; none, if there is no file."""
    files = sorted(home.glob(f"*sessions/**/rollout-*{thread_id}*.jsonl"))
    if not files:
        return []
    lines = files[-1].read_bytes().split(b"\n")[:-1]  # a line that a kill cut has no end
    payloads = [row["payload"] for row in map(json.loads, lines) if row["type"] == "event_msg"]
    return [said for said in map(_said, payloads) if said is not None]


def _said(payload: Message) -> Said | None:
    if payload["type"] == "user_message":  # threads with legacy history
        return Said(payload.get("client_id"), payload["message"])
    item = payload.get("item", {})
    if payload["type"] == "item_completed" and item["type"] == "UserMessage":
        return Said(item.get("client_id"), _text(item["content"]))
    return None


def _input(thread_id: str, text: str, client_id: str | None) -> Message:
    named = {} if client_id is None else {"clientUserMessageId": client_id}
    return {"threadId": thread_id, "input": [{"type": "text", "text": text}], **named}


def _text(content: list[Message]) -> str:
    return "".join(part["text"] for part in content if part["type"] == "text")
