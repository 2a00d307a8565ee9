"""The examination: look at everything once, then go through the table of checks."""

import os
from collections.abc import Callable
from typing import NamedTuple

from codexdrv.clock import now_ms
from codexdrv.config import Config
from codexdrv.doctor import codex, environment, journal, places, resident, unit
from codexdrv.doctor.finding import Finding, State, look_at, note
from codexdrv.health import changed_keys
from codexdrv.paths import Offence


class Seen(NamedTuple):
    """Everything that was looked at; where a look failed, what failed."""

    config: Config
    version: str
    now_ms: int
    python: environment.Python
    neighbour: environment.Neighbour | Offence
    binary: codex.Installed | Offence
    socket: str | codex.Absent | Offence | None
    server: codex.Met | Offence | None
    home: codex.HomeSeen | Offence
    state: places.StateSeen | Offence
    sandbox_place: str | Offence | None
    state_disk: places.Disk | Offence
    home_disk: places.Disk | Offence
    journal: journal.JournalSeen | Offence | None
    supervisor: resident.ResidentSeen | Offence
    units: list[unit.UnitSeen] | Offence

    @property
    def is_up(self) -> bool:
        """A supervisor runs."""
        return isinstance(self.supervisor, resident.ResidentSeen) and self.supervisor.is_up

    @property
    def live(self) -> int:
        """How many deliveries wait, as far as the journal can be read."""
        return self.journal.live if isinstance(self.journal, journal.JournalSeen) else 0

    @property
    def changed(self) -> list[str]:
        """The keys of `[server]` that the supervisor runs with otherwise, as far as it says."""
        if not isinstance(self.supervisor, resident.ResidentSeen) or not self.supervisor.is_up:
            return []
        snapshot = self.supervisor.snapshot
        if snapshot is None or snapshot.stranger(self.version) or snapshot.is_stale(self.now_ms):
            return []
        return changed_keys(snapshot, self.config.server)

    @property
    def lacks_server(self) -> bool:
        """The checks of socket, server and home say why nobody can be connected."""
        if self.changed:
            return False  # they have looked at another server
        is_other = isinstance(self.server, codex.Met) and self.server.other_home is not None
        return is_other or isinstance(self.server, Offence)


def _judge_server(seen: Seen) -> list[Finding]:
    is_safe = not isinstance(seen.socket, Offence)
    # Of a supervisor that runs with another server, nobody knows how it would fare with this one.
    is_another = bool(seen.changed) and isinstance(seen.server, Offence)
    finding = codex.judge_server(
        seen.server,
        seen.config.server,
        seen.binary,
        is_safe=is_safe,
        is_up=seen.is_up and not is_another,
    )
    if is_another and finding.state is State.WRONG:
        said = f"{finding.found.rstrip('.')}; the supervisor that runs has another one (see below)"
        return [note(finding.name, said, finding.remedy)]
    return [finding]


def _judge_supervisor(seen: Seen) -> list[Finding]:
    oldest = seen.journal.oldest if isinstance(seen.journal, journal.JournalSeen) else None
    around = resident.Around(
        seen.live, oldest, seen.lacks_server, seen.changed, seen.version, seen.now_ms
    )
    return resident.judge_supervisor(seen.supervisor, around)


CHECKS: tuple[Callable[[Seen], list[Finding]], ...] = (
    lambda seen: [environment.judge_python(seen.python)],
    lambda seen: [environment.judge_neighbour(seen.neighbour)],
    lambda seen: [environment.judge_configuration(seen.config)],
    lambda seen: [codex.judge_binary(seen.binary, seen.config.server)],
    lambda seen: [codex.judge_socket(seen.socket, seen.config.server)],
    _judge_server,
    lambda seen: [codex.judge_home(seen.home, seen.server)],
    lambda seen: places.judge_state(seen.state),
    lambda seen: [places.judge_sandbox(seen.config.state.directory, seen.sandbox_place)],
    lambda seen: places.judge_file_systems(seen.state_disk, seen.home_disk),
    lambda seen: places.judge_room(seen.state_disk, seen.home_disk),
    lambda seen: [journal.judge_journal(seen.journal)],
    _judge_supervisor,
    lambda seen: unit.judge_units(seen.units, seen.config, version=seen.version),
)
"""In this order: what others rest on comes first. A new check looks in `look`, and judges here."""


def look(config: Config, *, version: str) -> Seen:
    """Look at everything; nothing is made or changed, and a look takes seconds at most."""
    server, directory, home = config.server, config.state.directory, config.server.codex_home
    met = look_at(lambda: codex.look_at_server(server, version))
    # Nobody connects to a server that does not answer, or has another home.
    is_fit = isinstance(met, codex.Met) and met.other_home is None
    patience_s = resident.CONNECT_PATIENCE_S if is_fit else 0.0
    return Seen(
        config,
        version,
        now_ms(),
        environment.look_at_python(),
        look_at(environment.look_at_neighbour),
        look_at(lambda: codex.look_at_binary(server)),
        look_at(lambda: codex.look_at_socket(server)),
        met,
        look_at(lambda: codex.look_at_home(home)),
        look_at(lambda: places.look_at_state(directory)),
        look_at(lambda: places.sandbox_place_above(directory, os.environ.get("TMPDIR", ""))),
        look_at(lambda: places.look_at_disk(directory)),
        look_at(lambda: places.look_at_disk(home)),
        look_at(lambda: journal.look_at_journal(directory)),
        look_at(lambda: resident.look_at_supervisor(directory, patience_s=patience_s)),
        look_at(lambda: unit.look_at_units(config)),
    )


def examine(seen: Seen) -> list[Finding]:
    """Judge what was seen, a line or more for each check."""
    return [finding for check in CHECKS for finding in check(seen)]
