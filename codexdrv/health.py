"""Is the machine well? Never "a process exists": what does not get through, and since when."""

from typing import Any, NamedTuple

from codexdrv.journal.rows import Summary
from codexdrv.paths import Offence
from codexdrv.snapshot import Snapshot
from codexdrv.story import tell_span


OLD_MS = 15 * 60 * 1000
"""A live delivery, or an open question, of that age is reported: somebody should look."""

UNANSWERED_MS = 60_000
"""The server is asked for a sign of life every 10 s."""

_UNLOADABLE = {
    "gone": "the server has no record of it",
    "archived": "it is archived",
    "held_elsewhere": "another server process has it open",
    "ephemeral": "it is ephemeral",
}
"""A target that nobody has used yet is well: its first message loads it."""


class Machine(NamedTuple):
    """All that is seen of a machine at one moment."""

    summary: Summary
    #: What a supervisor of our own version said last; None: nothing, or it is down.
    snapshot: Snapshot | None
    #: A supervisor heard the bell.
    is_up: bool
    #: Unix time.
    now_ms: int
    #: Why nothing can be stored; None: there is room.
    disk: Offence | None = None
    #: The version of a supervisor that is up and is not ours: its picture is not read.
    other_version: str | None = None

    @property
    def is_stale(self) -> bool:
        """Say whether a supervisor is up that says nothing any more."""
        if not self.is_up or self.other_version is not None:
            return False
        return self.snapshot is None or self.snapshot.is_stale(self.now_ms)


def judge_health(machine: Machine) -> list[str]:
    """Say what is wrong, a sentence each; nothing is the best answer."""
    problems = []
    if machine.disk is not None:
        problems.append(f"nothing can be stored, so nothing is sent: {machine.disk.sentence}")
    if not machine.is_up and machine.summary.oldest is not None:
        problems.append("no supervisor is running, and deliveries wait: run `codexdrv supervise`")
    if machine.other_version is not None:
        problems.append(
            f"the supervisor that runs is codexdrv {machine.other_version}, and not the one that is"
            " installed now, which cannot tell how it is: start it anew"
        )
    if machine.is_stale:
        problems.append("the supervisor is up but has not written its status for 15 s")
    elif machine.snapshot is not None:
        problems += judge_snapshot(machine.snapshot, machine.now_ms)
    oldest = machine.summary.oldest
    if oldest is not None and machine.now_ms - oldest.order.admitted_at_ms > OLD_MS:
        age = tell_span((machine.now_ms - oldest.order.admitted_at_ms) / 1000)
        held = oldest.standing.why or "nobody has tried yet"
        problems.append(f"{oldest.order.id} is {oldest.standing.phase} for {age}: {held}")
    return problems


def answered_ms(snapshot: Snapshot, now_ms: int) -> int | None:
    """Say how long ago the server last answered, as of now; None: there is no connection."""
    answered_s = snapshot.body["server"]["answered_s"]
    if answered_s is None:
        return None
    return int(answered_s * 1000) + max(0, now_ms - snapshot.written_at_ms)


def judge_snapshot(snapshot: Snapshot, now_ms: int) -> list[str]:
    """Say what is wrong with the server, the targets and the questions, a sentence each."""
    body = snapshot.body
    if not body["server"]["connected"]:
        return [str(body["server"]["problem"]).rstrip(".")]
    problems = []
    unanswered_ms = answered_ms(snapshot, now_ms) or 0
    if unanswered_ms > UNANSWERED_MS:
        age = tell_span(unanswered_ms / 1000)
        problems.append(f"the server is connected, and has answered nothing for {age}")
    for thread, state in body["threads"].items():
        if state["targets"] and state["subscription"] in _UNLOADABLE:
            why = _UNLOADABLE[state["subscription"]] + _holders(state)
            names = ", ".join(state["targets"])
            problems.append(f"target {names} ({thread}) cannot be loaded: {why}")
    problems += [
        f"the server asks ({question['kind']}), and nobody has answered for"
        f" {tell_span((now_ms - question['since_ms']) / 1000)}: run `codexdrv attention`"
        for question in body["questions"]
        if now_ms - question["since_ms"] > OLD_MS
    ]
    return problems


def _holders(state: dict[str, Any]) -> str:
    return f", pid {', '.join(map(str, state['holders']))}" if state["holders"] else ""
