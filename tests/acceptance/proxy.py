"""A proxy between a driver and its server, for what a real server cannot be made to do when asked.

All goes through as it is; only `meddle` may change a request on its way, or answer it instead.
"""

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, unix_connect
from websockets.sync.server import ServerConnection, unix_serve

from tests.acceptance.kit import Message


Meddle = Callable[[Message], Message]
"""A message of the driver's → what goes on to the server; without a method, back as an answer."""


class Proxy:
    """Listens at one path, and passes each connection on to the server behind."""

    def __init__(self, path: Path, behind: Path, meddle: Meddle) -> None:
        #: What the server has said through it, in bytes.
        self.said_bytes = 0
        #: Whether it is kept from the driver.
        self.is_mute = False
        self._driver: ServerConnection | None = None
        self.path = path
        self._behind = behind
        self._meddle = meddle
        self._server = unix_serve(
            self._pass_on, str(path), compression=None, max_size=None, ping_interval=None
        )
        self._thread = threading.Thread(target=self._server.serve_forever, name="proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()

    def cut(self) -> None:
        """Cut the connection of the driver, on which nothing more is passed."""
        assert self._driver is not None, "the driver has connected"
        self._driver.socket.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, driver: ServerConnection) -> None:
        self._driver = driver
        limits = {"compression": None, "max_size": None, "ping_interval": None}
        with unix_connect(str(self._behind), "ws://localhost/", **limits) as server:
            back = threading.Thread(target=self._pump, args=(server, driver), name="proxy-back")
            back.start()
            try:
                for frame in driver:
                    message = self._meddle(json.loads(frame))
                    (server if "method" in message else driver).send(json.dumps(message))
            except ConnectionClosed:
                pass  # one of the two has ended, and so does the other
        back.join()

    def _pump(self, server: ClientConnection, driver: ServerConnection) -> None:
        try:
            for frame in server:
                self.said_bytes += len(frame.encode() if isinstance(frame, str) else frame)
                if not self.is_mute:
                    driver.send(frame)
        except ConnectionClosed:
            pass
        finally:
            driver.close()


class Once:
    """Does something to the first request of a method; all else goes through."""

    def __init__(self, method: str, then: Meddle) -> None:
        self._method = method
        self._then = then
        self._is_done = False

    def __call__(self, message: Message) -> Message:
        if self._is_done or message.get("method") != self._method:
            return message
        self._is_done = True
        return self._then(message)
