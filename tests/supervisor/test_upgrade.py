"""Another codex on disk than the one that runs is noticed, whoever runs it."""

import os
import threading

import anyio
import pytest
import structlog

from codexdrv.binary import Binary, stamp_of
from codexdrv.config import Listen, Server, Spawn
from codexdrv.engine.session import Link
from codexdrv.errors import NoCodex
from codexdrv.transport.peer import PeerIdentity
from supervisor.upgrade import DELETED, Upgrade
from tests.engine.kit import until


WAIT_S = 5


class Disk:
    """A codex that says its version; each look that starts it is counted."""

    def __init__(self, tmp_path):
        self.path = tmp_path / "codex"
        self.proc = tmp_path / "proc"
        (self.proc / "42").mkdir(parents=True)
        self.install("0.163.0")
        self.reads = 0
        self.answers = 0
        self.is_cold = False
        self.is_awake = threading.Event()
        self.is_awake.set()

    def install(self, version):
        fresh = self.path.with_suffix(".new")
        fresh.write_text(version)
        os.replace(fresh, self.path)

    def runs_from(self, target):
        (self.proc / "42" / "exe").unlink(missing_ok=True)
        (self.proc / "42" / "exe").symlink_to(target)

    def find(self, _named, _search_path):
        if not self.path.exists():
            raise NoCodex("There is none.")
        return Binary(str(self.path), "PATH", None)

    def read(self, path):
        self.reads += 1
        self.is_awake.wait(WAIT_S)
        self.answers += 1
        if self.is_cold:
            raise NoCodex("It does not end in time.")
        with open(path, encoding="utf-8") as file:
            version = file.read()
        if not version:
            raise NoCodex("It does not run.")
        return version

    def upgrade(self, *, is_ours):
        spawn = Spawn(Listen.UNIX, "decline", 1.0) if is_ours else None
        server = Server("/s", "/home", None, {}, spawn)
        return Upgrade(server, find=self.find, read=self.read, proc=str(self.proc))


LINK = Link(True, 1, 42, version="0.163.0", peer=PeerIdentity(42, 1, "boot"))


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path)


async def test_our_own_server_is_outdated_when_its_file_was_replaced(disk):
    upgrade = disk.upgrade(is_ours=True)
    running = stamp_of(str(disk.path))
    assert await upgrade.look(LINK, running)
    assert (upgrade.version, upgrade.is_due) == ("0.163.0", False)
    assert not await upgrade.look(LINK, running)
    assert disk.reads == 1
    disk.install("0.171.0")
    assert await upgrade.look(LINK, running)
    assert (upgrade.version, upgrade.is_due) == ("0.171.0", True)
    # Once it runs, it is up to date.
    assert await upgrade.look(LINK._replace(version="0.171.0"), stamp_of(str(disk.path)))
    assert not upgrade.is_due
    assert disk.reads == 2


async def test_what_is_half_installed_or_gone_for_a_moment_changes_nothing(disk):
    upgrade = disk.upgrade(is_ours=True)
    running = stamp_of(str(disk.path))
    await upgrade.look(LINK, running)
    disk.install("")
    await upgrade.look(LINK, running)
    assert (upgrade.version, upgrade.is_due) == (None, False)
    disk.path.unlink()
    await upgrade.look(LINK, running)
    assert (upgrade.version, upgrade.is_due) == (None, False)


async def test_what_could_not_be_read_once_is_read_again_and_told_once(disk):
    upgrade = disk.upgrade(is_ours=True)
    running = stamp_of(str(disk.path))
    disk.install("0.171.0")
    disk.is_cold = True
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            await upgrade.look(LINK, running)
            assert (upgrade.version, upgrade.is_due) == (None, False)
        disk.is_cold = False
        assert await upgrade.look(LINK, running)
        assert (upgrade.version, upgrade.is_due) == ("0.171.0", True)
        # What is known is not read again.
        await upgrade.look(LINK, running)
    assert disk.reads == 4
    told = [(line["event"], line.get("count")) for line in logged]
    usable = ("binary.usable", None)
    assert told == [("binary.unusable", 1), usable, ("server.outdated", None)]


async def test_a_stop_does_not_wait_for_a_disk(disk):
    upgrade = disk.upgrade(is_ours=True)
    disk.is_awake.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(upgrade.look, LINK, None)
        await until(lambda: disk.reads == 1)
        tasks.cancel_scope.cancel()
    assert disk.answers == 0
    disk.is_awake.set()
    await until(lambda: disk.answers == 1)


async def test_another_ones_server_is_compared_with_the_file_it_was_started_from(disk, tmp_path):
    upgrade = disk.upgrade(is_ours=False)
    theirs = tmp_path / "theirs"
    theirs.write_text("0.171.0")
    disk.runs_from(f"{theirs}{DELETED}")
    await upgrade.look(LINK, None)
    assert (upgrade.version, upgrade.is_due) == ("0.171.0", True)
    await upgrade.look(LINK._replace(version="0.171.0"), None)
    assert not upgrade.is_due


async def test_where_that_file_is_gone_our_own_search_says_what_would_be_started(disk, tmp_path):
    upgrade = disk.upgrade(is_ours=False)
    disk.runs_from(f"{tmp_path / 'moved'}{DELETED}")
    disk.install("0.171.0")
    await upgrade.look(LINK, None)
    assert (upgrade.version, upgrade.is_due) == ("0.171.0", True)


@pytest.mark.parametrize("link", [LINK._replace(peer=None), LINK._replace(version=None)])
async def test_a_server_of_which_too_little_is_known_is_never_called_outdated(disk, link):
    upgrade = disk.upgrade(is_ours=False)
    disk.runs_from(str(disk.path))
    disk.install("0.171.0")
    if link.peer is None:
        disk.install("0.163.0")
    await upgrade.look(link, None)
    assert not upgrade.is_due
