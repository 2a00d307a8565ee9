"""Ways that several rows of docs/compatibility.md share."""

from codexdrv.demo.script import Hold
from tests.acceptance.binaries import by_version
from tests.acceptance.cells import Cell
from tests.acceptance.kit import Message, Rig, Truth
from tests.acceptance.machine import Machine
from tests.acceptance.proxy import Meddle, Once, Proxy
from tests.acceptance.scenes import Boundary, asking_turn, enter, used_thread


REFUSES_A_START_AT_A_BOUNDARY = {"0.144.5": False, "0.163.0": True}
"""Where it does not, it answers and silently drops the input."""


def goes(machine: Machine, cell: Cell, thread: str) -> None:
    """Start the supervisor, deliver one message, and see where it ends."""
    machine.start()
    machine.deliver("m1", thread, "hello")
    cell.ends("m1")


def meets_boundary(rig: Rig, machine: Machine, cell: Cell, boundary: Boundary) -> None:
    rig.model.script[boundary.key] = Hold("done")
    truth = rig.truth()
    thread = used_thread(rig, truth)
    machine.start()
    turn = enter(truth, thread, boundary)
    machine.deliver("m1", thread, "after")
    cell.holds("m1", "boundary")
    rig.model.release(boundary.key)
    cell.ends("m1", busy=turn)


def races_with_boundary(
    rig: Rig, machine: Machine, cell: Cell, *, boundary: Boundary, version: str
) -> None:
    rig.model.script[boundary.key] = Hold("done")
    truth = rig.truth()
    thread = used_thread(rig, truth)

    def begin_first(request: Message) -> Message:
        enter(truth, thread, boundary)
        return request

    with Proxy(rig.root / "proxy.sock", rig.socket_path, Once("turn/start", begin_first)) as proxy:
        machine.go_through(proxy.path)
        machine.start()
        machine.deliver("m1", thread, "between")
        if by_version(REFUSES_A_START_AT_A_BOUNDARY, version):
            cell.holds("m1", "not_steerable")
        else:
            cell.is_answered("m1")
        rig.model.release(boundary.key)
        cell.ends("m1")


def is_answered_before_an_approval(rig: Rig, machine: Machine, cell: Cell) -> tuple[Truth, Message]:
    """Steer a turn that waits for an approval: until then the thread does not have the input."""
    truth = rig.truth()
    request = asking_turn(rig, truth, truth.start_thread(rig.cwd, approval_policy="untrusted"))
    machine.start()
    machine.deliver("m1", request["params"]["threadId"], "also")
    cell.is_answered("m1")
    return truth, request


def meets_refusal(rig: Rig, machine: Machine, cell: Cell, *, meddle: Meddle, reason: str) -> None:
    thread = used_thread(rig, rig.truth())
    with Proxy(rig.root / "proxy.sock", rig.socket_path, meddle) as proxy:
        machine.go_through(proxy.path)
        machine.start()
        machine.deliver("m1", thread, "hello")
        cell.holds("m1", reason)
        cell.ends("m1")
