"""Signals, in a process of their own: the first word to stop, and the second."""

import json
import signal
import sys
from subprocess import PIPE, Popen

import pytest

from tests.fakes.children import CHECKOUT


WAIT_S = 15

HEARS = """
import sys, anyio
sys.path.insert(0, sys.argv[1])
from codexdrv.logs import configure_logs
from supervisor.signals import Signals

async def main():
    signals = Signals(echo_s=float(sys.argv[2]))
    if sys.argv[3]:
        signals.server_pid = lambda: int(sys.argv[3])
    async with anyio.create_task_group() as tasks:
        await tasks.start(signals.hear)
        print("ready", flush=True)
        await signals.stop.wait()
        print("stopping", flush=True)
        if len(sys.argv) > 4:
            # Whatever holds the loop up.
            input()
            return
        await anyio.sleep_forever()

configure_logs()
anyio.run(main)
"""


def start(echo_s, *arguments):
    command = [sys.executable, "-c", HEARS, str(CHECKOUT), str(echo_s), *arguments]
    return Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)


def stop(process, number):
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == "stopping\n"


def lines_of(process):
    _, said = process.communicate(timeout=WAIT_S)
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("pid", ["", "4711"])
def test_a_second_signal_ends_it_by_that_and_names_the_server_that_is_left(number, pid):
    with start(0, pid) as process:
        stop(process, signal.SIGTERM)
        process.send_signal(number)
        first, second = lines_of(process)
    assert process.returncode == -number
    assert (first["event"], first["signal"]) == ("life.stopping", "SIGTERM")
    assert (second["event"], second["level"]) == ("life.cut_short", "warning")
    assert second["signal"] == signal.Signals(number).name
    assert second.get("leaves_server") == (int(pid) if pid else None)


def test_a_second_signal_ends_it_also_when_the_loop_stands_still():
    with start(0, "", "stuck") as process:
        stop(process, signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert [line["event"] for line in lines_of(process)] == ["life.stopping", "life.cut_short"]
    assert process.returncode == -signal.SIGINT


def test_a_second_signal_ends_it_also_when_nobody_reads_its_log():
    with start(0, "") as process:
        stop(process, signal.SIGINT)
        process.stderr.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == -signal.SIGINT


def test_one_signal_that_comes_twice_is_one():
    """As with `timeout`, or a wrapper that hands on what the terminal sent to both."""
    with start(WAIT_S, "", "stuck") as process:
        stop(process, signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.stdin.write("\n")
        assert [line["event"] for line in lines_of(process)] == ["life.stopping"]
    assert process.returncode == 0
