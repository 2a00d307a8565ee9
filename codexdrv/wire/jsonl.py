"""JSONL framing, for stdio: one JSON text a line, and no handshake, ping or goodbye."""

from codexdrv.errors import MalformedFrame
from codexdrv.wire.framing import MESSAGE_BYTES_MAX, Framing


HEAD_BYTES = 64
"""The server writes the id of an answer first: `{"id":18446744073709551615,"result":` are 36."""


class JsonlFraming(Framing):
    r"""Cut a stream of lines into messages; LF and CRLF end a line, blank lines are ignored.

    A line over the cap does not end the connection: a child's pipes cannot be opened anew, as a
    socket can. Its bytes are dropped as they come, up to its line break, and `take_gaps` tells of
    it; FrameTooBig is never raised. The cap counts all bytes before the LF, a CR included.
    """

    noise_frames_max = 10
    """A wrapper or a shell on the way may greet us first; more is no server."""

    has_ping = False

    def __init__(self, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._bytes_max = message_bytes_max
        # One buffer, not a list: a million tiny reads must not cost an object each. It never holds
        # a line break and is never searched, so that every byte is looked at once.
        self._begun = bytearray()
        self._is_draining = False
        self._gaps: list[bytes] = []
        self._due: list[bytes] = []
        self._is_closed = False

    def receive_data(self, data: bytes) -> list[bytes]:
        """Take bytes as they came; return the messages that are now whole, in order."""
        *ends, rest = data.split(b"\n")
        lines = [self._finish(end) for end in ends]
        self._add(rest)
        return [line for line in lines if line and not line.isspace()]

    def receive_eof(self) -> None:
        """Take the end of the stream; it is closed now, also when this raises.

        Raises:
            MalformedFrame: the stream ended inside a line, dropped or not, that is not blank.
        """
        self._is_closed = True
        if self._is_draining or (self._begun and not self._begun.isspace()):
            raise MalformedFrame("The stream ended inside a line.")

    def take_gaps(self) -> list[bytes]:
        """Return how each line began that has passed the cap since this was last asked.

        A line counts from the byte that passes the cap, not from its end: what is asked after that
        is answered behind it. Where among the messages of one `receive_data` it stood is not
        known, so ask when these have been taken.
        """
        gaps, self._gaps = self._gaps, []
        return gaps

    def send_message(self, message: bytes) -> None:
        """Queue one message as a line."""
        assert b"\n" not in message, "a JSON text that orjson wrote has no line break"
        self._due += (message, b"\n")

    def send_ping(self) -> None:
        """Queue nothing: a line has no ping."""

    def send_close(self) -> None:
        """Queue nothing: the goodbye of stdio is the end of the stream."""

    def data_to_send(self) -> bytes:
        """Hand out all lines that are due."""
        data = b"".join(self._due)
        self._due.clear()
        return data

    @property
    def is_closed(self) -> bool:
        """Say whether the stream has ended."""
        return self._is_closed

    def _finish(self, end: bytes) -> bytes:
        """Return the line that ends with these bytes; nothing, if it was over the cap."""
        if not self._begun and not self._is_draining and len(end) <= self._bytes_max:
            # Most lines are whole in one read; these are copied by the split only.
            return end.removesuffix(b"\r")
        self._add(end)
        if self._begun.endswith(b"\r"):
            del self._begun[-1]
        # The one copy of a big message: the buffer into bytes.
        line = bytes(self._begun)
        self._begun.clear()
        self._is_draining = False
        return line

    def _add(self, piece: bytes) -> None:
        if self._is_draining:
            return
        if len(self._begun) + len(piece) > self._bytes_max:
            # What has come by now, wherever the reads were cut: one byte more than fits.
            head_bytes = min(HEAD_BYTES, self._bytes_max + 1)
            begun = self._begun[:head_bytes] + piece[:head_bytes]
            self._gaps.append(bytes(begun[:head_bytes]))
            self._begun.clear()
            self._is_draining = True
        else:
            self._begun += piece
