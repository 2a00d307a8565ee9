"""A proxy that cuts: any time, or as soon as the request of a certain input has passed."""

import contextlib
import json
import socket
import threading
from pathlib import Path

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, unix_connect
from websockets.sync.server import ServerConnection

from tests.acceptance.proxy import Proxy


class CuttingProxy(Proxy):
    """Both ends of a cut connection are gone at once, without a word."""

    def __init__(self, path: Path, behind: Path) -> None:
        super().__init__(path, behind, lambda message: message)
        self._links: tuple[ServerConnection, ClientConnection] | None = None
        #: Whose request is the last one of its connection.
        self._marked: set[str] = set()
        #: How many of them were cut.
        self.requests_cut = 0

    def cut(self) -> None:
        """Cut the connection that stands, if one does."""
        for link in self._links or ():
            with contextlib.suppress(OSError):
                link.socket.shutdown(socket.SHUT_RDWR)

    def mark(self, delivery: str) -> None:
        """Cut the connection when this delivery's next request was written."""
        self._marked.add(delivery)

    def _pass_on(self, driver: ServerConnection) -> None:
        limits = {"compression": None, "max_size": None, "ping_interval": None}
        try:
            server = unix_connect(str(self._behind), "ws://localhost/", **limits)
        except (OSError, WebSocketException):
            return  # nobody is behind: so the driver's connection ends, too
        with server:
            self._links = driver, server
            back = threading.Thread(target=self._pump, args=(server, driver), name="proxy-back")
            back.start()
            with contextlib.suppress(OSError, WebSocketException):
                for frame in driver:
                    server.send(frame)
                    self._cut_behind(frame)
        back.join()

    def _pump(self, server: ClientConnection, driver: ServerConnection) -> None:
        with contextlib.suppress(OSError, WebSocketException):
            for frame in server:
                driver.send(frame)
        self._end(driver)
        self._end(server)

    def _end(self, link: ServerConnection | ClientConnection) -> None:
        with contextlib.suppress(OSError):
            link.socket.shutdown(socket.SHUT_RDWR)

    def _cut_behind(self, frame: str | bytes) -> None:
        if not self._marked:
            return
        delivery = json.loads(frame).get("params", {}).get("clientUserMessageId")
        if delivery in self._marked:
            self._marked.discard(delivery)
            self.requests_cut += 1
            self.cut()
