"""What a thread may do belongs to the server: what of it a resume keeps, and what it does not.

codexdrv resumes without an override and compares nothing; `docs/wire-facts.md` says what follows.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from codexdrv.demo.script import RunCommand
from tests.acceptance.binaries import by_version
from tests.acceptance.kit import Message, Rig, Said, Truth
from tests.acceptance.machine import Machine
from tests.acceptance.scenes import FIRST, agreed


LOOSE = 'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
"""The configuration of a home that lets its threads do everything unasked."""


class May(NamedTuple):
    """What a thread may do."""

    approval: str
    sandbox: str


ALL = May("never", "dangerFullAccess")

KEPT = {
    May("untrusted", "read-only"): {
        "0.144.5": ALL,
        "0.163.0": May("untrusted", "readOnly"),
    },
    May("on-request", "workspace-write"): {
        "0.144.5": ALL,
        "0.163.0": May("on-request", "dangerFullAccess"),
    },
}
"""How a thread was started, and what it may do after a restart in a loose home."""


def may(answer: Message) -> May:
    return May(answer["approvalPolicy"], answer["sandbox"]["type"])


def loosen(rig: Rig) -> None:
    """Give the home its loose configuration, and a server that has read it."""
    rig.server.stop()
    config = rig.home / "config.toml"
    config.write_text(LOOSE + config.read_text())
    rig.server.start()


def start_thread(rig: Rig, truth: Truth, wanted: May) -> str:
    """Start a thread that may do what is wanted, and use it."""
    started = truth.call(
        "thread/start", cwd=str(rig.cwd), approvalPolicy=wanted.approval, sandbox=wanted.sandbox
    )
    thread = str(started["thread"]["id"])
    truth.wait_for_turn(truth.start_turn(thread, FIRST.text, client_id=FIRST.client_id))
    return thread


@pytest.mark.field_report("openai/codex#25590")
@pytest.mark.parametrize("wanted", KEPT, ids="-".join)
def test_a_thread_that_a_new_server_resumes_may_do_what_its_home_says(
    rig: Rig, machine: Machine, version: str, wanted: May
):
    loosen(rig)
    thread = start_thread(rig, rig.truth(), wanted)
    rig.server.stop()
    rig.server.start()
    machine.start()
    machine.deliver("m1", thread, "hello", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    # It is loaded: this resume says how the driver's own one has left it.
    assert may(rig.truth().resume(thread)) == by_version(KEPT[wanted], version)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that no workspace has in it; each has /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.mark.field_report("openai/codex#25590")
@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_it_may_do_it_does_unasked(
    rig: Rig, machine: Machine, outside: Path, is_restarted: bool
):
    loosen(rig)
    rig.model.script["make it"] = RunCommand(f"touch {outside}/made", then="done")
    wanted = May("on-request", "workspace-write")
    thread = start_thread(rig, rig.truth(), wanted)
    if is_restarted:
        rig.server.stop()
        rig.server.start()
    machine.start()
    machine.deliver("m1", thread, "make it", "--wait", "surfaced")
    machine.wait_for_outcome("m1")
    # While it stays loaded, the thread keeps what it was started with.
    is_as_started = may(rig.truth().resume(thread)) == May("on-request", "workspaceWrite")
    assert is_as_started is not is_restarted
    assert (outside / "made").exists() is is_restarted
    assert agreed(rig, thread) == [FIRST, Said("m1", "make it")]
