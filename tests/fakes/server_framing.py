"""The server's side of WebSocket, behind the verbs of `Framing`."""

from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from codexdrv.errors import MalformedFrame
from codexdrv.wire.framing import Framing


class WebSocketServerFraming(Framing):
    """As the real one: takes the upgrade, sends any size in one frame, drops binary frames."""

    def __init__(self) -> None:
        #: Whether the upgrade was asked for; its answer is then due.
        self.is_greeted = False
        #: How many pings the client has answered.
        self.pongs = 0
        #: With which code the client said goodbye.
        self.close_code: int | None = None
        self._protocol = ServerProtocol(max_size=None)
        self._begun = bytearray()
        self._is_closed = False

    def receive_data(self, data: bytes) -> list[bytes]:
        self._protocol.receive_data(data)
        messages: list[bytes] = []
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._protocol.send_response(self._protocol.accept(event))
                self.is_greeted = True
            elif isinstance(event, Frame):
                self._take(event, messages)
        if error := self._protocol.handshake_exc or self._protocol.parser_exc:
            raise MalformedFrame(f"The client broke the WebSocket protocol: {error}.")
        return messages

    def _take(self, frame: Frame, messages: list[bytes]) -> None:
        match frame.opcode:
            case Opcode.TEXT | Opcode.CONT:
                self._begun += frame.data
                if frame.fin:
                    messages.append(bytes(self._begun))
                    self._begun.clear()
            case Opcode.PONG:
                self.pongs += 1
            case Opcode.CLOSE:
                self.close_code = Close.parse(frame.data).code
                self._is_closed = True

    def receive_eof(self) -> None:
        self._is_closed = True
        self._protocol.receive_eof()

    def send_message(self, message: bytes) -> None:
        self._protocol.send_text(message)

    def send_ping(self) -> None:
        self._protocol.send_ping(b"")

    def send_close(self) -> None:
        self._protocol.send_close(CloseCode.NORMAL_CLOSURE)

    def data_to_send(self) -> bytes:
        return b"".join(self._protocol.data_to_send())

    @property
    def is_closed(self) -> bool:
        return self._is_closed
