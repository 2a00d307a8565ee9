"""A scripted model: a loopback Responses API that answers each user text as a script says.

It never waits for time to pass. A turn is busy because its answer is held at a gate, and it
stays busy until someone calls `release`.
"""

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Self

from codexdrv.demo.script import Gate, Prompt, Reply, Step, answer, read_prompt
from codexdrv.errors import BadInput


STOP_TIMEOUT_S = 5.0
"""An answer ends at once when its socket is shut; this bounds a thread that is stuck."""

ACCEPT_POLL_S = 0.02
"""How long `stop` may wait for the accept loop; idling at 50 Hz costs nothing."""


class ScriptedModel:
    """A model server on 127.0.0.1, and the record of every prompt it saw.

    `script` maps a user's text, exactly, to a step, and may be changed at any time; any other
    text is answered "You said: …".
    """

    def __init__(
        self,
        script: Mapping[str, Step] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.script: dict[str, Step] = dict(script or {})
        self._clock = clock
        self._prompts: list[Prompt] = []
        self._released: set[str] = set()
        self._stopped = False
        self._changed = threading.Condition()
        self._numbers = count(1)
        self._server = _Server(self)
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """The `base_url` of codex's provider."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def prompts(self) -> list[Prompt]:
        """Every prompt so far, oldest first."""
        with self._changed:
            return list(self._prompts)

    def start(self) -> None:
        """Serve, in a thread of its own, until `stop`; a model is used once."""
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(ACCEPT_POLL_S,),
            name="scripted-model",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop serving: held answers are cut, and their threads have ended on return."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.cut_connections(STOP_TIMEOUT_S)
        self._server.server_close()

    def release(self, text: str) -> None:
        """Open the gate of a text, for the answers held now and for later ones."""
        with self._changed:
            self._released.add(text)
            self._changed.notify_all()

    def count(self, text: str) -> int:
        """How many prompts so far contain the text as a user message."""
        return sum(text in prompt.texts for prompt in self.prompts)

    def occurrences(self, text: str) -> int:
        """How often one prompt has the text, at most: 2 says that it was delivered twice."""
        return max((prompt.texts.count(text) for prompt in self.prompts), default=0)

    def wait_for_prompt(self, text: str, *, timeout_s: float = 10.0) -> Prompt:
        """Block until a prompt contains the text, and return the first that does.

        Raises:
            TimeoutError: none came in time.
        """

        def first() -> Prompt | None:
            return next((prompt for prompt in self._prompts if text in prompt.texts), None)

        with self._changed:
            found = self._changed.wait_for(first, timeout_s)
            seen = [prompt.key[:60] for prompt in self._prompts]
        if found is None:
            raise TimeoutError(f"no prompt with {text[:60]!r} in {timeout_s} s; seen: {seen}")
        return found

    def record(self, body: Any) -> Prompt:
        """Note what a request shows the model. Raises: BadInput, if it is no such request."""
        prompt = read_prompt(body, at=self._clock())
        with self._changed:
            self._prompts.append(prompt)
            self._changed.notify_all()
        return prompt

    def answer(self, prompt: Prompt, write: Callable[[bytes], object]) -> None:
        """Write what the script says to a prompt; a gate that never opens cuts it short."""
        step = self.script.get(prompt.key, Reply(f"You said: {prompt.key}"))
        for part in answer(step, prompt, next(self._numbers)):
            if not isinstance(part, Gate):
                write(part)
            elif not self._opens(part):
                return

    def _opens(self, gate: Gate) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or gate.text in self._released)
            return not self._stopped


class _Server(ThreadingHTTPServer):
    """The accept loop; it knows its open connections, so that stopping leaves none behind."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, model: ScriptedModel) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.model = model
        self._open: set[socket.socket] = set()
        self._closed = threading.Condition()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._closed:
            self._open.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._closed:
                self._open.discard(request)
                self._closed.notify_all()

    def cut_connections(self, timeout_s: float) -> None:
        with self._closed:
            for request in self._open:
                with contextlib.suppress(OSError):  # the client may have left already
                    request.shutdown(socket.SHUT_RDWR)
            self._closed.wait_for(lambda: not self._open, timeout_s)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that leaves early is what an interrupt or a steer looks like from here.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Connection(BaseHTTPRequestHandler):
    """One request, one answer, then the connection closes: HTTP/1.0 has no other way."""

    server: _Server

    def log_message(self, *_: Any) -> None:
        """Say nothing: the prompts are the record."""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/v1/models":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        body = b'{"object": "list", "data": [], "models": []}'
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        if self.path != "/v1/responses":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            length = int(self.headers.get("Content-Length", 0))
            prompt = self.server.model.record(json.loads(self.rfile.read(length)))
        except (ValueError, BadInput) as error:
            self.send_error(HTTPStatus.BAD_REQUEST, explain=str(error))
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.server.model.answer(prompt, self.wfile.write)
