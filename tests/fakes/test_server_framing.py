"""The server's side of WebSocket is what our client's side takes for a server."""

import pytest
from websockets.frames import CloseCode, Frame, Opcode

from codexdrv.errors import MalformedFrame
from codexdrv.wire.websocket import FRAGMENT_BYTES_MAX, WebSocketFraming
from tests.fakes.server_framing import WebSocketServerFraming


def carry(sender, receiver, size=65_536):
    """Bring what is due from one to the other in reads; return the messages."""
    data, messages = sender.data_to_send(), []
    for start in range(0, len(data), size):
        messages += receiver.receive_data(data[start : start + size])
    return messages


def connect():
    client, server = WebSocketFraming(), WebSocketServerFraming()
    assert not server.is_greeted
    carry(client, server)
    assert server.is_greeted
    carry(server, client)
    return client, server


def test_messages_go_both_ways():
    client, server = connect()
    for message in (b"", b"a", "é日".encode()):
        client.send_message(message)
        server.send_message(message)
    assert carry(client, server) == [b"", b"a", "é日".encode()]
    assert carry(server, client) == [b"", b"a", "é日".encode()]


def test_byte_by_byte_is_the_same():
    client, server = WebSocketFraming(), WebSocketServerFraming()
    client.send_message(b"held back")
    carry(client, server, size=1)
    carry(server, client, size=1)
    assert carry(client, server, size=1) == [b"held back"]


def test_fragments_are_one_message():
    client, server = connect()
    message = b"x" * (2 * FRAGMENT_BYTES_MAX + 1)
    client.send_message(message)
    assert carry(client, server) == [message]


def test_any_size_goes_out_in_one_frame():
    _, server = connect()
    message = b"x" * (2 * FRAGMENT_BYTES_MAX)
    server.send_message(message)
    assert server.data_to_send() == Frame(Opcode.TEXT, message).serialize(mask=False)


def test_pings_are_answered_by_both_sides():
    client, server = connect()
    client.send_ping()
    assert carry(client, server) == []
    assert carry(server, client) == []
    server.send_ping()
    assert carry(server, client) == []
    assert server.pongs == 0
    assert carry(client, server) == []
    assert server.pongs == 1


def test_a_goodbye_of_the_client_says_its_code():
    client, server = connect()
    client.send_close()
    assert carry(client, server) == []
    assert server.is_closed
    assert server.close_code == CloseCode.NORMAL_CLOSURE


def test_a_goodbye_of_the_server_closes_the_client():
    client, server = connect()
    server.send_close()
    carry(server, client)
    assert client.is_closed
    assert not server.is_closed


def test_binary_is_dropped_without_a_word():
    _, server = connect()
    assert server.receive_data(Frame(Opcode.BINARY, b"b").serialize(mask=True)) == []
    assert server.data_to_send() == b""


@pytest.mark.parametrize("data", [Frame(Opcode.TEXT, b"a").serialize(mask=False), b"\xc1\x80mask"])
def test_a_breach_is_malformed(data):
    _, server = connect()
    with pytest.raises(MalformedFrame):
        server.receive_data(data)


def test_what_is_no_upgrade_is_malformed():
    with pytest.raises(MalformedFrame):
        WebSocketServerFraming().receive_data(b'{"id":1}\r\n')


def test_the_end_of_the_stream_is_one_also_inside_a_message():
    client, server = connect()
    client.send_message(b"whole")
    assert server.receive_data(client.data_to_send()[:-1]) == []
    server.receive_eof()
    assert server.is_closed
