"""The smallest framing that has everything: a line is a message, PING, PONG and BYE are not."""

from codexdrv.errors import MalformedFrame
from codexdrv.wire.framing import Framing


class LineFraming(Framing):
    """Lines end in a newline; `pong` is what a ping is answered with."""

    def __init__(self, pong: bytes = b"PONG") -> None:
        self._pong = pong
        self._begun = b""
        self._due = b""
        self._is_closed = False
        self._is_broken = False

    def receive_data(self, data: bytes) -> list[bytes]:
        if self._is_broken:
            raise MalformedFrame("A line was malformed.")
        *lines, self._begun = (self._begun + data).split(b"\n")
        messages = []
        for line in lines:
            match line:
                case b"PING":
                    self._due += self._pong + b"\n"
                case b"PONG":
                    pass
                case b"BYE":
                    self._is_closed = True
                case b"MALFORMED":
                    # As the real framings do: what came before it is handed out first.
                    self._is_broken = True
                    break
                case _:
                    messages.append(line)
        if self._is_broken and not messages:
            raise MalformedFrame("A line was malformed.")
        return messages

    def receive_eof(self) -> None:
        self._is_closed = True
        if self._begun:
            raise MalformedFrame("The stream ended inside a line.")

    def take_gaps(self) -> list[bytes]:
        return []

    def send_message(self, message: bytes) -> None:
        self._due += message + b"\n"

    def send_ping(self) -> None:
        self._due += b"PING\n"

    def send_close(self) -> None:
        self._due += b"BYE\n"

    def data_to_send(self) -> bytes:
        data, self._due = self._due, b""
        return data

    @property
    def is_closed(self) -> bool:
        return self._is_closed
