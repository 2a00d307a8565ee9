"""Is the machine well? Never "a process exists": what does not get through, and since when."""

import re
from typing import Any, NamedTuple

from codexdrv.config import Listen, Server
from codexdrv.journal.rows import Summary
from codexdrv.paths import Offence
from codexdrv.rules.lifecycle import Delivery
from codexdrv.rules.thread import OBSTACLES, Subscription
from codexdrv.snapshot import Snapshot
from codexdrv.story import tell_span


OLD_MS = 15 * 60 * 1000
"""A live delivery, or an open question, of that age is reported: somebody should look."""

UNANSWERED_MS = 60_000
"""The server is asked for a sign of life every 10 s."""


START = "Start it: `codexdrv supervise`, best under your service manager."
HUNG = "It hangs, or cannot write: look into its log and at the disk, then start it anew."

_INTRUDER = re.compile(r"A server that is not ours listens at .* \(pid (\d+)\)")
"""As `supervisor/spawning.py` says it."""


class Problem(NamedTuple):
    """Something that does not get through."""

    sentence: str
    #: What to do about it: a command, a key of the configuration, or where to look.
    remedy: str


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
        """Say whether a supervisor has ended untold: one that is told says so in its picture."""
        return self.picture is not None and not self.is_up and not self.picture.has_ended

    @property
    def stranger(self) -> str | None:
        """Which codexdrv is up that is not ours: what it says cannot be read."""
        return self.picture.stranger(self.version) if self.picture and self.is_up else None

    @property
    def snapshot(self) -> Snapshot | None:
        """What the supervisor that is up says of itself; None: nothing that can be read."""
        return self.picture if self.is_up and self.stranger is None else None

    @property
    def is_stale(self) -> bool:
        """Say whether a supervisor is up that says nothing any more."""
        if not self.is_up or self.stranger is not None:
            return False
        return self.snapshot is None or self.snapshot.is_stale(self.now_ms)


def judge_health(machine: Machine) -> list[Problem]:
    """Say what is wrong; nothing is the best answer."""
    oldest, disk, problems = machine.summary.oldest, machine.disk, []
    if disk is not None:
        said = f"nothing can be stored, so nothing is sent: {disk.sentence}"
        problems.append(Problem(said, disk.hint))
    if not machine.is_up and oldest is not None:
        problems.append(Problem("no supervisor is running, and deliveries wait", START))
    elif machine.is_gone:
        problems.append(Problem("the supervisor has ended untold", f"Its log says why. {START}"))
    if machine.stranger is not None:
        said = f"the supervisor that runs is {machine.stranger}, and not the one that is installed"
        problems.append(Problem(f"{said} now, which cannot tell how it is", "Start it anew."))
    if machine.is_stale:
        said = "the supervisor is up but has not written its status for 15 s"
        problems.append(Problem(said, HUNG))
    elif machine.snapshot is not None:
        problems += judge_snapshot(machine.snapshot, machine.now_ms)
    return problems + judge_oldest(oldest, machine.now_ms)


def judge_oldest(oldest: Delivery | None, now_ms: int) -> list[Problem]:
    """Say whether a delivery, the oldest that is live, waits for too long."""
    if oldest is None or now_ms - oldest.order.admitted_at_ms <= OLD_MS:
        return []
    age = tell_span((now_ms - oldest.order.admitted_at_ms) / 1000)
    held = (oldest.standing.why or "nobody has tried yet").rstrip(".")
    return [
        Problem(
            f"{oldest.order.id} is {oldest.standing.phase} for {age}: {held}",
            f"`codexdrv status {oldest.order.id} --explain` tells its story.",
        )
    ]


def answered_ms(snapshot: Snapshot, now_ms: int) -> int | None:
    """Say how long ago the server last answered, as of now; None: there is no connection."""
    answered_s = snapshot.body["server"]["answered_s"]
    if answered_s is None:
        return None
    return int(answered_s * 1000) + max(0, now_ms - snapshot.written_at_ms)


def judge_snapshot(snapshot: Snapshot, now_ms: int) -> list[Problem]:
    """Say what is wrong with the journal, the server, the targets and the questions."""
    return [
        *judge_journal(snapshot),
        *judge_connection(snapshot),
        *judge_served(snapshot, now_ms),
    ]


def judge_journal(snapshot: Snapshot) -> list[Problem]:
    """Say whether the supervisor can use its journal."""
    if snapshot.body["journal_problem"] is None:
        return []
    said = str(snapshot.body["journal_problem"]).rstrip(".")
    return [
        Problem(
            f"the supervisor cannot use its journal, so nothing is sent: {said}",
            "It goes on by itself when that is mended: look at the disk, and who holds the file.",
        )
    ]


def judge_connection(snapshot: Snapshot) -> list[Problem]:
    """Say whether there is a server."""
    server = snapshot.body["server"]
    if server["connected"]:
        return []
    said = str(server["problem"]).rstrip(".")
    remedy = "It tries again by itself; `codexdrv doctor`, and its log, say what is in the way."
    if found := _INTRUDER.match(said):
        remedy = f'Stop it: `kill {found[1]}`; or attach to it: mode = "attach" under [server].'
    return [Problem(said, remedy)]


def judge_served(snapshot: Snapshot, now_ms: int) -> list[Problem]:
    """Say what is wrong with a server that is connected, its targets and its questions."""
    body, server, problems = snapshot.body, snapshot.body["server"], []
    if not server["connected"]:
        return []
    unanswered_ms = answered_ms(snapshot, now_ms) or 0
    if unanswered_ms > UNANSWERED_MS:
        age = tell_span(unanswered_ms / 1000)
        said = f"the server is connected, and has answered nothing for {age}"
        problems.append(Problem(said, how_to_wake(server["pid"])))
    for thread, state in body["threads"].items():
        if state["targets"] and (found := _why_unloaded(thread, state)):
            said = f"target {', '.join(state['targets'])} ({thread}) cannot be loaded"
            problems.append(found._replace(sentence=f"{said}: {found.sentence}"))
    for question in body["questions"]:
        open_ms = now_ms - question["since_ms"]
        if open_ms > OLD_MS:
            said = f"the server asks ({question['kind']}), and nobody has answered for"
            remedy = "`codexdrv attention` shows what is asked, and how to answer."
            problems.append(Problem(f"{said} {tell_span(open_ms / 1000)}", remedy))
    return problems


def how_to_wake(pid: int | None) -> str:
    """Say what to do about a server that does not answer."""
    return f"Is it stopped? `kill -CONT {pid or 'PID'}` lets it go on; else start it anew."


def server_table(server: Server) -> dict[str, Any]:
    """Lay `[server]` out as the status file shows it: its keys, with what they default to."""
    spawn = server.spawn
    is_private = spawn is not None and spawn.listen is Listen.STDIO
    return {
        "mode": "attach" if spawn is None else "spawn",
        "socket": None if is_private else server.socket,
        "codex_home": server.codex_home,
        "codex": server.codex,
        "listen": spawn.listen if spawn else None,
        "approvals": spawn.approvals if spawn else None,
        "stop_grace_s": spawn.stop_grace_s if spawn else None,
        "deaths_max": spawn.deaths_max if spawn else None,
    }


def changed_keys(snapshot: Snapshot, server: Server) -> list[str]:
    """Name the keys of `[server]` that the supervisor, which is ours, runs with otherwise."""
    runs_with = snapshot.body["config"]
    return [key for key, value in server_table(server).items() if runs_with[key] != value]


def tell_changed(keys: list[str]) -> str:
    """Say that the supervisor does not run with what the configuration says."""
    said = "the supervisor runs with another [server] than the configuration says"
    return f"{said} ({', '.join(keys)})"


def _why_unloaded(thread: str, state: dict[str, Any]) -> Problem | None:
    take_out = f"Take {', '.join(state['targets'])} out of [targets]."
    subscription = Subscription(state["subscription"])
    match subscription:
        case Subscription.SUBSCRIBED | Subscription.NEVER_USED:
            return None  # its first message loads one that nobody has used
        case Subscription.NONE:
            # It is about to be loaded, or that was refused.
            said = str(state["problem"]).rstrip(".") if state["problem"] else None
            return Problem(said, f"Does it stay so? {take_out}") if said else None
        case Subscription.ARCHIVED:
            return Problem(OBSTACLES[subscription], f"`codex unarchive {thread}`")
        case Subscription.HELD_ELSEWHERE:
            pids = ", ".join(map(str, state["holders"]))
            if not pids:
                return Problem(OBSTACLES[subscription], "Stop that one.")
            said = f"{OBSTACLES[subscription]}, pid {pids}"
            return Problem(said, f"Stop that one: pid {pids}.")
        case Subscription.GONE | Subscription.EPHEMERAL:
            return Problem(OBSTACLES[subscription], take_out)
