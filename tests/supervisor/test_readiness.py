"""What the service manager hears, on a socket in its place."""

import os
import socket
import time
import uuid
from contextlib import contextmanager

import pytest

from supervisor.readiness import STATUS_CHARACTERS_MAX, Readiness


@contextmanager
def manager(address):
    """Listen as a service manager does; `address` as in NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        listener.setblocking(False)
        yield listener


def heard(listener):
    """What was said, a dict a datagram."""
    datagrams = []
    while True:
        try:
            datagrams.append(listener.recv(65536).decode())
        except BlockingIOError:
            return [dict(line.split("=", 1) for line in each.split("\n")) for each in datagrams]


@pytest.fixture(params=["file", "abstract"])
def address(request, tmp_path):
    return str(tmp_path / "notify") if request.param == "file" else f"@codexdrv-{uuid.uuid4()}"


def test_each_word_is_one_datagram(address):
    with manager(address) as listener:
        readiness = Readiness({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "60000000"})
        readiness.ready("connected")
        readiness.status("3 deliveries wait")
        readiness.watchdog()
        readiness.stopping()
        assert heard(listener) == [
            {"READY": "1", "STATUS": "connected"},
            {"STATUS": "3 deliveries wait"},
            {"WATCHDOG": "1"},
            {"STOPPING": "1", "STATUS": "Stopping"},
        ]


def test_a_stop_that_takes_longer_than_the_unit_allows_says_so(address):
    with manager(address) as listener:
        Readiness({"NOTIFY_SOCKET": address}).stopping(takes_s=67.5)
        (said,) = heard(listener)
    assert said["EXTEND_TIMEOUT_USEC"] == "67500000"


def test_a_reload_says_when_it_began_on_the_clock_that_the_manager_reads(address):
    with manager(address) as listener:
        readiness = Readiness({"NOTIFY_SOCKET": address})
        before = time.monotonic_ns() // 1000
        readiness.reloading()
        (said,) = heard(listener)
    assert said["RELOADING"] == "1"
    assert before <= int(said["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000


def test_a_path_that_is_too_long_for_a_socket_is_reached(tmp_path):
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.setblocking(False)
        opened = os.open(directory, os.O_PATH)
        listener.bind(f"/proc/self/fd/{opened}/notify")
        os.close(opened)
        Readiness({"NOTIFY_SOCKET": f"{directory}/notify"}).status("here")
        assert heard(listener) == [{"STATUS": "here"}]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": ""},
        {"NOTIFY_SOCKET": "@"},
        {"NOTIFY_SOCKET": "vsock:2:1234"},
        {"NOTIFY_SOCKET": "relative"},
        {"NOTIFY_SOCKET": "/nonexistent/notify"},
    ],
)
def test_without_a_manager_nothing_is_said_and_nothing_happens(environment):
    readiness = Readiness({"WATCHDOG_USEC": "1000000", **environment})
    readiness.ready("x")
    readiness.status("x")
    readiness.reloading()
    readiness.watchdog()
    readiness.stopping()


@pytest.mark.timeout(5)
def test_a_manager_that_does_not_read_holds_nobody_up(tmp_path):
    address = str(tmp_path / "notify")
    with manager(address) as listener:
        readiness = Readiness({"NOTIFY_SOCKET": address})
        for number in range(500):
            readiness.status(f"{number}")
        assert len(heard(listener)) < 500


def test_a_word_that_did_not_get_through_goes_with_the_next(tmp_path):
    address = str(tmp_path / "notify")
    readiness = Readiness({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "60000000"})
    readiness.reloading()
    readiness.ready("old")
    readiness.status("new")
    with manager(address) as listener:
        readiness.watchdog()
        readiness.watchdog()
        assert heard(listener) == [
            {"READY": "1", "STATUS": "new", "WATCHDOG": "1"},
            {"WATCHDOG": "1"},
        ]


def test_a_status_is_one_short_line_whatever_it_says(address):
    with manager(address) as listener:
        readiness = Readiness({"NOTIFY_SOCKET": address})
        readiness.status("one\nREADY=1\r\ttwo \udcff")
        readiness.status("x" * 10_000)
        odd, long = heard(listener)
    assert odd == {"STATUS": "one READY=1 two ?"}
    assert len(long["STATUS"]) == STATUS_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({"WATCHDOG_USEC": "60000000"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_answered_twice_as_often_as_asked_if_we_are_asked(environment, interval_s):
    assert Readiness(environment).watchdog_interval_s == interval_s


def test_nobody_who_does_not_ask_hears_the_watchdog(address):
    with manager(address) as listener:
        Readiness({"NOTIFY_SOCKET": address}).watchdog()
        assert heard(listener) == []
