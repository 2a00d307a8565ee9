"""What is recorded of threads: each function plays one behaviour, on every version."""

from codexdrv.demo.script import Hold
from codexdrv.demo.server import AppServer
from codexdrv.ids import ThreadId
from codexdrv.protocol.methods import (
    Call,
    fence,
    list_items,
    list_loaded,
    list_threads,
    list_turn_statuses,
    list_turns,
    read_thread,
    resume_thread,
    unsubscribe,
)
from tests.acceptance.kit import ServerError
from tests.recording.stage import THREAD_OF_NOBODY, Stage, start, steer, wait_for_drain


OTHER_SOCKET = "other.sock"


def fence_not_loaded(stage: Stage) -> None:
    with stage.tap() as tap:
        tap.call(fence(THREAD_OF_NOBODY))
        tap.call(start(THREAD_OF_NOBODY, "into nothing"))


def never_used_resume(stage: Stage) -> None:
    thread = ThreadId(stage.truth.start_thread(stage.rig.cwd))
    stage.rig.model.script["begin"] = Hold("begun")
    with stage.tap(thread) as tap:
        tap.call(read_thread(thread))
        tap.call(list_items(thread))
        tap.call(list_turns(thread))
        turn = tap.call(start(thread, "begin"))["turn"]["id"]
        stage.rig.model.wait_for_prompt("begin")
        tap.call(resume_thread(thread))
        stage.release("begin")
        tap.wait_for_end(turn)
        tap.call(list_turns(thread))


def never_used_restarted(stage: Stage) -> None:
    thread = ThreadId(stage.truth.start_thread(stage.rig.cwd))
    stage.rig.server.kill()
    stage.rig.server.start()
    with stage.tap(thread) as tap:
        tap.call(read_thread(thread))
        tap.call(start(thread, "into nothing"))


def restart_resume(stage: Stage) -> None:
    thread = stage.used_thread()
    stage.held_turn(thread)
    stage.rig.server.kill()
    stage.rig.server.start()
    with stage.tap() as tap:
        tap.call(fence(thread))
        tap.call(read_thread(thread))
        tap.call(resume_thread(thread))
        tap.call(list_turns(thread))
        tap.wait_for_end(tap.call(start(thread, "back again"))["turn"]["id"])


def thread_started(stage: Stage) -> None:
    with stage.tap() as tap:
        stage.truth.start_thread(stage.rig.cwd)
        tap.wait_for("thread/started")


def foreign_client(stage: Stage) -> None:
    thread = stage.used_thread()
    with stage.tap(thread) as tap:
        tap.wait_for_end(stage.truth.start_turn(thread, "from elsewhere", client_id="theirs"))


def not_subscribed(stage: Stage) -> None:
    thread = stage.used_thread()
    with stage.tap() as tap:
        turn = tap.call(start(thread, "unheard"))["turn"]["id"]
        stage.truth.wait_for_turn(turn)
        tap.call(list_turns(thread))


def unsubscribed(stage: Stage) -> None:
    thread = stage.used_thread()
    with stage.tap(thread) as tap:
        tap.call(unsubscribe(thread))
        stage.truth.wait_for_turn(stage.truth.start_turn(thread, "behind our back"))
        tap.call(fence(thread))


def archived(stage: Stage) -> None:
    thread = stage.used_thread()
    with stage.tap(thread) as tap:
        stage.truth.call("thread/archive", threadId=thread)
        tap.wait_for("thread/archived")
        tap.call(resume_thread(thread))
        tap.call(start(thread, "too late"))
        stage.truth.call("thread/unarchive", threadId=thread)
        tap.wait_for("thread/unarchived")
        tap.call(resume_thread(thread))


def deleted(stage: Stage) -> None:
    thread = stage.used_thread()
    with stage.tap(thread) as tap:
        stage.truth.call("thread/delete", threadId=thread)
        tap.wait_for("thread/deleted")
        tap.call(resume_thread(thread))
        tap.call(read_thread(thread))


def reverted(stage: Stage) -> None:
    thread = stage.used_thread()
    with stage.tap(thread) as tap:
        turn = tap.call(start(thread, "regretted"))["turn"]["id"]
        tap.wait_for_end(turn)
        try:
            stage.truth.call("thread/revert", threadId=thread, beforeTurnId=turn)
        except ServerError:  # 0.144.5 has the older way
            stage.truth.call("thread/rollback", threadId=thread, numTurns=1)
        tap.call(read_thread(thread))
        tap.call(list_turns(thread))


def draining(stage: Stage) -> None:
    thread = stage.used_thread()
    turn = stage.held_turn(thread)
    with stage.tap(thread) as tap:
        stage.rig.server.terminate()
        wait_for_drain(stage.truth, thread)
        tap.call(start(thread, "one more"))
        tap.call(steer(thread, turn, "and this"))
        tap.call(read_thread(thread))
        stage.release()
        # Not for the turn's end: the connection may be closed before it was told.
        tap.wait_until_closed()


def active_writer(stage: Stage) -> None:
    thread = stage.used_thread()
    rig = stage.rig
    other = AppServer(
        rig.server.binary, rig.home, rig.root / OTHER_SOCKET, rig.root / "other-server.log"
    )
    with other, stage.tap(thread, socket=OTHER_SOCKET) as tap:
        tap.call(read_thread(thread))


def ephemeral(stage: Stage) -> None:
    made = stage.truth.call("thread/start", cwd=str(stage.rig.cwd), ephemeral=True)
    thread = ThreadId(made["thread"]["id"])
    stage.truth.wait_for_turn(stage.truth.start_turn(thread, "fleeting"))
    with stage.tap(thread) as tap:
        tap.call(read_thread(thread))
        tap.call(list_turns(thread))


def newest_items(stage: Stage) -> None:
    thread = stage.steered_thread()
    with stage.tap() as tap:
        tap.call(list_items(thread))


def newest_turns(stage: Stage) -> None:
    thread = stage.steered_thread()
    with stage.tap() as tap:
        tap.call(list_turns(thread))
        tap.call(list_turn_statuses(thread))


def all_turns(stage: Stage) -> None:
    thread = stage.steered_thread()
    with stage.tap() as tap:
        tap.call(read_thread(thread, with_turns=True))


def thread_pages(stage: Stage) -> None:
    stage.used_thread()
    stage.used_thread()
    with stage.tap() as tap:
        cursor = tap.call(list_threads(None, 1))["nextCursor"]
        tap.call(list_threads(cursor, 1))


def loaded_pages(stage: Stage) -> None:
    stage.used_thread()
    stage.used_thread()
    with stage.tap() as tap:
        cursor = tap.call(list_loaded())["nextCursor"]
        tap.call(list_loaded(cursor, 100))


def unknown_method(stage: Stage) -> None:
    with stage.tap() as tap:
        tap.call(Call("thread/nothing", {}))
        tap.call(Call("turn/start", {}))


THREADS = (
    active_writer,
    all_turns,
    archived,
    deleted,
    draining,
    ephemeral,
    fence_not_loaded,
    loaded_pages,
    foreign_client,
    never_used_restarted,
    never_used_resume,
    newest_items,
    newest_turns,
    not_subscribed,
    restart_resume,
    reverted,
    thread_pages,
    thread_started,
    unknown_method,
    unsubscribed,
)
