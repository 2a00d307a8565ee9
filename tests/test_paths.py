import os
import socket
import stat
from pathlib import Path

import pytest

from codexdrv.errors import JournalUnsafe, JournalUnusable
from codexdrv.paths import (
    LINKS_MAX,
    NETWORK_FILE_SYSTEMS,
    UNIX_PATH_BYTES_MAX,
    _walk,
    check_private_directory,
    dead_end,
    disk_offence,
    make_private_directory,
    network_filesystem,
    private_directory_offence,
    short_socket_path,
    step_offence,
    unsafe_step,
)


US = 1000
STRANGER = 1001


def status_of(mode, *, owner):
    return os.stat_result((mode, 1, 1, 1, owner, owner, 0, 0, 0, 0))


@pytest.fixture
def long_directory(tmp_path):
    directory = tmp_path / ("d" * 60) / ("e" * 60)
    directory.mkdir(parents=True, mode=0o700)
    directory.parent.chmod(0o700)
    return directory


def test_a_path_that_fits_stays_as_it_is():
    path = "/" + "x" * (UNIX_PATH_BYTES_MAX - 1)
    with short_socket_path(path) as short:
        assert short == path


def test_a_path_is_measured_in_bytes_not_in_letters(tmp_path):
    path = f"{tmp_path}/ü".ljust(UNIX_PATH_BYTES_MAX, "x")
    with short_socket_path(path) as short:
        assert short != path


def test_the_kernel_takes_the_longest_path_that_is_left_alone_and_no_longer_one():
    with socket.socket(socket.AF_UNIX) as sock:
        with pytest.raises(FileNotFoundError):
            sock.connect("/" + "x" * (UNIX_PATH_BYTES_MAX - 1))
        with pytest.raises(OSError, match="too long"):
            sock.connect("/" + "x" * UNIX_PATH_BYTES_MAX)


def test_a_socket_with_a_long_path_is_bound_and_reached(long_directory):
    path = str(long_directory / "s")
    assert len(path) > UNIX_PATH_BYTES_MAX
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        with short_socket_path(path) as short:
            server.bind(short)
        server.listen()
        assert Path(path).is_socket()
        with short_socket_path(path) as short:
            client.connect(short)


def test_the_directory_is_closed_again_even_after_an_error(long_directory):
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(ZeroDivisionError), short_socket_path(str(long_directory / "s")):
        raise ZeroDivisionError
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_file_name_that_is_too_long_by_itself_is_an_error(tmp_path):
    with (
        pytest.raises(OSError, match="too long"),
        short_socket_path(str(tmp_path / ("s" * 200))),
    ):
        pass


def test_a_private_directory_is_made_with_its_parents_for_us_alone(tmp_path):
    path = tmp_path / "a" / "b"
    make_private_directory(f"{path}/")
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_making_a_private_directory_that_is_there_changes_nothing(tmp_path):
    make_private_directory(str(tmp_path / "a"))
    (tmp_path / "a" / "file").touch()
    make_private_directory(str(tmp_path / "a"))
    assert (tmp_path / "a" / "file").exists()


def test_an_open_directory_is_refused_not_repaired(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o755)
    with pytest.raises(JournalUnsafe) as refused:
        make_private_directory(str(tmp_path / "a"))
    assert refused.value.hint == f"chmod 700 {tmp_path}/a"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "a").touch(0o600)
    with pytest.raises(JournalUnsafe, match="not a directory"):
        make_private_directory(str(tmp_path / "a"))


def test_a_directory_that_cannot_be_made_says_why(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(JournalUnusable, match=f"cannot be made: {tmp_path}/file is not a dir"):
        make_private_directory(str(tmp_path / "file" / "a"))


@pytest.mark.parametrize("below", ["", "/state", "/deep/er"])
def test_behind_a_link_that_leads_nowhere_no_directory_can_be_made(tmp_path, below):
    (tmp_path / "disk").symlink_to(tmp_path / "nowhere")
    with pytest.raises(JournalUnusable) as refused:
        make_private_directory(f"{tmp_path}/disk{below}")
    assert refused.value.message == (
        f"The directory {tmp_path}/disk{below} cannot be made: {tmp_path}/disk is a link to"
        f" {tmp_path}/nowhere, which is not there."
    )
    assert refused.value.hint.startswith("Mount or make what it leads to, or choose another")


def test_the_kernels_own_file_systems_take_no_directory():
    with pytest.raises(JournalUnusable) as refused:
        make_private_directory("/proc/x/y")
    assert refused.value.message == (
        "The directory /proc/x/y cannot be made: /proc is the kernel's (proc) and takes none."
    )


def test_a_way_of_more_steps_than_python_calls_deep_is_made(tmp_path):
    path = str(tmp_path) + "/d" * 1500
    make_private_directory(path)
    assert os.path.isdir(path)
    # Who tidies up after all tests would call too deep.
    while path != str(tmp_path):
        os.rmdir(path)
        path = os.path.dirname(path)


def test_what_could_be_made_is_no_dead_end(tmp_path):
    assert dead_end(f"{tmp_path}/a/b") is None
    (tmp_path / "link").symlink_to(tmp_path)
    assert dead_end(f"{tmp_path}/link/a/b") is None
    assert dead_end("a/b") is None


def test_a_missing_directory_is_not_private(tmp_path):
    with pytest.raises(JournalUnusable):
        check_private_directory(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("mode", "owner", "uid", "is_private"),
    [
        (stat.S_IFDIR | 0o700, US, US, True),
        (stat.S_IFDIR | 0o500, US, US, True),
        (stat.S_IFDIR | 0o710, US, US, False),
        (stat.S_IFDIR | 0o701, US, US, False),
        (stat.S_IFDIR | 0o1777, 0, 0, False),
        (stat.S_IFDIR | 0o700, STRANGER, US, False),
        (stat.S_IFDIR | 0o700, 0, US, False),
        (stat.S_IFDIR | 0o700, US, 0, False),
        (stat.S_IFREG | 0o600, US, US, False),
    ],
)
def test_a_private_directory_is_ours_and_closed_also_for_root(mode, owner, uid, is_private):
    offence = private_directory_offence("/x", status_of(mode, owner=owner), uid=uid)
    assert (offence is None) is is_private


@pytest.mark.parametrize(
    ("mode", "owner", "is_safe"),
    [
        (stat.S_IFDIR | 0o755, US, True),
        (stat.S_IFDIR | 0o755, 0, True),
        (stat.S_IFDIR | 0o755, STRANGER, False),
        (stat.S_IFDIR | 0o775, US, False),
        (stat.S_IFDIR | 0o757, US, False),
        (stat.S_IFDIR | 0o775, 0, False),
        (stat.S_IFDIR | 0o1777, 0, True),
        (stat.S_IFDIR | 0o1777, US, False),
        (stat.S_IFDIR | 0o1777, STRANGER, False),
        (stat.S_IFLNK | 0o777, US, True),
        (stat.S_IFLNK | 0o777, 0, True),
        (stat.S_IFLNK | 0o777, STRANGER, False),
    ],
)
def test_a_step_is_ours_or_roots_and_not_writable_by_others_or_sticky(mode, owner, is_safe):
    offence = step_offence("/x", status_of(mode, owner=owner), uid=US)
    assert (offence is None) is is_safe


def test_every_directory_on_the_way_is_looked_at(tmp_path):
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    assert unsafe_step(str(tmp_path / "a" / "b" / "c")) is None
    (tmp_path / "a").chmod(0o777)
    offence = unsafe_step(str(tmp_path / "a" / "b" / "c"))
    assert offence is not None
    assert offence.sentence == f"Others may write in {tmp_path}/a (mode 0777)."
    assert offence.hint == f"chmod go-w {tmp_path}/a"


def test_the_last_step_is_not_looked_at(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o777)
    assert unsafe_step(str(tmp_path / "a")) is None


@pytest.mark.parametrize("is_relative", [True, False])
def test_the_directory_that_holds_a_link_and_the_one_it_leads_to_both_count(tmp_path, is_relative):
    for name in ("open", "closed"):
        (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / name / "file").touch()
    (tmp_path / "open").chmod(0o777)
    target = ".." if is_relative else str(tmp_path)
    (tmp_path / "open" / "to_closed").symlink_to(f"{target}/closed/file")
    (tmp_path / "closed" / "to_open").symlink_to(f"{target}/open/file")
    (tmp_path / "closed" / "to_closed").symlink_to(f"{target}/closed/file")

    assert unsafe_step(str(tmp_path / "open" / "to_closed")) is not None
    assert unsafe_step(str(tmp_path / "closed" / "to_open")) is not None
    assert unsafe_step(str(tmp_path / "closed" / "to_closed")) is None


def test_a_link_between_two_links_counts_too(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").touch()
    (tmp_path / "open" / "second").symlink_to(tmp_path / "file")
    (tmp_path / "first").symlink_to(tmp_path / "open" / "second")
    assert unsafe_step(str(tmp_path / "first")) is not None


def test_a_link_itself_is_a_step(tmp_path):
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").touch()
    steps = [step for step, _ in _walk(str(tmp_path / "link"))]
    assert steps[-3:] == [str(tmp_path), str(tmp_path / "link"), str(tmp_path)]


def test_as_many_links_are_followed_as_the_kernel_follows(tmp_path):
    (tmp_path / "0").touch()
    for number in range(1, LINKS_MAX + 2):
        (tmp_path / f"{number}").symlink_to(f"{number - 1}")
    last, one_too_many = tmp_path / f"{LINKS_MAX}", tmp_path / f"{LINKS_MAX + 1}"
    assert last.stat()
    assert unsafe_step(str(last)) is None
    for look in (os.stat, unsafe_step):
        with pytest.raises(OSError, match="Too many levels"):
            look(str(one_too_many))


def test_two_dots_lead_out_of_where_a_link_led_to(tmp_path):
    (tmp_path / "open" / "deep").mkdir(parents=True)
    (tmp_path / "open" / "file").touch()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open" / "deep")
    (tmp_path / "file").touch()
    assert unsafe_step(f"{tmp_path}/link/../file") is not None


def test_a_path_that_ends_early_or_in_a_circle_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        unsafe_step(str(tmp_path / "nowhere" / "s"))
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="Too many levels"):
        unsafe_step(str(tmp_path / "circle"))


def test_a_relative_path_starts_where_we_are(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "s").touch()
    monkeypatch.chdir(tmp_path / "a")
    assert unsafe_step("../s") is None
    tmp_path.chmod(0o777)
    assert unsafe_step("../s") is not None


LINE_BREAK = "\u2028"
"""Of Unicode, not of the kernel."""

MOUNTS = rf"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
40 27 0:40 / /home rw - nfs4 server:/home rw,vers=4.2
41 40 0:41 / /home/local rw shared:3 - xfs /dev/vdb rw
42 27 0:42 / /with\040blank\134s rw - cifs //server/share rw
43 27 0:43 / /twice rw - nfs server:/twice rw
44 43 0:44 / /twice rw - tmpfs tmpfs rw
45 27 0:45 / /fuse rw - fuse.sshfs me@server:/ rw
46 27 0:46 / /broken{LINE_BREAK}name rw - 9p host rw
47 27 0:47 / /safe rw - fuse.ext4 /dev/vdc rw
""".strip()


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/", None),
        ("/var/lib", None),
        ("/home", "nfs4"),
        ("/home/me/state", "nfs4"),
        ("/home/local/state", None),
        ("/home/locals", "nfs4"),
        ("/homes", None),
        ("/with blank\\s/state", "cifs"),
        ("/twice/state", None),
        ("/fuse/state", "fuse.sshfs"),
        (f"/broken{LINE_BREAK}name/state", "9p"),
        ("/safe/state", None),
    ],
)
def test_the_nearest_mount_says_which_file_system_it_is(path, found):
    assert network_filesystem(path, MOUNTS) == found


def test_the_mounts_of_this_machine_can_be_read():
    text = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
    assert network_filesystem("/proc", text) is None


def test_no_local_file_system_is_taken_for_a_network():
    local = {"ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "bcachefs", "fuseblk"}
    assert not local & NETWORK_FILE_SYSTEMS


def disk_of(*, blocks=(9, 9), files=(9, 9), flags=os.ST_NOSUID):
    """A file system with these (all, free) blocks and files."""
    return os.statvfs_result(
        (4096, 4096, blocks[0], *[blocks[1]] * 2, files[0], *[files[1]] * 2, flags, 255)
    )


@pytest.mark.parametrize(
    ("disk", "said"),
    [
        (disk_of(), None),
        (disk_of(blocks=(9, 1), files=(9, 1)), None),
        (disk_of(blocks=(9, 0)), "full"),
        (disk_of(files=(9, 0)), "full"),
        (disk_of(blocks=(0, 0), files=(0, 0)), None),
        (disk_of(flags=os.ST_NOSUID | os.ST_RDONLY), "read-only"),
        (disk_of(blocks=(9, 0), flags=os.ST_RDONLY), "read-only"),
    ],
)
def test_a_disk_on_which_nothing_can_be_written_says_why(disk, said):
    offence = disk_offence(disk)
    assert (offence is None) if said is None else (said in offence.sentence)


def test_a_directory_of_ours_lies_on_a_disk_that_can_be_written(tmp_path):
    assert disk_offence(os.statvfs(tmp_path)) is None
