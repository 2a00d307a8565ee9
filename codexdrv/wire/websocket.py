"""WebSocket framing, client side: text messages over the sans-IO core of `websockets`."""

from logging import getLogger

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus, PayloadTooBig
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from codexdrv.errors import FrameTooBig, LinkLost, MalformedFrame, PeerError
from codexdrv.wire.framing import MESSAGE_BYTES_MAX, Framing


FRAGMENT_BYTES_MAX = 1_048_576
"""1 MiB: the server resets on an unfragmented message over 16 MiB; cut like this, 33 MiB passed."""

_URI = parse_uri("ws://localhost/")

# The library logs frames, and with them the user's text; failures are raised, not logged.
_SILENT = getLogger(__name__)
_SILENT.disabled = True

_EOF_BETWEEN_FRAMES = "unexpected end of stream"
"""How `websockets` words an end at the edge of a frame; nothing else tells it from one inside.
Should a release word it otherwise, a clean end raises MalformedFrame; both end the connection."""


class WebSocketFraming(Framing):
    """Cut a WebSocket connection into messages; the upgrade is queued from the start.

    Until the upgrade is answered, messages and the close are held back, so that nobody above
    knows of a handshake. Once broken, every later call that takes bytes raises the same error.
    """

    def __init__(self, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._bytes_max = message_bytes_max
        self._protocol = ClientProtocol(_URI, max_size=message_bytes_max, logger=_SILENT)
        self._protocol.send_request(self._protocol.connect())
        self._held: list[bytes] = []
        self._begun = bytearray()
        self._has_heard = False
        self._is_closed = False
        self._is_close_asked = False
        self._error: PeerError | None = None

    def receive_data(self, data: bytes) -> list[bytes]:
        """Take bytes as they came; return the messages that are now whole, in order.

        Messages that came before an error are returned first; the next call raises it.

        Raises:
            MalformedFrame: a refused upgrade, a binary message, or a breach of the protocol.
            FrameTooBig: the header of a message over the cap is here; a close 1009 is queued.
        """
        if self._error is not None:
            raise self._error
        self._has_heard = self._has_heard or bool(data)
        self._protocol.receive_data(data)
        messages = self._collect()
        self._error = self._error or self._failure()
        if self._error is not None and not messages:
            raise self._error
        return messages

    def receive_eof(self) -> None:
        """Take the end of the stream; it is closed now, also when this raises.

        Raises:
            MalformedFrame: the stream ended inside a message or inside the upgrade's answer.
        """
        self._is_closed = True
        self._protocol.receive_eof()
        self._error = self._error or self._failure()
        if self._error is not None:
            raise self._error

    def take_gaps(self) -> list[bytes]:
        """Return nothing: a message over the cap ends the connection."""
        return []

    def send_message(self, message: bytes) -> None:
        """Queue one text message, or hold it back until the upgrade is answered.

        Raises:
            LinkLost: either side has closed or broken the connection; nothing was queued.
        """
        if self._is_ending:
            raise LinkLost("The connection is closing; the message was not sent.")
        if self._protocol.state is State.CONNECTING:
            self._held.append(message)
        else:
            self._send_fragments(message)

    def send_ping(self) -> None:
        """Queue a ping; before the upgrade is answered, its request serves as one."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_ping(b"")

    def send_close(self) -> None:
        """Queue a close 1000 behind all messages, once; nothing when the peer was first."""
        if self._is_ending:
            return
        self._is_close_asked = True
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)

    def data_to_send(self) -> bytes:
        """Hand out all bytes that are due, pongs and close frames included."""
        return b"".join(self._protocol.data_to_send())

    @property
    def is_closed(self) -> bool:
        """Say whether the peer has sent a close frame or ended the stream."""
        return self._is_closed

    @property
    def _is_ending(self) -> bool:
        return self._is_closed or self._is_close_asked or self._error is not None

    def _collect(self) -> list[bytes]:
        messages: list[bytes] = []
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._release()
            elif isinstance(event, Frame) and not self._take(event, messages):
                break
        return messages

    def _take(self, frame: Frame, messages: list[bytes]) -> bool:
        """Add a frame to what has come; say whether the next one may be looked at."""
        match frame.opcode:
            case Opcode.TEXT | Opcode.CONT if frame.fin:
                # The one copy of a big message: the library's buffer into bytes.
                messages.append(b"".join((self._begun, frame.data)))
                self._begun.clear()
            case Opcode.TEXT | Opcode.CONT:
                # One buffer, not a list: a million tiny fragments must not cost an object each.
                self._begun += frame.data
            case Opcode.CLOSE:
                self._is_closed = True
            case Opcode.BINARY:
                self._error = MalformedFrame("The server sent a binary WebSocket message.")
                if self._protocol.state is State.OPEN:
                    self._protocol.fail(CloseCode.UNSUPPORTED_DATA)
                return False
            case Opcode.PING | Opcode.PONG:
                # The library has queued the pong.
                pass
        return True

    def _release(self) -> None:
        # A close that came with the answer to the upgrade was first: nothing may follow it.
        if self._protocol.state is State.OPEN:
            for message in self._held:
                self._send_fragments(message)
            if self._is_close_asked:
                self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
        self._held.clear()

    def _send_fragments(self, message: bytes) -> None:
        size = len(message)
        if size <= FRAGMENT_BYTES_MAX:
            self._protocol.send_text(message)
            return
        view = memoryview(message)
        self._protocol.send_text(view[:FRAGMENT_BYTES_MAX], fin=False)
        for start in range(FRAGMENT_BYTES_MAX, size, FRAGMENT_BYTES_MAX):
            end = start + FRAGMENT_BYTES_MAX
            self._protocol.send_continuation(view[start:end], fin=end >= size)

    def _failure(self) -> PeerError | None:
        if self._protocol.handshake_exc is not None:
            return self._upgrade_failure(self._protocol.handshake_exc)
        if self._protocol.parser_exc is not None:
            return self._stream_failure(self._protocol.parser_exc)
        return None

    def _upgrade_failure(self, error: Exception) -> PeerError | None:
        if isinstance(error, InvalidStatus):
            status = error.response.status_code
            return MalformedFrame(f"The server refused the WebSocket upgrade with status {status}.")
        if not isinstance(error.__cause__, EOFError):
            # By name: the text quotes headers of any length.
            reason = type(error).__name__
            return MalformedFrame(f"The answer to the WebSocket upgrade is invalid: {reason}.")
        if self._has_heard:
            return MalformedFrame("The stream ended inside the answer to the WebSocket upgrade.")
        return None

    def _stream_failure(self, error: Exception) -> PeerError | None:
        if isinstance(error, PayloadTooBig):
            return FrameTooBig(f"A message of more than {self._bytes_max} bytes is arriving.")
        if not isinstance(error, EOFError):
            return MalformedFrame(f"The server broke the WebSocket protocol: {error}.")
        if self._protocol.current_size is not None or str(error) != _EOF_BETWEEN_FRAMES:
            return MalformedFrame("The stream ended inside a message.")
        return None
