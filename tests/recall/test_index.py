"""The index says what the transcripts say: after undos, copies, cuts, kills, and with several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from letta_code.core.messages import ToolCall
from letta_code.errors import ConversationError, StorageError
from letta_code.recall.paging import page, shortened
from tests.recall.support import KEY, OTHER, Memories, said, turn


@pytest.fixture
def memories(tmp_path: Path) -> Memories:
    return Memories.at(tmp_path)


def index(home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.recall.indexer", str(home)], stdout=subprocess.PIPE, text=True
    )


def test_messages_are_found_when_they_are_part_of_the_conversation_and_not_before(memories: Memories) -> None:
    conversation = memories.begin()
    conversation.begin_turn(said("where is the heron?"))
    assert memories.texts("heron") == ["where is the heron?"]
    turn(conversation, "a second try", "the heron is on the roof")
    assert len(memories.texts("heron")) == 2
    conversation.undo((2,), "")
    assert memories.texts("heron") == ["where is the heron?"]
    conversation.begin_turn(said("a heron that no model can take"))
    assert len(memories.texts("heron")) == 2
    conversation.end_turn("error", "too large", dropped=True)
    assert memories.texts("heron") == ["where is the heron?"]
    conversation.undo((1,), "")
    assert memories.texts("heron") == []
    turn(conversation, "the heron once more")
    conversation.close()
    assert memories.texts("heron") == ["the heron once more"]
    assert memories.recall.status().behind == 0


def test_what_tools_were_given_and_gave_is_found_by_role_and_searches_are_no_echo(memories: Memories) -> None:
    conversation = memories.begin()
    call = ToolCall("c", "Grep", {"pattern": "heron", "path": "src"})
    echo = ToolCall("e", "conversation_search", {"query": "heron"})
    turn(conversation, "look", "done", [(call, "src/birds.py: heron = 1"), (echo, "the heron again")])
    conversation.close()
    assert [hit.entry.message.role for hit in memories.search("heron").hits] == ["tool", "assistant"]
    assert [hit.entry.message.role for hit in memories.search("heron", roles=("tool",)).hits] == ["tool"]
    assert memories.search("heron", roles=("user",)).hits == ()
    assert memories.search("again").hits == ()


def test_copies_are_one_until_the_original_loses_its_own(memories: Memories) -> None:
    first = memories.told("the heron sleeps", "the heron wakes")
    copy = memories.store.fork(KEY, first.id, memories.home)
    turn(copy, "the heron flies")
    copy.close()
    found = memories.search("heron")
    assert found.total == 3
    assert {hit.conversation for hit in found.hits} == {first.id, copy.id}
    assert [hit.conversation for hit in found.hits if "flies" not in hit.entry.message.text] == [first.id] * 2
    assert memories.search("heron", conversation=copy.id).total == 3
    again = memories.store.open(KEY, first.id)
    again.undo((2,), "")
    again.close()
    assert {hit.conversation for hit in memories.search("wakes").hits} == {copy.id}
    memories.store.delete(copy.id)
    assert memories.texts("heron") == ["the heron sleeps"]


def test_a_transcript_that_was_cut_replaced_or_touched_is_read_rightly(memories: Memories) -> None:
    conversation = memories.told("one heron", "two herons", "three herons")
    path = memories.paths.conversation(KEY, conversation.id)
    whole = path.read_bytes()
    assert memories.search("heron").total == 3
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5]))
    assert memories.texts("heron") == ["one heron"]
    path.write_bytes(whole)
    assert memories.search("heron").total == 3
    other = Memories.at(memories.home / "other").told("one egret", "two egrets", "three egrets")
    path.write_bytes(Memories.at(memories.home / "other").paths.conversation(KEY, other.id).read_bytes())
    assert memories.texts("heron") == []
    assert memories.search("egret").total == 3
    held = memories.recall.status()
    os.utime(path)
    assert memories.search("egret").total == 3
    assert memories.recall.status() == held
    with path.open("ab") as file:  # torn in the middle of a line, then repaired
        file.write(lines[1][:40])
    assert memories.search("egret").total == 3
    again = memories.store.open(KEY, conversation.id)
    turn(again, "four egrets")
    again.close()
    assert memories.search("egret").total == 4


def test_a_word_that_was_taken_out_of_a_transcript_by_hand_is_not_found(memories: Memories) -> None:
    conversation = memories.told("begin", "the secret is heron", "end")
    path = memories.paths.conversation(KEY, conversation.id)
    assert memories.search("heron").total == 1
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"heron", b"-----"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert memories.search("heron").hits == ()
    assert memories.texts("secret") == ["the secret is -----"]


def test_two_processes_index_at_once_and_a_kill_loses_and_doubles_nothing(memories: Memories) -> None:
    for _ in range(2):
        memories.many(1_600, "heron number")
    killed, whole = index(memories.home), index(memories.home)
    assert killed.stdout is not None
    killed.stdout.readline()
    killed.kill()
    killed.communicate()
    assert whole.communicate()[0].splitlines()[-1] == "found 1000"  # as many as are ranked
    assert memories.search("heron").more
    assert memories.recall.status().messages == 3_200
    assert memories.search('"number 1599"').total == 2


def test_a_damaged_index_is_made_anew_and_said_once(memories: Memories) -> None:
    memories.told("the heron sleeps")
    assert memories.search("heron").total == 1
    path = memories.paths.recall_index()
    for damage in (b"", b"no database", path.read_bytes()[:4096] + b"\xff" * 20_000):
        for file in path.parent.glob("index.db-*"):
            file.unlink()
        path.write_bytes(damage)
        memories.notes.clear()
        assert memories.texts("heron") == ["the heron sleeps"]
        assert len(memories.notes) == (1 if damage else 0)
        memories.notes.clear()
        assert memories.texts("heron") == ["the heron sleeps"]
        assert memories.notes == []
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageError):
        memories.search("heron")


def test_a_rebuild_forgets_what_left(memories: Memories) -> None:
    gone = memories.told("the heron sleeps")
    memories.told("the heron wakes")
    assert memories.search("heron").total == 2
    memories.store.delete(gone.id)
    assert memories.search("heron").total == 1
    assert memories.recall.status().left == 2
    assert memories.recall.rebuild() == 2
    held = memories.recall.status()
    assert (held.conversations, held.messages, held.left, held.behind) == (1, 2, 0, 0)
    assert b"sleep" not in memories.paths.recall_index().read_bytes()


def test_searches_are_narrowed_by_agent_conversation_and_time(memories: Memories) -> None:
    mine, theirs = memories.told("my heron"), memories.told("their heron", key=OTHER)
    assert memories.search("heron").total == 2
    assert memories.texts("heron", agent=OTHER) == ["their heron"]
    assert memories.texts("heron", agent=KEY, conversation=theirs.id) == []
    assert memories.texts("heron", conversation=mine.id) == ["my heron"]
    old = memories.many(2, "old heron")
    assert memories.search("heron", until=1_767_225_600_001).total == 2
    assert {hit.conversation for hit in memories.search("", until=1_767_225_600_001).hits} == {old}
    assert memories.search("heron", since=1_767_225_600_001).total == 2
    assert memories.search("", limit=1).hits[0].entry.message.text in ("noted",)
    assert memories.search("heron", running=(mine.id, 1)).total == 3


def test_pages_are_read_from_the_transcript_by_pointer(memories: Memories) -> None:
    conversation = memories.told("one", "two", "three")
    (hit,) = memories.search("two", before=1, after=1).hits
    assert [entry.message.text for entry in (*hit.before, *hit.after)] == ["noted", "noted"]
    memories.paths.recall_index().unlink()
    for pointer in (hit.pointer, shortened(hit.pointer), hit.pointer.removeprefix("conv-")):
        read = page(memories.store, pointer, 1, 2, KEY)
        assert [entry.message.text for entry in read.entries] == ["noted", "two", "noted", "three"]
        assert (read.place, read.number, read.total, read.conversation) == (1, 3, 6, conversation.id)
    assert page(memories.store, hit.entry.id, 0, 0, KEY, conversation.id).entries == (hit.entry,)
    for pointer in (
        f"{conversation.id}:message-none",
        f"{conversation.id}:",
        f"{conversation.id}:m",
        "conv-9:a",
    ):
        with pytest.raises(ConversationError):
            page(memories.store, pointer, 1, 1, KEY)
    with pytest.raises(ConversationError):  # another agent's
        page(memories.store, hit.pointer, 1, 1, OTHER)
