"""What every framing can do: bytes in, messages out, no I/O (sans-IO, as h11 and websockets)."""

from typing import ClassVar, Protocol


MESSAGE_BYTES_MAX = 33_554_432
"""32 MiB: five times the largest input, and six copies of it still fit in 200 MiB. Longer answers
exist (133 MiB was seen), but history is read in pages, so that none of them is one we need."""


class Framing(Protocol):
    """Cut a byte stream into messages and back; one object a connection."""

    noise_frames_max: ClassVar[int] = 0
    """How many frames that are no messages may come before the first one that is."""

    has_ping: ClassVar[bool] = True
    """Whether the framing itself can ask the peer for a sign of life."""

    def receive_data(self, data: bytes) -> list[bytes]:
        """Take bytes as they came; return the messages that are now whole, in order.

        Raises:
            MalformedFrame: the peer broke the framing; the connection is of no more use.
            FrameTooBig: a message over the cap is arriving.
        """

    def receive_eof(self) -> None:
        """Take the end of the stream.

        Raises:
            MalformedFrame: the stream ended inside a message.
        """

    def take_gaps(self) -> list[bytes]:
        """Return how each message began that was over the cap and dropped since last asked.

        Only where the connection goes on behind it: else `receive_data` raises FrameTooBig.
        """

    def send_message(self, message: bytes) -> None:
        """Queue one message; `data_to_send` hands it out."""

    def send_ping(self) -> None:
        """Queue something that the peer answers, where the framing has such a thing."""

    def send_close(self) -> None:
        """Queue the framing's own goodbye, where it has one."""

    def data_to_send(self) -> bytes:
        """Hand out all bytes that are due, control replies included; empty when there are none."""

    @property
    def is_closed(self) -> bool:
        """Say whether the peer has said goodbye: nothing more will come."""
