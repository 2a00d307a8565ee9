"""The demo as a newcomer runs it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path


def run_demo(*flags: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    # The directory is private to the demo, and short: a socket's path has 107 bytes.
    return subprocess.run(
        [sys.executable, "-m", "codexdrv", "demo", *flags],
        capture_output=True,
        text=True,
        timeout=50,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        check=False,
        cwd=Path(__file__).parents[2],
    )


def files_of(output: str) -> Path:
    found = re.search(r"Files: (\S+)", output)
    assert found is not None
    return Path(found[1])


def test_the_demo_delivers_four_messages_once_in_order_and_leaves_nothing(tmp_path: Path):
    done = run_demo(tmp_path=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    proof = done.stdout.partition("The proof")[2]
    shown = re.findall(r"demo/\d-\w+", proof)
    assert shown == ["demo/1-down", "demo/2-idle", "demo/3-busy", "demo/4-restart"]
    assert "1, 1, 1, 1" in proof
    assert "It holds" in proof
    assert not files_of(done.stdout).exists()


def test_the_demo_tells_each_decision_and_why(tmp_path: Path):
    told = run_demo(tmp_path=tmp_path).stdout
    for decision in ("resume: this connection", "fence: nobody knows", "start: the server says"):
        assert f"decided to {decision}" in told
    busy = told.partition("[3/4]")[2].partition("and the one before")[0]
    assert "decided to steer: a turn runs" in busy
    restart = told.partition("[4/4]")[2]
    assert "decided to resume" in restart


def test_the_demo_leaves_its_files_when_asked_to(tmp_path: Path):
    done = run_demo("--keep", tmp_path=tmp_path)
    root = files_of(done.stdout)
    try:
        assert (root / "state" / "journal.sqlite3").is_file()
        assert f"--config {root}/config.toml list" in done.stdout
    finally:
        shutil.rmtree(root)
