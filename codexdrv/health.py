"""Is the machine well? Never "a process exists": what does not get through, and since when."""

from typing import Any, NamedTuple

from codexdrv.journal.rows import Summary
from codexdrv.paths import Offence
from codexdrv.rules.thread import OBSTACLES, Subscription
from codexdrv.snapshot import Snapshot
from codexdrv.story import tell_span


OLD_MS = 15 * 60 * 1000
"""A live delivery, or an open question, of that age is reported: somebody should look."""

UNANSWERED_MS = 60_000
"""The server is asked for a sign of life every 10 s."""


class Machine(NamedTuple):
    """All that is seen of a machine at one moment."""

    summary: Summary
    #: What a supervisor said last, which may be up or not, and of any version.
    picture: Snapshot | None
    #: A supervisor hears the bell.
    is_up: bool
    #: Unix time.
    now_ms: int
    #: Ours.
    version: str
    #: Why nothing can be stored; None: there is room.
    disk: Offence | None = None

    @property
    def is_gone(self) -> bool:
        """Say whether a supervisor has ended untold: one that is told takes its picture down."""
        return self.picture is not None and not self.is_up

    @property
    def other_version(self) -> str | None:
        """The version of a supervisor that is up and not ours: what it says cannot be read."""
        is_other = self.is_up and self.picture is not None and self.picture.version != self.version
        return self.picture.version if self.picture and is_other else None

    @property
    def snapshot(self) -> Snapshot | None:
        """What the supervisor that is up says of itself; None: nothing that can be read."""
        return self.picture if self.is_up and self.other_version is None else None

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
    elif machine.is_gone:
        problems.append("the supervisor has ended untold: its log says why; `codexdrv supervise`")
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
    problems = []
    if body["journal_problem"] is not None:
        said = str(body["journal_problem"]).rstrip(".")
        problems.append(f"the supervisor cannot use its journal, so nothing is sent: {said}")
    if not body["server"]["connected"]:
        return [*problems, str(body["server"]["problem"]).rstrip(".")]
    unanswered_ms = answered_ms(snapshot, now_ms) or 0
    if unanswered_ms > UNANSWERED_MS:
        age = tell_span(unanswered_ms / 1000)
        problems.append(f"the server is connected, and has answered nothing for {age}")
    for thread, state in body["threads"].items():
        if state["targets"] and (why := _why_unloaded(state)):
            names = ", ".join(state["targets"])
            problems.append(f"target {names} ({thread}) cannot be loaded: {why}")
    problems += [
        f"the server asks ({question['kind']}), and nobody has answered for"
        f" {tell_span((now_ms - question['since_ms']) / 1000)}: run `codexdrv attention`"
        for question in body["questions"]
        if now_ms - question["since_ms"] > OLD_MS
    ]
    return problems


def _why_unloaded(state: dict[str, Any]) -> str | None:
    match Subscription(state["subscription"]):
        case Subscription.SUBSCRIBED | Subscription.NEVER_USED:
            return None  # its first message loads one that nobody has used
        case Subscription.NONE:
            # It is about to be loaded, or that was refused.
            return str(state["problem"]).rstrip(".") if state["problem"] else None
        case subscription:
            pids = f", pid {', '.join(map(str, state['holders']))}" if state["holders"] else ""
            return OBSTACLES[subscription] + pids
