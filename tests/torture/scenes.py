"""The scenes that take too long for `make test`, each with what came of it in one line.

Those that tests/acceptance shows in a short form are shown here as they stand in WIRE-FACTS; the
others are the acceptance tests themselves.
"""

import contextlib
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from codexdrv.demo.script import Many
from codexdrv.rules.lifecycle import WhenBusy
from tests.acceptance import test_proof, test_restarts
from tests.acceptance.binaries import by_version
from tests.acceptance.kit import Message, Rig, Said
from tests.acceptance.machine import Machine
from tests.acceptance.proxy import Proxy
from tests.acceptance.scenes import ASK, FIRST, agreed, asking_turn, used_thread
from tests.torture.board import wait
from tests.torture.drill import torture
from tests.torture.judge import Count
from tests.torture.plan import Fault, Input, Moment, Shot, Turn, Way
from tests.torture.report import count_of


CUTS = 100
BUSY_CUTS = CUTS // 3
THREADS = 8

LOCKED_S = 20.0
"""The server begins the turn when it is tired of waiting for the lock: after 10 s on 0.144.5."""

APPROVAL_S = 30.0
LOOK_S = 0.05

ITEMS = 28_000
MANY_S = 300.0
TAIL = 10
LOOK_BYTES_MAX = 200 * 1024


class Scene(NamedTuple):
    """One scene: play it, and say what came of it. Raises whatever is not as it should be."""

    name: str
    play: Callable[[Path, str, str], str]


def cut(root: Path, binary: str, version: str) -> str:
    """Write a `turn/start` and close its connection at once."""
    words = []
    for name, count, burners in (("calm", CUTS - BUSY_CUTS, 0), ("busy", BUSY_CUTS, 4)):
        place = root / name
        place.mkdir()
        inputs = [_cut_input(number) for number in range(count)]
        with cpus_busy(burners):
            toll = torture(
                place, binary=binary, version=version, way=Way.PROXY, inputs=inputs, seed=1
            )
        counts, cuts = count_of(toll), toll.faults[Fault.REQUEST_CUT]
        assert not toll.wrong, "\n".join(toll.stories)
        assert (counts[Count.SURFACED], cuts) == (count, count), counts
        words.append(f"{cuts} cuts ({name}): each there once, {toll.sent_again} sent again")
    return "; ".join(words)


def lock(rig: Rig, machine: Machine) -> str:
    """Lock the database: the start is answered, and the thread says that it is idle."""
    thread = used_thread(rig, rig.truth())
    machine.start()
    (database,) = rig.home.glob("state_*.sqlite")
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        machine.deliver("m1", thread, "hello")
        machine.wait_for("m1", lambda found: found.answered_turn is not None)
        pending_s = _stays_pending(machine, LOCKED_S)
        other.execute("ROLLBACK")
        machine.wait_for_outcome("m1")
    assert machine.standing("m1").attempts == 1
    assert agreed(rig, thread) == [FIRST, Said("m1", "hello")]
    return f"answered, then {pending_s:.1f} s of nothing: pending all the while; one copy"


def await_approval(rig: Rig, machine: Machine) -> str:
    """Steer a turn that waits for an approval."""
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd, approval_policy="untrusted")
    request = asking_turn(rig, truth, thread)
    machine.start()
    machine.deliver("m1", thread, "also")
    machine.wait_for("m1", lambda found: found.answered_turn is not None)
    pending_s = _stays_pending(machine, APPROVAL_S)
    assert pending_s >= APPROVAL_S
    truth.answer(request, {"decision": "accept"})
    machine.wait_for_outcome("m1")
    assert machine.standing("m1").attempts == 1
    assert agreed(rig, thread) == [ASK, Said("m1", "also")]
    return f"{pending_s:.0f} s pending, not sent again; one copy after the approval"


def _stays_pending(machine: Machine, seconds: float) -> float:
    """Look for so long whether it is still pending; say for how long it was."""
    began = time.monotonic()
    while (past_s := time.monotonic() - began) < seconds:
        standing = machine.standing("m1")
        assert standing.attempts == 1
        if standing.phase != "pending":
            assert standing.phase == "surfaced", standing
            break
        time.sleep(LOOK_S)
    return past_s


def _cut_input(number: int) -> Input:
    shot = Shot(Fault.REQUEST_CUT, Moment.ADMITTED, 0.0, 0.0)
    thread = number % THREADS
    # It waits for the end of a turn, so that each is a start.
    return Input(
        f"m{number}", thread, f"t{thread} input {number}", Turn.SHORT, WhenBusy.WAIT, False, shot
    )


@contextlib.contextmanager
def cpus_busy(burners: int) -> Iterator[None]:
    """Run so many processes that do nothing but burn."""
    command = [sys.executable, "-c", "while True: pass"]
    children = [subprocess.Popen(command) for _ in range(burners)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def _on_a_rig(play: Callable[..., str | None], *names: str) -> Callable[[Path, str, str], str]:
    """Give a scene a rig and a machine, and more by name."""

    def play_there(root: Path, binary: str, version: str) -> str:
        with Rig(root, binary=binary) as rig, Machine(rig) as machine:
            more = {"version": version}
            said = play(rig, machine, **{name: more[name] for name in names})
        return said or "as it should be"

    return play_there


def _full_disk(root: Path, binary: str, version: str) -> str:
    test_proof.test_on_a_full_disk_a_message_is_in_the_thread_and_said_not_to_be_stored(
        root, binary
    )
    return "surfaced, not_stored, and said so"


LISTS_ITEMS = {"0.144.5": False, "0.163.0": True}
"""Where it does not, a page holds whole turns, and so what the longest of the newest holds."""


def long_thread(rig: Rig, machine: Machine, version: str) -> str:
    """Cut the request of an input in a very long thread, and count what is read to settle it."""
    rig.model.script["many"] = Many(ITEMS)
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)
    truth.start_turn(thread, "many")
    # Each of its items is news: to look through all of them at each would take for ever.
    assert wait(lambda: any(map(_ends_turn, truth.seen[-TAIL:])), MANY_S)
    truth.wait_for_turn(truth.start_turn(thread, FIRST.text, client_id=FIRST.client_id))

    def cut_first(message: Message) -> Message:
        if message.get("method") == "turn/start" and machine.standing("m1").attempts == 1:
            proxy.said_bytes = 0
            proxy.cut()
        return message

    with Proxy(rig.root / "proxy.sock", rig.socket_path, cut_first) as proxy:
        machine.go_through(proxy.path)
        machine.start()
        machine.deliver("m1", thread, "hello")
        machine.wait_for_outcome("m1")
        read_bytes = proxy.said_bytes
    assert read_bytes < LOOK_BYTES_MAX or not by_version(LISTS_ITEMS, version), read_bytes
    return f"in a thread of {ITEMS} items, {read_bytes / 1024:.0f} KiB were read to settle it"


def _ends_turn(message: Message) -> bool:
    return message["method"] == "turn/completed"


SCENES = (
    Scene("a start written, its connection closed at once", cut),
    Scene("the database locked", _on_a_rig(lock)),
    Scene("a steer while an approval waits", _on_a_rig(await_approval)),
    Scene(
        "a start that a compaction swallows",
        _on_a_rig(
            test_proof.test_a_start_that_a_compaction_swallowed_is_delivered_after_it_once,
            "version",
        ),
    ),
    Scene(
        "a steer whose turn is interrupted",
        _on_a_rig(
            test_restarts.test_a_steer_that_its_turn_did_not_take_is_delivered_again_once,
        ),
    ),
    Scene(
        "a revert while the supervisor is down",
        _on_a_rig(
            test_proof.test_a_message_that_was_reverted_while_we_were_down_is_not_sent_again,
            "version",
        ),
    ),
    Scene(
        "the server killed while the supervisor is down: reconcile alone",
        _on_a_rig(test_proof.test_reconcile_alone_settles_what_a_dead_server_left),
    ),
    Scene("a full disk", _full_disk),
    Scene("a long thread", _on_a_rig(long_thread, "version")),
)
