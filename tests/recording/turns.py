"""What is recorded of turns: each function plays one behaviour, on every version."""

from codexdrv.demo.script import COMPACTION, Fail, Hold, RunCommand
from codexdrv.ids import ThreadId, TurnId
from codexdrv.protocol.methods import fence, interrupt_turn, list_turns
from tests.recording.stage import TURN_OF_NOBODY, Stage, is_of, start, steer


OVER_THE_LIMIT = "x" * 1_048_577


def idle_start(stage: Stage) -> None:
    thread = stage.used_thread()
    with stage.tap(thread) as tap:
        tap.call(fence(thread))
        tap.wait_for_end(tap.call(start(thread, "idle"))["turn"]["id"])


def busy_steer(stage: Stage) -> None:
    thread = stage.used_thread()
    turn = stage.held_turn(thread)
    with stage.tap(thread) as tap:
        tap.call(fence(thread))
        tap.call(steer(thread, turn, "steered"))
        stage.release()
        tap.wait_for_end(turn)


def busy_start(stage: Stage) -> None:
    thread = stage.used_thread()
    turn = stage.held_turn(thread)
    with stage.tap(thread) as tap:
        tap.call(start(thread, "while busy"))
        stage.release()
        tap.wait_for_end(turn)


def burst_of_two(stage: Stage) -> None:
    thread = stage.used_thread()
    stage.rig.model.script["one"] = Hold("both")
    with stage.tap(thread) as tap:
        tap.ask(start(thread, "one"))
        turn = tap.call(start(thread, "two"))["turn"]["id"]
        tap.wait_for_input("one")
        stage.release("one")
        tap.wait_for_input("two")
        started = tap.wait_for("turn/started")["turn"]["id"]
        assert turn  # a phantom on 0.144.5
        tap.wait_for_end(started)


def steer_wrong_turn(stage: Stage) -> None:
    thread = stage.used_thread()
    turn = stage.held_turn(thread)
    with stage.tap(thread) as tap:
        tap.call(steer(thread, TURN_OF_NOBODY, "astray"))
        tap.call(interrupt_turn(thread, TURN_OF_NOBODY))
        stage.release()
        tap.wait_for_end(turn)


def steer_quiet(stage: Stage) -> None:
    thread = stage.used_thread()
    with stage.tap(thread) as tap:
        tap.call(steer(thread, TURN_OF_NOBODY, "too late"))


def fence_quiet(stage: Stage) -> None:
    thread = stage.used_thread()
    with stage.tap() as tap:
        tap.call(fence(thread))


def fence_busy(stage: Stage) -> None:
    thread = stage.used_thread()
    turn = stage.held_turn(thread)
    with stage.tap() as tap:
        tap.call(fence(thread))
        tap.call(fence(thread, turn))


def compaction(stage: Stage) -> None:
    thread = stage.used_thread()
    stage.rig.model.script[COMPACTION] = Hold("summary")
    with stage.tap(thread) as tap:
        stage.truth.call("thread/compact/start", threadId=thread)
        turn = tap.wait_for("item/started", is_of("contextCompaction"))["turnId"]
        tap.call(fence(thread))
        tap.call(steer(thread, turn, "steered"))
        tap.call(start(thread, "started"))
        stage.release(COMPACTION)
        tap.wait_for_end(turn)
        tap.call(list_turns(thread))


def compaction_in_a_turn(stage: Stage) -> None:
    thread = stage.used_thread()
    stage.rig.model.script["too much"] = Fail("context_length_exceeded")
    with stage.tap(thread) as tap:
        tap.wait_for_end(tap.call(start(thread, "too much"))["turn"]["id"])
        tap.wait_for_end(tap.call(start(thread, "after"))["turn"]["id"])


def review(stage: Stage) -> None:
    thread = stage.used_thread()
    stage.rig.model.script["look"] = Hold("fine")
    target = {"type": "custom", "instructions": "look"}
    with stage.tap(thread) as tap:
        begun = stage.truth.call("review/start", threadId=thread, target=target)
        turn = TurnId(begun["turn"]["id"])
        tap.wait_for("item/started", is_of("enteredReviewMode"))
        stage.rig.model.wait_for_prompt("look")
        tap.call(fence(thread))
        tap.call(steer(thread, turn, "steered"))
        tap.call(start(thread, "started"))
        stage.release("look")
        tap.wait_for_end(turn)
        tap.call(fence(thread))


def approval(stage: Stage) -> None:
    stage.rig.model.script["work"] = RunCommand("touch made-by-codex", then="worked")
    thread = ThreadId(stage.truth.start_thread(stage.rig.cwd, approval_policy="untrusted"))
    stage.truth.wait_for_turn(stage.truth.start_turn(thread, "first"))
    asks = "item/commandExecution/requestApproval"
    with stage.tap(thread) as tap:
        turn = TurnId(tap.call(start(thread, "work"))["turn"]["id"])
        tap.wait_for(asks)
        tap.call(steer(thread, turn, "meanwhile"))
        request = stage.truth.wait_for(lambda message: message["method"] == asks)
        stage.truth.answer(request, {"decision": "accept"})
        tap.wait_for("serverRequest/resolved")
        tap.wait_for_end(turn)


def interrupted_turn(stage: Stage) -> None:
    thread = stage.used_thread()
    turn = stage.held_turn(thread)
    with stage.tap(thread) as tap:
        tap.call(interrupt_turn(thread, turn))
        tap.wait_for_end(turn)


def interrupted_steer(stage: Stage) -> None:
    thread = stage.used_thread()
    turn = stage.held_turn(thread)
    with stage.tap(thread) as tap:
        tap.call(steer(thread, turn, "cut off"))
        tap.call(interrupt_turn(thread, turn))
        tap.wait_for_end(turn)
        tap.call(list_turns(thread))


def interrupt_quiet(stage: Stage) -> None:
    thread = stage.used_thread()
    with stage.tap(thread) as tap:
        tap.call(interrupt_turn(thread, TURN_OF_NOBODY))


def interrupted_again(stage: Stage) -> None:
    thread = stage.used_thread()
    turn = stage.held_turn(thread)
    with stage.tap(thread) as tap:
        tap.call(interrupt_turn(thread, turn))
        tap.wait_for_end(turn)
        # 0.144.5 and 0.163.0 still take it for the one that runs: no answer, and a wrong one.
        tap.ask(interrupt_turn(thread, turn))
        tap.call(interrupt_turn(thread, TURN_OF_NOBODY))
        tap.call(fence(thread))


def failed_turn(stage: Stage) -> None:
    thread = stage.used_thread()
    stage.rig.model.script["break"] = Fail("server_error")
    with stage.tap(thread) as tap:
        tap.wait_for_end(tap.call(start(thread, "break"))["turn"]["id"])
        tap.wait_for_end(tap.call(start(thread, "mend"))["turn"]["id"])


def too_large(stage: Stage) -> None:
    thread = stage.used_thread()
    with stage.tap(thread) as tap:
        tap.call(start(thread, OVER_THE_LIMIT))


TURNS = (
    approval,
    burst_of_two,
    busy_start,
    busy_steer,
    compaction,
    compaction_in_a_turn,
    failed_turn,
    fence_busy,
    fence_quiet,
    idle_start,
    interrupt_quiet,
    interrupted_again,
    interrupted_steer,
    interrupted_turn,
    review,
    steer_quiet,
    steer_wrong_turn,
    too_large,
)
