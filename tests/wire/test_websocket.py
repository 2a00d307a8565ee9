import logging

import pytest
from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from codexdrv.errors import FrameTooBig, LinkLost, MalformedFrame
from codexdrv.wire.framing import MESSAGE_BYTES_MAX
from codexdrv.wire.websocket import FRAGMENT_BYTES_MAX, WebSocketFraming


READ_BYTES = 65_536


class Peer:
    """The other end: a sans-IO server that has read the request for the upgrade."""

    def __init__(self, framing):
        self.framing = framing
        self.server = ServerProtocol(max_size=None)
        [self.request] = self.hear()

    def hear(self):
        """Read what the framing has to send; return the events."""
        if data := self.framing.data_to_send():
            self.server.receive_data(data)
        return self.server.events_received()

    def accept(self):
        self.server.send_response(self.server.accept(self.request))

    def say(self):
        return b"".join(self.server.data_to_send())


def connect(**limits):
    framing = WebSocketFraming(**limits)
    peer = Peer(framing)
    peer.accept()
    assert framing.receive_data(peer.say()) == []
    return framing, peer


def frame(opcode, data=b"", *, fin=True):
    return Frame(opcode, data, fin).serialize(mask=False)


def feed(framing, data, size=READ_BYTES):
    """Bring data in reads; return all messages."""
    messages = []
    for start in range(0, len(data), size):
        messages += framing.receive_data(data[start : start + size])
    return messages


def texts(events):
    return [bytes(event.data) for event in events if event.opcode is Opcode.TEXT]


def transcript(peer):
    peer.accept()
    peer.server.send_text("first é".encode())
    second = "second 日".encode()
    peer.server.send_text(second[:3], fin=False)
    peer.server.send_ping(b"are you there")
    peer.server.send_continuation(second[3:8], fin=False)  # ends inside the letter
    peer.server.send_continuation(second[8:], fin=True)
    peer.server.send_pong(b"")
    peer.server.send_text(b"x" * 130)
    peer.server.send_close(CloseCode.GOING_AWAY, "bye")
    return peer.say()


TRANSCRIBED = ["first é".encode(), "second 日".encode(), b"x" * 130]
TRANSCRIPT_BYTES = len(transcript(Peer(WebSocketFraming())))


@pytest.mark.parametrize("cut", range(TRANSCRIPT_BYTES + 1))
def test_a_cut_anywhere_gives_the_same_messages(cut):
    framing = WebSocketFraming()
    peer = Peer(framing)
    data = transcript(peer)
    assert len(data) == TRANSCRIPT_BYTES
    assert framing.receive_data(data[:cut]) + framing.receive_data(data[cut:]) == TRANSCRIBED
    assert framing.is_closed
    assert [event.opcode for event in peer.hear()] == [Opcode.PONG, Opcode.CLOSE]


def test_byte_by_byte_gives_the_same_messages():
    framing = WebSocketFraming()
    peer = Peer(framing)
    assert feed(framing, transcript(peer), size=1) == TRANSCRIBED
    assert framing.is_closed
    assert [event.opcode for event in peer.hear()] == [Opcode.PONG, Opcode.CLOSE]


def test_messages_are_bytes_and_an_empty_one_is_a_message():
    framing, _ = connect()
    messages = framing.receive_data(frame(Opcode.TEXT) + frame(Opcode.TEXT, b"a"))
    assert messages == [b"", b"a"]
    assert {type(message) for message in messages} == {bytes}


# The upgrade


@pytest.mark.field_report("openai/codex#23572")
def test_the_request_for_the_upgrade_is_due_from_the_start_and_offers_no_extension():
    peer = Peer(WebSocketFraming())
    assert isinstance(peer.request, Request)
    assert peer.request.path == "/"
    assert peer.request.headers["Host"] == "localhost"
    assert "Sec-WebSocket-Extensions" not in peer.request.headers


def test_messages_are_held_back_until_the_upgrade_is_answered():
    framing = WebSocketFraming()
    framing.send_message(b"one")
    peer = Peer(framing)
    framing.send_message(b"two")
    framing.send_ping()
    assert framing.data_to_send() == b""
    peer.accept()
    answer = peer.say()
    framing.receive_data(answer[:-1])
    assert framing.data_to_send() == b""
    framing.receive_data(answer[-1:])
    framing.send_message(b"three")
    assert texts(peer.hear()) == [b"one", b"two", b"three"]


def test_a_close_before_the_upgrade_goes_out_behind_the_messages():
    framing = WebSocketFraming()
    peer = Peer(framing)
    framing.send_message(b"one")
    framing.send_close()
    assert framing.data_to_send() == b""
    peer.accept()
    framing.receive_data(peer.say())
    assert [event.opcode for event in peer.hear()] == [Opcode.TEXT, Opcode.CLOSE]


def test_messages_held_back_are_dropped_when_a_close_comes_with_the_upgrade():
    framing = WebSocketFraming()
    peer = Peer(framing)
    framing.send_message(b"one")
    peer.accept()
    peer.server.send_close(CloseCode.GOING_AWAY)
    assert framing.receive_data(peer.say()) == []
    assert framing.is_closed
    assert [event.opcode for event in peer.hear()] == [Opcode.CLOSE]


@pytest.mark.parametrize("status", [400, 404, 503])
def test_a_refused_upgrade_names_the_status(status):
    framing = WebSocketFraming()
    framing.send_message(b"never sent")
    peer = Peer(framing)
    peer.server.send_response(peer.server.reject(status, "go away"))
    with pytest.raises(MalformedFrame, match=str(status)):
        framing.receive_data(peer.say())
    assert framing.data_to_send() == b""
    with pytest.raises(LinkLost):
        framing.send_message(b"too late")


def test_a_refusal_whose_body_ends_with_the_stream_names_the_status():
    framing = WebSocketFraming()
    assert framing.receive_data(b"HTTP/1.1 404 Not Found\r\n\r\nno such") == []
    with pytest.raises(MalformedFrame, match="404"):
        framing.receive_eof()
    assert framing.is_closed


@pytest.mark.parametrize(
    "answer",
    [
        b'{"id":1,"result":{}}\r\n',
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 101 OK\r\nConnection: " + b"x" * 5000 + b"\r\n\r\n",
        b"x" * 100_000,
    ],
)
def test_an_answer_that_is_no_upgrade_is_malformed_in_a_short_sentence(answer):
    framing = WebSocketFraming()
    with pytest.raises(MalformedFrame, match="upgrade") as caught:
        framing.receive_data(answer)
    assert len(caught.value.message) < 200


def test_an_extension_that_we_did_not_offer_is_malformed():
    framing = WebSocketFraming()
    peer = Peer(framing)
    response = peer.server.accept(peer.request)
    response.headers["Sec-WebSocket-Extensions"] = "permessage-deflate"
    peer.server.send_response(response)
    with pytest.raises(MalformedFrame, match="upgrade"):
        framing.receive_data(peer.say())


# Out


@pytest.mark.field_report("openai/codex#23572")
def test_what_we_send_is_masked_text():
    framing, peer = connect()
    framing.send_message("größe".encode())
    data = framing.data_to_send()
    assert data[0] == 0x80 | Opcode.TEXT
    assert data[1] & 0x80
    peer.server.receive_data(data)
    assert texts(peer.server.events_received()) == ["größe".encode()]
    assert framing.data_to_send() == b""


@pytest.mark.parametrize(
    ("size", "fragments"),
    [
        (0, [0]),
        (FRAGMENT_BYTES_MAX, [FRAGMENT_BYTES_MAX]),
        (FRAGMENT_BYTES_MAX + 1, [FRAGMENT_BYTES_MAX, 1]),
        (2 * FRAGMENT_BYTES_MAX, [FRAGMENT_BYTES_MAX] * 2),
        (6 * FRAGMENT_BYTES_MAX + 5, [FRAGMENT_BYTES_MAX] * 6 + [5]),
    ],
)
def test_a_big_message_goes_out_in_fragments(size, fragments):
    framing, peer = connect()
    message = bytes(range(251)) * (size // 251 + 1)
    framing.send_message(message[:size])
    events = peer.hear()
    assert [len(event.data) for event in events] == fragments
    assert [event.opcode for event in events[1:]] == [Opcode.CONT] * (len(fragments) - 1)
    assert [event.fin for event in events] == [False] * (len(fragments) - 1) + [True]
    assert b"".join(event.data for event in events) == message[:size]


def test_our_ping_is_answered_and_the_answer_is_no_message():
    framing, peer = connect()
    framing.send_ping()
    assert [event.opcode for event in peer.hear()] == [Opcode.PING]
    assert framing.receive_data(peer.say()) == []


def test_a_ping_is_answered_with_its_payload():
    framing, peer = connect()
    assert framing.receive_data(frame(Opcode.PING, b"42")) == []
    [pong] = peer.hear()
    assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"42")


def test_nothing_is_logged_whatever_the_log_level(caplog):
    with caplog.at_level(logging.DEBUG):
        framing, _ = connect()
        framing.send_message(b"secret")
        framing.receive_data(frame(Opcode.TEXT, b"secret"))
    assert [record for record in caplog.records if "secret" in record.getMessage()] == []
    assert {record.name for record in caplog.records} <= {"websockets.server"}


# Over the cap


@pytest.mark.parametrize("size", [999, 1000])
def test_a_message_up_to_the_cap_passes(size):
    framing, _ = connect(message_bytes_max=1000)
    assert framing.receive_data(frame(Opcode.TEXT, b"x" * size)) == [b"x" * size]


@pytest.mark.parametrize(
    "data",
    [
        frame(Opcode.TEXT, b"x" * 1001),
        frame(Opcode.TEXT, b"x" * 1001)[:4],
        frame(Opcode.TEXT, b"x" * 600, fin=False) + frame(Opcode.CONT, b"x" * 401),
        b"".join(
            frame(Opcode.TEXT if n == 0 else Opcode.CONT, b"x", fin=False) for n in range(1001)
        ),
    ],
    ids=["whole", "header", "fragments", "tiny fragments"],
)
def test_a_message_over_the_cap_is_refused_while_it_arrives(data):
    framing, peer = connect(message_bytes_max=1000)
    with pytest.raises(FrameTooBig, match="1000"):
        framing.receive_data(data)
    [close] = peer.hear()
    assert close.opcode is Opcode.CLOSE
    assert Close.parse(close.data).code == CloseCode.MESSAGE_TOO_BIG
    with pytest.raises(LinkLost):
        framing.send_message(b"too late")


@pytest.mark.parametrize("size", [MESSAGE_BYTES_MAX - 1, MESSAGE_BYTES_MAX])
def test_the_default_cap_is_32_mib(size):
    framing, _ = connect()
    [message] = feed(framing, frame(Opcode.TEXT, b"x" * size))
    assert len(message) == size


def test_one_byte_over_the_default_cap_is_too_big():
    framing, _ = connect()
    with pytest.raises(FrameTooBig):
        feed(framing, frame(Opcode.TEXT, b"x" * (MESSAGE_BYTES_MAX + 1)))


# Breaches


BINARY = frame(Opcode.BINARY, b"b")
BREACHES = {
    "binary": BINARY,
    "binary fragment": frame(Opcode.BINARY, b"b", fin=False),
    "binary and goodbye": BINARY + frame(Opcode.CLOSE, b"\x03\xe8"),
    "masked": Frame(Opcode.TEXT, b"a").serialize(mask=True),
    "reserved bit": b"\xc1\x01a",
    "unknown opcode": b"\x83\x01a",
    "continuation of nothing": frame(Opcode.CONT, b"a"),
    "text inside text": frame(Opcode.TEXT, b"a", fin=False) + frame(Opcode.TEXT, b"a"),
    "goodbye inside text": frame(Opcode.TEXT, b"a", fin=False) + frame(Opcode.CLOSE),
    "close code of nothing": frame(Opcode.CLOSE, b"\x00\x01"),
}


@pytest.mark.parametrize("breach", BREACHES.values(), ids=BREACHES)
def test_a_breach_is_malformed_also_when_asked_again_and_a_close_is_due(breach):
    framing, peer = connect()
    with pytest.raises(MalformedFrame) as first:
        framing.receive_data(breach)
    with pytest.raises(MalformedFrame) as second:
        framing.receive_data(frame(Opcode.TEXT, b"a"))
    assert first.value is second.value
    assert [event.opcode for event in peer.hear()] == [Opcode.CLOSE]


@pytest.mark.parametrize("breach", BREACHES.values(), ids=BREACHES)
def test_messages_before_a_breach_come_first_and_the_next_call_raises(breach):
    framing, _ = connect()
    assert framing.receive_data(frame(Opcode.TEXT, b"a") + breach) == [b"a"]
    with pytest.raises(MalformedFrame):
        framing.receive_data(b"")


def test_a_breach_behind_messages_is_told_at_the_end_of_the_stream():
    framing, _ = connect()
    assert framing.receive_data(frame(Opcode.TEXT, b"a") + BINARY) == [b"a"]
    with pytest.raises(MalformedFrame, match="binary"):
        framing.receive_eof()
    assert framing.is_closed


# Ends


def test_a_goodbye_is_echoed_and_closes():
    framing, peer = connect()
    peer.server.send_close(CloseCode.GOING_AWAY, "bye")
    assert framing.receive_data(peer.say()) == []
    assert framing.is_closed
    [echo] = peer.hear()
    assert Close.parse(echo.data) == Close(CloseCode.GOING_AWAY, "bye")
    framing.send_close()
    framing.send_ping()
    assert framing.data_to_send() == b""
    with pytest.raises(LinkLost) as caught:
        framing.send_message(b"too late")
    assert not caught.value.maybe_written
    framing.receive_eof()


def test_our_goodbye_is_1000_once_and_messages_still_come_until_the_echo():
    framing, peer = connect()
    framing.send_close()
    framing.send_close()
    with pytest.raises(LinkLost):
        framing.send_message(b"too late")
    assert framing.receive_data(frame(Opcode.TEXT, b"crossed")) == [b"crossed"]
    assert not framing.is_closed
    [close] = peer.hear()
    assert Close.parse(close.data).code == CloseCode.NORMAL_CLOSURE
    framing.receive_data(peer.say())
    assert framing.is_closed
    framing.receive_eof()
    assert framing.data_to_send() == b""
    assert peer.server.state is State.CLOSING


def test_the_end_of_the_stream_between_messages_only_closes():
    framing, _ = connect()
    framing.receive_data(frame(Opcode.TEXT, b"a"))
    assert not framing.is_closed
    framing.receive_eof()
    framing.receive_eof()
    assert framing.is_closed
    with pytest.raises(LinkLost):
        framing.send_message(b"too late")


def test_the_end_of_the_stream_after_our_goodbye_needs_no_echo():
    framing, _ = connect()
    framing.send_close()
    framing.receive_eof()
    assert framing.is_closed


def test_the_end_of_the_stream_before_any_answer_only_closes():
    framing = WebSocketFraming()
    framing.receive_eof()
    assert framing.is_closed


def test_the_end_of_the_stream_inside_the_upgrade_is_malformed():
    framing = WebSocketFraming()
    framing.receive_data(b"HTTP/1.1 101 Switching")
    with pytest.raises(MalformedFrame, match="ended inside"):
        framing.receive_eof()
    assert framing.is_closed


FRAGMENTED = (
    frame(Opcode.TEXT, b"x" * 130, fin=False) + frame(Opcode.PING, b"p") + frame(Opcode.CONT, b"yz")
)


@pytest.mark.parametrize("size", range(1, len(FRAGMENTED)))
def test_the_end_of_the_stream_inside_a_message_is_malformed(size):
    framing, _ = connect()
    assert framing.receive_data(FRAGMENTED[:size]) == []
    with pytest.raises(MalformedFrame, match="ended inside a message"):
        framing.receive_eof()
    assert framing.is_closed
