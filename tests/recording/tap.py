"""A client that says what codexdrv says, and keeps every frame of its connection.

It sends by the builders of `codexdrv.protocol` and reads with `codexdrv.wire`; the engine has no
part in it, so that what is recorded is the server's behaviour and not ours.
"""

import contextlib
import json
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import unix_connect

from codexdrv.protocol.methods import Call, initialize
from codexdrv.wire.message import Message, Notification, Request, decode, encode
from tests.acceptance.kit import WAIT_S


class Line(NamedTuple):
    """A frame, and who sent it: ">" is ours, "<" the server's."""

    direction: str
    frame: Any


class Tap:
    """One greeted connection, from its first frame on."""

    def __init__(self, socket_path: Path) -> None:
        self.lines: list[Line] = []
        self._ids = count(1)
        self._changed = threading.Condition()
        self._is_closed = False
        self._open = contextlib.ExitStack()
        link = unix_connect(
            str(socket_path), "ws://localhost/", max_size=None, max_queue=None, compression=None
        )
        self._link = self._open.enter_context(link)
        self._reader = threading.Thread(target=self._read, name="tap", daemon=True)
        self._reader.start()
        self.call(initialize("codexdrv", "0"))
        self._send(Notification("initialized", {}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self._reader.join()

    def call(self, call: Call) -> Any:
        """Send a request; return what was answered, a result or an error, as it came."""
        number = self.ask(call)
        answer = self._wait(lambda frame: frame.get("id") == number and "method" not in frame)
        return answer["result"] if "result" in answer else answer["error"]

    def ask(self, call: Call) -> int:
        """Send a request, and do not wait for its answer; return its id."""
        number = next(self._ids)
        self._send(Request(number, call.method, call.params))
        return number

    def wait_for(self, method: str, is_it: Callable[[Any], bool] = lambda _: True) -> Any:
        """Block until the server has said this, and return its params. Raises: TimeoutError."""
        heard = self._wait(lambda frame: frame.get("method") == method and is_it(frame["params"]))
        return heard["params"]

    def wait_for_input(self, text: str) -> None:
        """Block until a user message is an item."""

        def is_it(params: Any) -> bool:
            parts = params["item"].get("content") or [{}]
            return params["item"]["type"] == "userMessage" and parts[0].get("text") == text

        self.wait_for("item/completed", is_it)

    def wait_for_end(self, turn: str) -> None:
        """Block until a turn has ended."""
        self.wait_for("turn/completed", lambda params: params["turn"]["id"] == turn)

    def wait_until_closed(self) -> None:
        """Block until the server is gone."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_closed, WAIT_S):
                raise TimeoutError(f"the server is still there after {WAIT_S} s")

    def _send(self, message: Message) -> None:
        frame = encode(message)
        with self._changed:
            # Noted and written in one step: no answer is noted before its request.
            self.lines.append(Line(">", json.loads(frame)))
            self._link.send(frame.decode())

    def _read(self) -> None:
        try:
            for frame in self._link:
                decode(str(frame).encode())  # what we could not read must not become a recording
                with self._changed:
                    self.lines.append(Line("<", json.loads(frame)))
                    self._changed.notify_all()
        except ConnectionClosed:
            pass  # a killed server says no goodbye
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()

    def _wait(self, is_it: Callable[[Any], bool]) -> Any:
        def first() -> Any:
            said = (line.frame for line in self.lines if line.direction == "<")
            return next((frame for frame in said if is_it(frame)), None)

        with self._changed:
            if not self._changed.wait_for(lambda: first() is not None, WAIT_S):
                heard = [line.frame.get("method") for line in self.lines if line.direction == "<"]
                raise TimeoutError(f"it did not come in {WAIT_S} s; heard {heard[-20:]}")
            return first()
