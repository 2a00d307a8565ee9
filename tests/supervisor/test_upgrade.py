"""Another codex on disk than the one that runs is noticed, whoever runs it."""

import os
import threading

import anyio
import pytest
import structlog

from codexdrv.binary import SOURCE_BUNDLED, Binary, origin_of
from codexdrv.config import Listen, Server, Spawn
from codexdrv.engine.session import Link
from codexdrv.errors import ConfigurationError, NoCodex
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
        self.bundled = tmp_path / "bundled"
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
        if self.path.exists():
            if self.path.read_text().startswith("#!"):
                raise ConfigurationError("It is a script.")
            return Binary(str(self.path), "PATH", None)
        if self.bundled.exists():
            return Binary(str(self.bundled), SOURCE_BUNDLED, None)
        raise NoCodex("There is none.")

    def origin(self):
        return origin_of(self.find(None, ""))

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
    running = disk.origin()
    assert await upgrade.look(LINK, running)
    assert (upgrade.version, upgrade.is_due) == ("0.163.0", False)
    assert not await upgrade.look(LINK, running)
    assert disk.reads == 1
    disk.install("0.171.0")
    assert await upgrade.look(LINK, running)
    assert (upgrade.version, upgrade.is_due, upgrade.is_upgrade) == ("0.171.0", True, True)
    # Once it runs, it is up to date.
    assert await upgrade.look(LINK._replace(version="0.171.0"), disk.origin())
    assert not upgrade.is_due
    assert disk.reads == 2


async def test_what_is_half_installed_or_gone_for_a_moment_changes_nothing(disk):
    upgrade = disk.upgrade(is_ours=True)
    running = disk.origin()
    await upgrade.look(LINK, running)
    disk.install("")
    await upgrade.look(LINK, running)
    assert (upgrade.version, upgrade.is_due) == (None, False)
    disk.path.unlink()
    await upgrade.look(LINK, running)
    assert (upgrade.version, upgrade.is_due) == (None, False)


async def test_what_could_not_be_read_once_is_read_again_and_told_once(disk):
    upgrade = disk.upgrade(is_ours=True)
    running = disk.origin()
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


def told_of(logged):
    return [
        (line["running"], line["on_disk"], line["takes_its_place"])
        for line in logged
        if line["event"] == "server.outdated"
    ]


async def test_while_codex_is_reinstalled_the_bundled_one_is_told_once_and_takes_no_place(disk):
    disk.install("0.171.0")
    link = LINK._replace(version="0.171.0")
    upgrade = disk.upgrade(is_ours=True)
    running = disk.origin()
    await upgrade.look(link, running)
    disk.bundled.write_text("0.163.0")
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            disk.path.unlink()
            for _ in range(2):
                await upgrade.look(link, running)
                # It is what a start would use, and `status` says so.
                assert (upgrade.version, upgrade.is_due) == ("0.163.0", True)
                assert not upgrade.is_upgrade
            disk.install("")
            await upgrade.look(link, running)
            assert not upgrade.is_due
    assert told_of(logged) == [("0.171.0", "0.163.0", False)]
    # Also one that is newer: only a restart looks elsewhere.
    disk.path.unlink()
    disk.bundled.write_text("0.172.0")
    await upgrade.look(link, running)
    assert (upgrade.is_due, upgrade.is_upgrade) == (True, False)
    disk.install("0.172.0")
    await upgrade.look(link, running)
    assert upgrade.is_upgrade


@pytest.mark.parametrize(
    ("running", "on_disk", "is_upgrade"),
    [
        ("0.163.0", "0.171.0", True),
        ("0.171.0", "0.171.0", True),
        ("0.171.0", "0.163.0", False),
        ("0.99.0", "0.100.0", True),
        ("0.172.0-alpha.3", "0.172.0", True),
        ("0.172.0", "0.172.0-alpha.3", False),
        ("0.172.0-alpha.3", "0.172.0-alpha.10", True),
        (None, "0.171.0", True),
    ],
)
async def test_what_replaced_the_file_of_our_server_takes_its_place_unless_it_is_older(
    disk, running, on_disk, is_upgrade
):
    upgrade = disk.upgrade(is_ours=True)
    origin = disk.origin()
    disk.install(on_disk)
    with structlog.testing.capture_logs() as logged:
        await upgrade.look(LINK._replace(version=running), origin)
    assert (upgrade.is_due, upgrade.is_upgrade) == (True, is_upgrade)
    assert told_of(logged) == [(running, on_disk, is_upgrade)]


async def test_a_codex_in_another_place_is_no_other_one_where_it_is_of_the_same_version(disk):
    upgrade = disk.upgrade(is_ours=True)
    running = disk.origin()
    disk.bundled.write_text("0.163.0")
    disk.path.unlink()
    await upgrade.look(LINK, running)
    assert not upgrade.is_due


@pytest.mark.parametrize("is_gone", [False, True])
async def test_what_could_not_be_started_in_place_of_our_server_is_told_once(disk, is_gone):
    upgrade = disk.upgrade(is_ours=True)
    running = disk.origin()
    await upgrade.look(LINK, running)
    if is_gone:
        disk.path.unlink()
    else:
        disk.install("#!/bin/sh")
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            await upgrade.look(LINK, running)
            assert (upgrade.version, upgrade.is_due) == (None, False)
        disk.install("0.163.0")
        await upgrade.look(LINK, running)
    assert [(line["event"], line.get("error")) for line in logged] == [
        ("binary.unusable", "There is none." if is_gone else "It is a script."),
        ("binary.usable", None),
        # Another file.
        ("server.outdated", None),
    ]


async def test_another_ones_server_is_compared_with_the_codex_that_counts_for_us(disk, tmp_path):
    upgrade = disk.upgrade(is_ours=False)
    theirs = tmp_path / "theirs"
    theirs.write_text("0.163.0")
    disk.runs_from(theirs)
    disk.install("0.171.0")
    with structlog.testing.capture_logs() as logged:
        await upgrade.look(LINK, None)
    assert (upgrade.version, upgrade.is_due, upgrade.is_upgrade) == ("0.171.0", True, False)
    assert told_of(logged) == [("0.163.0", "0.171.0", False)]
    await upgrade.look(LINK._replace(version="0.171.0"), None)
    assert not upgrade.is_due


@pytest.mark.parametrize("ours", [None, "#!/bin/sh", "bundled"])
async def test_where_none_counts_for_us_the_file_says_it_from_which_that_server_was_started(
    disk, tmp_path, ours
):
    upgrade = disk.upgrade(is_ours=False)
    theirs = tmp_path / "theirs"
    theirs.write_text("0.171.0")
    disk.runs_from(f"{theirs}{DELETED}")
    disk.path.unlink()
    if ours == "bundled":
        disk.bundled.write_text("0.163.0")
    elif ours:
        disk.install(ours)
    with structlog.testing.capture_logs() as logged:
        await upgrade.look(LINK, None)
    assert (upgrade.version, upgrade.is_due) == ("0.171.0", True)
    # Nobody needs ours.
    assert [line["event"] for line in logged] == ["server.outdated"]


@pytest.mark.parametrize("has_bundled", [False, True])
async def test_where_that_file_is_gone_too_the_bundled_one_is_left(disk, tmp_path, has_bundled):
    upgrade = disk.upgrade(is_ours=False)
    disk.runs_from(f"{tmp_path / 'moved'}{DELETED}")
    disk.path.unlink()
    if has_bundled:
        disk.bundled.write_text("0.171.0")
    await upgrade.look(LINK, None)
    assert upgrade.version == ("0.171.0" if has_bundled else None)
    assert upgrade.is_due == has_bundled


@pytest.mark.parametrize("link", [LINK._replace(peer=None), LINK._replace(version=None)])
async def test_a_server_of_which_too_little_is_known_is_never_called_outdated(disk, link):
    upgrade = disk.upgrade(is_ours=False)
    disk.path.unlink()
    theirs = disk.bundled.with_name("theirs")
    theirs.write_text("0.171.0")
    disk.runs_from(theirs)
    await upgrade.look(link, None)
    assert not upgrade.is_due
