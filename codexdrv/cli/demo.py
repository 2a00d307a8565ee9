"""`codexdrv demo`: see a message go in, in four situations, on a real server."""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from codexdrv import __version__
from codexdrv.binary import bundled_binary
from codexdrv.demo.scenario import BUSY, DOWN, IDLE, MESSAGES, RESTART, Message, Proof, Stage
from codexdrv.errors import ExitCode


EPILOG = """\
examples:
  codexdrv demo
  codexdrv demo --keep      leave the files, and say how to look at them

It needs no account and no network: the server is the one of the extra `codex`,
the model is a script on loopback. It touches nothing outside its own temporary
directory.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = EPILOG
    parser.add_argument("--keep", action="store_true", help="leave the files")


def run(args: argparse.Namespace) -> ExitCode:
    """Play the four scenes, then show the thread's own history."""
    began = time.monotonic()
    binary = bundled_binary()
    root = Path(tempfile.mkdtemp(prefix="codexdrv-demo-"))
    try:
        stage = Stage(root, binary, version=__version__)
        _say(f"A real codex app-server, a scripted model, one thread. Files: {root}")
        with stage.open():
            proof = _play(stage)
        _show(stage, proof)
    finally:
        if args.keep:
            _say(
                f"\nThe files stay in {root}. Look around:\n"
                f"  codexdrv --config {root}/config.toml list\n"
                f"  codexdrv --config {root}/config.toml status {BUSY.id} --explain"
            )
        else:
            shutil.rmtree(root, ignore_errors=True)
    _say(
        f"\n{'It holds' if proof.holds else 'IT DOES NOT HOLD'}; {time.monotonic() - began:.1f} s."
    )
    return ExitCode.OK if proof.holds else ExitCode.FAILED


def _play(stage: Stage) -> Proof:
    _deliver(stage, DOWN)
    _say("  ... now the supervisor starts: codexdrv supervise")
    with stage.supervisor():
        _tell(stage.wait_until_settled(DOWN))
        _deliver(stage, IDLE)
        stage.wait_until_surfaced(IDLE)
        _say("  ... it is in the thread, and its turn runs; the next message does not wait for it")
        _deliver(stage, BUSY)
        stage.wait_until_surfaced(BUSY)
        stage.model.release(IDLE.text)
        _tell(stage.wait_until_settled(BUSY))
        _say(f"  and the one before, {IDLE.id}:")
        _tell(stage.wait_until_settled(IDLE))
        stage.server.stop()
        _deliver(stage, RESTART)
        _say("  ... now the server starts again")
        stage.server.start()
        _tell(stage.wait_until_settled(RESTART))
    return stage.proof()


def _deliver(stage: Stage, message: Message) -> None:
    number = MESSAGES.index(message) + 1
    _say(f"\n[{number}/{len(MESSAGES)}] {message.scene}")
    _say(f'  $ codexdrv deliver --thread {stage.thread} --id {message.id} "{message.text}"')
    for line in stage.deliver(message).splitlines():
        _say(f"  {line}")


def _tell(story: list[str]) -> None:
    for line in story:
        _say(f"    {line}")


def _show(stage: Stage, proof: Proof) -> None:
    _say(f"\nThe proof: what thread {stage.thread} itself shows to another client")
    for message in proof.history:
        _say(f"    {message.turn}  {message.client_id}  {message.text}")
    times = ", ".join(str(count) for count in proof.seen_by_model.values())
    _say(f"  and so often the model saw each of them in one prompt: {times}")


def _say(line: str) -> None:
    print(line, flush=True)
