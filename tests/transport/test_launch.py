"""The launcher as a program of its own; what becomes of its child: test_child.py."""

import os
import subprocess
import sys

from codexdrv.transport import launch


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-I", "-S", launch.__file__, *arguments],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )


def test_it_becomes_the_command_and_ends_as_that_does():
    done = run(str(os.getpid()), "/bin/sh", "-c", 'echo "$0" "$1"; exit 5', "name", "argument")
    assert (done.stdout, done.stderr, done.returncode) == ("name argument\n", "", 5)


def test_a_parent_that_has_ended_already_has_no_child():
    # Pid 1 has not started us.
    done = run("1", "/bin/echo", "started")
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr == "The parent ended before its child began.\n"


def test_a_command_that_cannot_be_run_is_one_sentence():
    done = run(str(os.getpid()), "/etc/passwd")
    assert (done.stderr, done.returncode) == ("/etc/passwd cannot be run: Permission denied.\n", 1)
