"""The kit against the real server: each step of the script ends a turn as it says."""

from pathlib import Path

import pytest

from codexdrv.demo.script import (
    COMPACTION,
    CutStream,
    Fail,
    Hold,
    Large,
    Reply,
    RunCommand,
    Stream,
)
from tests.acceptance.kit import Message, Rig, Said, ServerError, Truth, read_rollout


pytestmark = pytest.mark.one_version


def end_of_turn(rig: Rig, text: str) -> Message:
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)
    return truth.wait_for_turn(truth.start_turn(thread, text))


def reply_of(turn: Message) -> str:
    (text,) = [item["text"] for item in turn["items"] if item["type"] == "agentMessage"]
    return text


def test_a_text_that_is_not_in_the_script_is_said_back(rig: Rig):
    turn = end_of_turn(rig, "hello")
    assert (turn["status"], reply_of(turn)) == ("completed", "You said: hello")


def test_a_reply_and_a_stream_complete_their_turn(rig: Rig):
    rig.model.script |= {"one": Reply("eins"), "pieces": Stream(("a", "b", "c"))}
    assert reply_of(end_of_turn(rig, "one")) == "eins"
    assert reply_of(end_of_turn(rig, "pieces")) == "abc"


def test_a_large_reply_arrives_whole(rig: Rig):
    rig.model.script["much"] = Large(1_000_000)
    assert reply_of(end_of_turn(rig, "much")) == "x" * 1_000_000


def test_a_command_is_run_without_asking(rig: Rig):
    rig.model.script["touch"] = RunCommand("touch made-by-codex", then="done")
    turn = end_of_turn(rig, "touch")
    assert (turn["status"], reply_of(turn)) == ("completed", "done")
    assert (rig.cwd / "made-by-codex").exists()


def test_a_command_waits_for_an_approval_where_the_policy_says_so(rig: Rig):
    rig.model.script["touch"] = RunCommand("touch made-by-codex", then="done")
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd, approval_policy="untrusted")
    turn = truth.start_turn(thread, "touch")
    request = truth.wait_for(
        lambda message: message["method"] == "item/commandExecution/requestApproval"
    )
    assert not (rig.cwd / "made-by-codex").exists()
    truth.answer(request, {"decision": "accept"})
    assert truth.wait_for_turn(turn)["status"] == "completed"
    assert (rig.cwd / "made-by-codex").exists()


@pytest.mark.parametrize(
    ("step", "info"),
    [
        (Fail("context_length_exceeded"), "contextWindowExceeded"),
        (Fail("server_is_overloaded"), "serverOverloaded"),
        (Fail("server_error"), "other"),
        (CutStream("half an ans"), "other"),
    ],
    ids=str,
)
def test_a_failure_and_a_cut_stream_fail_their_turn(rig: Rig, step: Fail | CutStream, info: str):
    rig.model.script["do it"] = step
    turn = end_of_turn(rig, "do it")
    assert (turn["status"], turn["error"]["codexErrorInfo"]) == ("failed", info)


def test_a_held_turn_runs_until_it_is_released(rig: Rig):
    rig.model.script["busy"] = Hold("free")
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)
    turn = truth.start_turn(thread, "busy")
    rig.model.wait_for_prompt("busy")
    assert truth.running_turn(thread) == turn
    rig.model.release("busy")
    assert reply_of(truth.wait_for_turn(turn)) == "free"
    assert truth.running_turn(thread) is None


def test_a_steer_lands_in_a_held_turn(rig: Rig):
    rig.model.script |= {"busy": Hold("free"), "also": Hold("both")}
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)
    turn = truth.start_turn(thread, "busy", client_id="m1")
    rig.model.wait_for_prompt("busy")
    truth.steer(thread, turn, "also", client_id="m2")
    rig.model.release("busy")  # 0.163 and newer cut the held request; 0.144.5 waits for its end
    prompt = rig.model.wait_for_prompt("also")
    assert prompt.texts[-2:] == ("busy", "also")
    assert truth.running_turn(thread) == turn
    rig.model.release("also")
    assert reply_of(truth.wait_for_turn(turn)) == "both"
    assert truth.history(thread) == [Said("m1", "busy"), Said("m2", "also")]
    assert (rig.model.count("busy"), rig.model.occurrences("busy")) == (2, 1)


def test_a_compaction_is_held_like_a_turn(rig: Rig):
    rig.model.script[COMPACTION] = Hold("a summary")
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)
    truth.wait_for_turn(truth.start_turn(thread, "hello"))
    truth.call("thread/compact/start", threadId=thread)
    started = truth.wait_for(
        lambda message: (
            message["method"] == "item/started"
            and message["params"]["item"]["type"] == "contextCompaction"
        )
    )
    turn = started["params"]["turnId"]
    assert truth.running_turn(thread) == turn
    with pytest.raises(ServerError, match="ActiveTurnNotSteerable"):
        truth.start_turn(thread, "too early")
    rig.model.release(COMPACTION)
    assert truth.wait_for_turn(turn)["status"] == "completed"


def test_the_same_id_sent_twice_is_seen_twice_by_every_witness(rig: Rig):
    rig.model.script["busy"] = Hold("free")
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)
    turn = truth.start_turn(thread, "busy")
    rig.model.wait_for_prompt("busy")
    truth.steer(thread, turn, "twice", client_id="m1")
    truth.steer(thread, turn, "twice", client_id="m1")
    rig.model.release("busy")
    truth.wait_for_turn(turn)
    both = [Said(None, "busy"), Said("m1", "twice"), Said("m1", "twice")]
    assert truth.history(thread) == both
    assert truth.rollout(thread) == both


def test_history_is_read_over_its_pages(rig: Rig):
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)
    said = [Said(f"m{number}", f"text {number}") for number in range(30)]
    for client_id, text in said:
        truth.wait_for_turn(truth.start_turn(thread, text, client_id=client_id))
    assert truth.history(thread) == said
    assert truth.rollout(thread) == said


def test_two_witnesses_agree_and_a_killed_server_ends_both(rig: Rig):
    one, other = rig.truth(), rig.truth()
    thread = one.start_thread(rig.cwd)
    one.start_turn(thread, "hello", client_id="m1")
    one.wait_for_input("m1")
    assert other.loaded_threads() == [thread]
    assert other.history(thread) == [Said("m1", "hello")]
    rig.server.kill()
    with pytest.raises(ConnectionError):
        other.wait_for(lambda _: False)
    with pytest.raises(ConnectionError):
        one.history(thread)
    assert rig.rollout(thread) == [Said("m1", "hello")]


def test_what_was_said_survives_a_kill_and_a_restart(rig: Rig):
    truth = rig.truth()
    thread = truth.start_thread(rig.cwd)
    truth.wait_for_turn(truth.start_turn(thread, "before", client_id="m1"))
    rig.server.kill()
    rig.server.start()
    truth = rig.truth()
    truth.resume(thread)
    truth.wait_for_turn(truth.start_turn(thread, "after", client_id="m2"))
    assert truth.history(thread) == [Said("m1", "before"), Said("m2", "after")]
    assert rig.rollout(thread) == truth.history(thread)


def test_a_rig_leaves_nothing_behind(tmp_path: Path, codex: str):
    with Rig(tmp_path, binary=codex, script={"busy": Hold("free")}) as rig:
        truth = rig.truth()
        truth.start_turn(truth.start_thread(rig.cwd), "busy")
        rig.model.wait_for_prompt("busy")
        behind = rig.socket_path.resolve()
    assert not rig.server.is_running
    assert not rig.socket_path.is_symlink()
    assert not behind.exists()
    with pytest.raises(FileNotFoundError):
        Truth(rig.socket_path)


def test_a_rollout_is_read_in_both_of_its_forms_and_without_its_cut_end(tmp_path: Path):
    sessions = tmp_path / "sessions" / "2026"
    sessions.mkdir(parents=True)
    (sessions / "rollout-2026-01-01-THREAD.jsonl").write_text(
        '{"type":"session_meta","payload":{}}\n'
        '{"type":"event_msg","payload":{"type":"user_message","message":"a","client_id":"m1"}}\n'
        '{"type":"event_msg","payload":{"type":"item_completed","item":{"type":"UserMessage",'
        '"client_id":"m2","content":[{"type":"text","text":"b"}]}}}\n'
        '{"type":"event_msg","payl'
    )
    assert read_rollout(tmp_path, "THREAD") == [Said("m1", "a"), Said("m2", "b")]
    assert read_rollout(tmp_path, "OTHER") == []
