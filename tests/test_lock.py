"""One supervisor a state directory: the second one is told who the first one is."""

import os
import stat

import pytest

from codexdrv.errors import AlreadyRunning, ExitCode, JournalUnusable
from codexdrv.lock import FILE_NAME, held_lock
from tests.fakes.children import run_child, start_child


HOLDER = """
import sys
from codexdrv.lock import held_lock
with held_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""
SECOND = """
import sys
from codexdrv.errors import AlreadyRunning
from codexdrv.lock import held_lock
try:
    with held_lock(sys.argv[1]):
        print("held")
except AlreadyRunning as error:
    print(error.message)
"""

UNWRITTEN = """
import resource, sys
from codexdrv.lock import held_lock
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
with held_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""
"""It may write no byte into any file, as on a full disk."""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock and does not end."""
    child = start_child(HOLDER, str(tmp_path))
    assert child.stdout.readline() == "held\n"
    yield child
    child.communicate()


def test_the_lock_is_a_private_file_with_the_pid_of_its_holder(tmp_path):
    with held_lock(str(tmp_path)):
        status = (tmp_path / FILE_NAME).stat()
        assert stat.S_IMODE(status.st_mode) == 0o600
        assert (tmp_path / FILE_NAME).read_text() == f"{os.getpid()}\n"


def test_a_second_process_is_refused_and_told_the_pid_of_the_first(tmp_path, holder):
    with (
        pytest.raises(AlreadyRunning, match=f"pid {holder.pid}") as caught,
        held_lock(str(tmp_path)),
    ):
        pass
    assert caught.value.exit_code is ExitCode.TRY_LATER
    assert (tmp_path / FILE_NAME).read_text() == f"{holder.pid}\n"


@pytest.mark.field_report("openai/codex#47206", "agmsg#442")
def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path, holder):
    holder.kill()
    holder.wait()
    with held_lock(str(tmp_path)):
        assert (tmp_path / FILE_NAME).read_text() == f"{os.getpid()}\n"


def test_the_lock_is_free_again_when_its_block_is_left(tmp_path):
    with held_lock(str(tmp_path)):
        assert f"pid {os.getpid()}" in run_child(SECOND, str(tmp_path))
    assert run_child(SECOND, str(tmp_path)) == "held\n"
    with pytest.raises(ZeroDivisionError), held_lock(str(tmp_path)):
        _ = 1 / 0
    assert run_child(SECOND, str(tmp_path)) == "held\n"


def test_a_shorter_pid_leaves_nothing_of_a_longer_one(tmp_path):
    (tmp_path / FILE_NAME).write_text("12345678901234567890\n")
    with held_lock(str(tmp_path)):
        assert (tmp_path / FILE_NAME).read_text() == f"{os.getpid()}\n"


def test_two_state_directories_have_two_locks(tmp_path, holder):
    (tmp_path / "other").mkdir()
    with held_lock(str(tmp_path / "other")):
        pass


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalUnusable, match="symbolic links"), held_lock(str(tmp_path)):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_is_held_also_where_there_is_no_room_for_a_pid(tmp_path):
    child = start_child(UNWRITTEN, str(tmp_path))
    assert child.stdout.readline() == "held\n"
    with pytest.raises(AlreadyRunning, match="pid unknown"), held_lock(str(tmp_path)):
        pass
    child.communicate()
