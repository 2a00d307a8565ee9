"""Python processes for tests that need another one: what they run is the test's business."""

import os
import subprocess
import sys
from pathlib import Path


CHECKOUT = Path(__file__).parents[2]


def start_child(script: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a script that can import what the tests can; its pipes are lines of text."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )


def run_child(script: str, *arguments: str) -> str:
    """Run a script to its end, which must be a good one; return what it printed."""
    child = start_child(script, *arguments)
    printed, _ = child.communicate()
    assert child.returncode == 0
    return printed
