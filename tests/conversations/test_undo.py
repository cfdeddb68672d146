"""Turns that an undo took out of a conversation, and the news of undos that the model has not been told."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from letta_code.conversations.history import History, Sent, Update
from letta_code.conversations.store import Conversation, ConversationStore
from letta_code.core.messages import Message, PromptKey, Text, Usage
from tests.conversations.test_log import KEY, SENT, answer, assert_valid, call, ok, paths, user

UPDATED = Sent(
    PromptKey("b", "r1", "r2"), "test/model", "0" * 64, Update("u", Message("system", (Text("r2"),)))
)


def a_turn(conversation: Conversation, words: str, sent: Sent = SENT) -> None:
    conversation.begin_turn(user(words))
    conversation.add_answer(1, answer("", call("c")), "tool_use", Usage(), sent)
    conversation.mark_started("c", "Bash")
    conversation.add_result(ok("c"))
    conversation.commit_step()
    conversation.add_answer(2, answer(f"to {words}"), "end_turn", Usage(), SENT)
    conversation.commit_step()
    conversation.end_turn("success")


def said(history: History) -> list[str]:
    return [message.text for message in history.messages if message.role == "user"]


def test_dropped_turns_leave_with_their_memory_update_and_stay_away(tmp_path: Path) -> None:
    store = ConversationStore(paths(tmp_path))
    conversation = store.create(KEY, tmp_path)
    a_turn(conversation, "one")
    conversation.begin_turn(user("two"))
    conversation.add_answer(1, answer("to two"), "end_turn", Usage(), UPDATED)
    conversation.commit_step()
    assert conversation.last_prompt == UPDATED.prompt
    conversation.undo((2,), "")
    assert conversation.last_prompt == SENT.prompt
    a_turn(conversation, "three")
    conversation.close()
    history = store.read(conversation.id, KEY)
    assert history.problems == []
    assert said(history) == ["one", "three"]
    assert not any(message.role == "system" for message in history.messages)
    assert_valid(history.messages)
    assert history.turns == 3
    steps = {step.turn: step for step in history.steps}
    assert [step.turn for step in history.steps_until(steps[2])] == [1, 1, 2]
    assert [step.turn for step in history.steps_until(steps[3])] == [1, 1, 3, 3]


def test_news_is_told_by_the_next_input_and_again_when_that_leaves(tmp_path: Path) -> None:
    conversation = ConversationStore(paths(tmp_path)).create(KEY, tmp_path)
    a_turn(conversation, "one")
    conversation.undo((), "a.py went back")
    assert conversation.history.news == ["a.py went back"]
    conversation.begin_turn(user("hopeless"))
    assert conversation.history.news == []
    conversation.end_turn("error", "no", dropped=True)
    assert conversation.history.news == ["a.py went back"]
    a_turn(conversation, "two")
    assert conversation.history.news == []
    conversation.undo((3,), "b.py went back")
    assert conversation.history.news == ["a.py went back", "b.py went back"]
    conversation.close()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(st.just("turn"), st.integers(1, 6)), max_size=12))
def test_whichever_turns_leave_what_is_left_is_a_conversation(steps: list[str | int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = ConversationStore(paths(Path(folder)))
        conversation = store.create(KEY, Path(folder))
        left: list[int] = []
        for step in steps:
            if isinstance(step, int):
                gone = [turn for turn in left if turn >= step]
                conversation.undo(gone, "")
                left = left[: len(left) - len(gone)]
            else:
                a_turn(conversation, str(conversation.turns + 1))
                left.append(conversation.turns)
        conversation.close()
        history = store.read(conversation.id, KEY)
        assert said(history) == [str(turn) for turn in left]
        assert_valid(history.messages)
        assert {step.turn for step in history.present_steps} == set(left)


def test_damaged_records_are_left_out_whole(tmp_path: Path) -> None:
    store = ConversationStore(paths(tmp_path))
    conversation = store.create(KEY, tmp_path)
    a_turn(conversation, "one")
    conversation.close()
    path = paths(tmp_path).conversation(KEY, conversation.id)
    whole = path.read_bytes()
    before = store.read(conversation.id, KEY)
    for damaged in (
        b'{"kind":"undo","turn":1,"turns":[1]}',
        b'{"kind":"undo","turn":1,"turns":7,"note":""}',
        b'{"kind":"undo","turn":Infinity,"turns":[],"note":""}',
        b'{"kind":"turn","turn":Infinity,"status":"success"}',
        b'{"kind":"turn","turn":1}',
        b'{"kind":"partial","turn":1,"text":"x"}',
        b'{"kind":"of the future","turn":1}',
    ):
        path.write_bytes(whole + damaged + b"\n")
        after = store.read(conversation.id, KEY)
        assert len(after.problems) == 1, damaged
        assert (after.entries, after.present_steps, after.partials) == (before.entries, before.steps, [])
        assert (after.turns, after.unfinished, after.last_prompt) == (1, None, before.last_prompt)
