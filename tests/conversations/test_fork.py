"""A copy of a conversation: also while the original is open, and both go on by their ids. And what else may
happen to the file of one: it is emptied, deleted, old, or memory is written meanwhile."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from letta_code.agent.state import AgentStore
from letta_code.conversations.store import ConversationStore
from letta_code.core.messages import Usage
from letta_code.errors import ConversationError, StorageError
from letta_code.memory.edits import Put
from letta_code.memory.git.repository import Author
from letta_code.memory.seed import default_files
from tests.conversations.test_log import KEY, SENT, answer, assert_valid, call, ok, paths, sample, user


def test_d10_a_copy_and_its_original_are_both_resumed_by_their_ids(tmp_path: Path) -> None:
    path, conversation_id, _ = sample(tmp_path)
    before = path.read_bytes()
    store = ConversationStore(paths(tmp_path))
    copy = store.fork(KEY, conversation_id, tmp_path)
    assert path.read_bytes() == before
    assert copy.id != conversation_id
    assert copy.forked_from == conversation_id
    original = store.open(KEY, conversation_id)
    assert copy.messages == original.messages  # what a crash left unfinished is reported in both
    assert "not known whether this was done" in copy.recovered[-1]
    copy.begin_turn(user("only in the copy"))
    copy.end_turn("success")
    original.begin_turn(user("only in the original"))
    original.end_turn("success")
    for one in (copy, original):
        one.close()
    assert store.read(copy.id).messages[-1].text == "only in the copy"
    assert store.read(conversation_id).messages[-1].text == "only in the original"
    assert {item.id: item.forked_from for item in store.list()} == {
        conversation_id: "",
        copy.id: conversation_id,
    }


def test_d06_a_conversation_that_is_open_is_copied_up_to_its_last_checkpoint(tmp_path: Path) -> None:
    store = ConversationStore(paths(tmp_path))
    original = store.create(KEY, tmp_path)
    original.begin_turn(user("first"))
    assert store.fork(KEY, original.id, tmp_path).messages == ()
    original.add_answer(1, answer("", call("a")), "tool_use", Usage(), SENT)
    original.mark_started("a", "Bash")
    original.add_result(ok("a"))
    original.commit_step()
    checkpoint = original.messages
    original.add_answer(2, answer("", call("b")), "tool_use", Usage(), SENT)
    original.mark_started("b", "Bash")
    copy = store.fork(KEY, original.id, tmp_path)
    assert copy.messages == checkpoint
    assert_valid(copy.messages)
    assert copy.running_elsewhere
    assert copy.recovered == ("turn 1 (first) was copied after 1 step; the original may go on with it",)
    original.add_result(ok("b"))
    original.commit_step()
    original.end_turn("success")
    copy.begin_turn(user("another way"))
    copy.close()
    assert not store.open(KEY, copy.id).running_elsewhere
    with pytest.raises(ConversationError, match="open in another process") as refused:
        store.open(KEY, original.id)
    assert "--fork" in refused.value.hint
    original.close()
    assert len(store.read(original.id).messages) == 5


def test_d07_nothing_is_deleted_for_its_age(tmp_path: Path) -> None:
    _, conversation_id, _ = sample(tmp_path)
    store = ConversationStore(paths(tmp_path))
    kept = {}
    for path in sorted(tmp_path.rglob("*.jsonl")):
        os.utime(path, (0, 0))
        kept[path] = path.read_bytes()
    for _ in range(3):
        store.create(KEY, tmp_path).close()
        store.fork(KEY, conversation_id, tmp_path).close()
        assert len(store.list()) >= 2
    assert {path: path.read_bytes() for path in kept} == kept


@pytest.mark.parametrize("content", [b"", b"\0" * 99, b"\n\0\n", b'{"kind":"conversation","v":1,"i', b'{"k'])
def test_an_empty_transcript_is_said_to_be_empty_and_goes_on(tmp_path: Path, content: bytes) -> None:
    path, conversation_id, _ = sample(tmp_path)
    path.write_bytes(content)
    store = ConversationStore(paths(tmp_path))
    conversation = store.open(KEY, conversation_id)
    assert conversation.recovered == ("the transcript was empty: if there was something in it, it is lost",)
    conversation.begin_turn(user("again"))
    conversation.end_turn("success")
    conversation.close()
    assert store.open(KEY, conversation_id).recovered == ()
    assert [message.text for message in store.read(conversation_id).messages] == ["again"]


@pytest.mark.parametrize("content", [b"\xff\xfe no transcript", b"PK\x03\x04" * 500 + b"\n"])
def test_a_transcript_in_which_nothing_can_be_read_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path, conversation_id, _ = sample(tmp_path)
    path.write_bytes(content)
    with pytest.raises(ConversationError, match="nothing in the conversation") as refused:
        ConversationStore(paths(tmp_path)).open(KEY, conversation_id)
    assert "backup" in refused.value.hint
    assert path.read_bytes() == content


def test_a_transcript_that_is_deleted_while_it_is_open_is_noticed(tmp_path: Path) -> None:
    store = ConversationStore(paths(tmp_path))
    conversation = store.create(KEY, tmp_path)
    paths(tmp_path).conversation(KEY, conversation.id).unlink()
    with pytest.raises(StorageError, match="was deleted while it was open"):
        conversation.begin_turn(user("lost"))
    conversation.close()


def test_d09_memory_that_is_written_meanwhile_takes_nothing_from_the_transcript(tmp_path: Path) -> None:
    places = paths(tmp_path)
    state = AgentStore(places).create("tester", "Base.\n", default_files())
    memory = AgentStore(places).memory(state)
    author = Author("tester", f"{state.id}@letta.local")
    store = ConversationStore(places)
    conversation = store.create(state.key, tmp_path)

    def remember(number: int) -> None:
        memory.commit(Put({f"notes/{number}.md": b"x\n"}), f"note {number}", author)

    with ThreadPoolExecutor(1) as pool:
        written = [pool.submit(remember, number) for number in range(15)]
        for number in range(15):
            conversation.begin_turn(user(f"turn {number}"))
            conversation.add_answer(1, answer("fine"), "end_turn", Usage(), SENT)
            conversation.commit_step()
            conversation.end_turn("success")
        for each in written:
            each.result()
    conversation.close()
    assert store.read(conversation.id).messages == conversation.messages
    assert len(conversation.messages) == 30
    assert memory.snapshot().find("notes/14.md") is not None
