"""The codex executable, its server, the socket in between, and the home that both must share."""

import os
import re
import shlex
import stat
from contextlib import suppress
from typing import NamedTuple

import anyio

from codexdrv.binary import Binary, find_binary, read_version
from codexdrv.client import ask_server, no_answer
from codexdrv.config import Listen, Server
from codexdrv.doctor.finding import Finding, State, failed, note, ok, wrong
from codexdrv.engine.session import Session, check_home
from codexdrv.errors import CodexdrvError, LinkError, NoServer
from codexdrv.paths import Offence, step_offence
from codexdrv.protocol.results import Greeting
from codexdrv.protocol.versions import TESTED, server_version
from codexdrv.transport.unix import check_socket, open_unix


ANSWER_TIMEOUT_S = 5.0
"""A healthy server greets within milliseconds; a stopped one must not stop the doctor."""

ANEW = "Is it a codex app-server? Then start it anew; if not, name the right socket under [server]."
UPDATE = "Update it: `npm install -g @openai/codex@latest`, or as you have installed it."
TELL_US = "Update codexdrv if there is a newer one; what this server does is taken as it comes."


class Installed(NamedTuple):
    """The executable, and what it says of itself."""

    binary: Binary
    version: str


class Met(NamedTuple):
    """A server that was greeted."""

    pid: int
    greeting: Greeting
    #: Why it is not the one for our threads; None: it serves our home.
    other_home: Offence | None

    @property
    def version(self) -> str | None:
        """What it says it is."""
        return server_version(self.greeting.user_agent)


class Absent(NamedTuple):
    """There is no socket: nobody has listened there since it was last tidied."""

    path: str


class HomeSeen(NamedTuple):
    """The Codex home, as it lies there."""

    path: str
    status: os.stat_result
    uid: int


def look_at_binary(server: Server) -> Installed:
    """Find the executable and ask its version.

    Raises:
        ConfigurationError, NoCodex: there is none, or it does not run.
    """
    binary = find_binary(server.codex, server.search_path)
    return Installed(binary, read_version(binary.path, timeout_s=ANSWER_TIMEOUT_S))


def judge_binary(seen: Installed | Offence, server: Server) -> Finding:
    """Say which one would be started; attached, we start none."""
    is_needed = server.spawn is not None
    if isinstance(seen, Offence):
        if is_needed:
            return failed("binary", seen)
        return note("binary", f"attached: no binary is needed. {seen.sentence}")
    binary, version = seen
    through = f", through {binary.wrapper}" if binary.wrapper else ""
    found = f"codex {version}, {binary.path} (from {binary.source}{through})"
    if not is_needed:
        return ok("binary", f"{found}; attached: it is not used")
    return _judge_version("binary", version, found)


def look_at_socket(server: Server) -> str | Absent | None:
    """Check who could stand behind the socket; None: with stdio there is none.

    Raises:
        UnsafeSocket: others could.
        NoServer: it cannot be reached.
    """
    if _is_private(server):
        return None
    if not os.path.lexists(server.socket):
        return Absent(server.socket)
    return check_socket(server.socket)


def judge_socket(seen: str | Absent | Offence | None, server: Server) -> Finding:
    """Say whether what listens there can be trusted; whether it answers is another check."""
    match seen:
        case None:
            return note("socket", 'listen = "stdio": the server has none, and none is needed')
        case Absent(path):
            return note("socket", f"{path} is not there: no server has made it")
        case Offence():
            return failed("socket", seen)
        case str(real):
            link = f", a link to {real}" if real != server.socket else ""
            return ok("socket", f"{server.socket}{link}: nobody else can stand in for it")


def look_at_server(
    server: Server, version: str, *, timeout_s: float = ANSWER_TIMEOUT_S
) -> Met | None:
    """Greet the server; None: only its supervisor can talk to it.

    Raises:
        LinkError, PeerError: nobody listens, or nobody answers.
    """
    return None if _is_private(server) else anyio.run(_meet, server, version, timeout_s)


def judge_server(
    seen: Met | Offence | None,
    server: Server,
    installed: Installed | Offence,
    *,
    is_safe: bool,
    is_up: bool,
) -> Finding:
    """Say whether a server answers.

    Args:
        seen: what came of the greeting.
        server: the configuration.
        installed: the executable on disk.
        is_safe: nothing is wrong with the socket itself.
        is_up: a supervisor runs.
    """
    is_ours = server.spawn is not None
    if not isinstance(seen, Met):
        return _judge_silence(seen, is_safe=is_safe, is_ours=is_ours, is_up=is_up)
    found = f"codex {seen.version or 'of unknown version'}, pid {seen.pid or 'unknown'}"
    if is_ours and not is_up:
        return note(
            "server",
            f"{found}, listens although no supervisor runs: it finishes its turn, or is not ours",
            'Wait for its end, or stop it; or attach to it: mode = "attach" under [server].',
        )
    if seen.version is None:
        return note("server", f"{found}: it calls itself {seen.greeting.user_agent!r}", TELL_US)
    judged = _judge_version("server", seen.version, found)
    if judged.state is State.OK and isinstance(installed, Installed):
        return _compare(judged, seen.version, installed, is_ours=is_ours)
    return judged


def _judge_silence(seen: Offence | None, *, is_safe: bool, is_ours: bool, is_up: bool) -> Finding:
    if seen is None:
        where = "the supervisor alone talks to it" if is_up else "the supervisor starts it"
        return note("server", f'listen = "stdio": {where}')
    if not is_safe:
        return note("server", "not asked: first mend the socket")
    if is_ours and not is_up:
        return note("server", "none: `codexdrv supervise` starts it")
    return failed("server", seen._replace(hint=seen.hint or ANEW))


def look_at_home(path: str) -> HomeSeen:
    """Look at the Codex home. Raises: OSError, NoServer."""
    try:
        return HomeSeen(path, os.stat(path), os.geteuid())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoServer(
            f"The Codex home {path} is not there.",
            hint="Make it with `codex login`, or name the right one: codex_home under [server].",
        ) from error


def judge_home(seen: HomeSeen | Offence, met: Met | Offence | None) -> Finding:
    """Say whether it is ours alone to change, and the one that the server serves."""
    if isinstance(met, Met) and met.other_home:
        return failed("home", met.other_home)
    if isinstance(seen, Offence):
        return failed("home", seen)
    path, status, uid = seen
    if not stat.S_ISDIR(status.st_mode):
        return wrong(
            "home", f"{path} is not a directory", "Name the right one: codex_home under [server]."
        )
    if status.st_uid != uid:
        return wrong(
            "home",
            f"{path} belongs to uid {status.st_uid}, and we are uid {uid}",
            "Run codexdrv as its owner, or name your own: codex_home under [server].",
        )
    if offence := step_offence(path, status, uid=uid):
        return failed("home", offence)
    served = ", the one that the server serves" if isinstance(met, Met) else ""
    return ok("home", f"{path}{served}")


async def _meet(server: Server, version: str, timeout_s: float) -> Met:
    pid = 0
    try:
        with anyio.fail_after(timeout_s):
            # First of all who it is, which a server that hangs would not say.
            async with open_unix(server.socket) as link:
                pid = link.pid
            greeting = await ask_server(
                server.socket, _read_greeting, version=version, greeting_timeout_s=timeout_s
            )
    except NoServer as error:
        raise NoServer(error.message, hint=_how_to_start(server)) from error
    except TimeoutError:
        raise no_answer(pid, timeout_s) from None
    return Met(pid, greeting, _other_home(greeting, server.codex_home))


async def _read_greeting(session: Session) -> Greeting:
    return session.greeting


def _other_home(greeting: Greeting, ours: str) -> Offence | None:
    try:
        check_home(greeting, ours)
    except LinkError as error:
        return Offence(error.message, error.hint)
    return None


def _is_private(server: Server) -> bool:
    return server.spawn is not None and server.spawn.listen is Listen.STDIO


def _how_to_start(server: Server) -> str:
    if server.spawn is not None:
        return "The supervisor starts it; its log, and `codexdrv status`, say why it has not."
    return (
        f"Start it: `CODEX_HOME={shlex.quote(server.codex_home)} {_command(server)} app-server"
        f" --listen unix://{shlex.quote(server.socket)}`\n"
        "or name the socket where it listens: socket under [server],\n"
        'or let codexdrv start a server of its own: mode = "spawn" under [server].'
    )


def _command(server: Server) -> str:
    """Name the codex that a shell can start: by its path, where it is not on PATH."""
    with suppress(CodexdrvError):
        binary = find_binary(server.codex, server.search_path)
        if binary.source != "PATH":
            return shlex.quote(binary.path)
    return "codex"


def _judge_version(name: str, version: str, found: str) -> Finding:
    oldest, newest = TESTED[0], TESTED[-1]
    if _numbers(version) < _numbers(oldest):
        return wrong(name, f"{found}: older than {oldest}, the oldest that is supported", UPDATE)
    if _numbers(version) > _numbers(newest):
        return note(name, f"{found}: newer than {newest}, the newest that was tested", TELL_US)
    return ok(name, found)


def _compare(judged: Finding, running: str, installed: Installed, *, is_ours: bool) -> Finding:
    if running == installed.version:
        return judged
    again = "Restart the supervisor" if is_ours else "Restart the server"
    return note(
        judged.name,
        f"{judged.found}; but {installed.binary.path} is {installed.version}",
        f"{again}, if it should be that one.",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
