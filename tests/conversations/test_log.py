"""The transcript as a write-ahead log: whatever is cut off or damaged, what is left is a conversation."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from letta_code.conversations.history import Sent, Update
from letta_code.conversations.store import ConversationStore
from letta_code.core.ids import DEFAULT_ORG, AgentKey
from letta_code.core.messages import Message, PromptKey, Text, ToolCall, ToolResult, Usage
from letta_code.errors import ConversationError, StorageError
from letta_code.paths import Paths

KEY = AgentKey(DEFAULT_ORG, "agent-1")
SENT = Sent(PromptKey("b", "r1", "r1"), "test/model", "0" * 64)


def paths(root: Path) -> Paths:
    return Paths(root / "memfs", root / "config", root / "data", root / "cache", root / "log")


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def answer(text: str, *calls: ToolCall) -> Message:
    return Message("assistant", (*((Text(text),) if text else ()), *calls), "agent")


def call(call_id: str) -> ToolCall:
    return ToolCall(call_id, "Bash", {"command": "x"})


def ok(call_id: str, text: str = "done") -> ToolResult:
    return ToolResult(call_id, (Text(text),))


def assert_valid(messages: Sequence[Message]) -> None:
    """Each assistant message with calls is answered by the next message: one result a call, in order."""
    for index, message in enumerate(messages):
        assert message.blocks
        if message.role == "assistant" and message.tool_calls:
            results = messages[index + 1]
            assert results.role == "tool"
            given = [block.call_id for block in results.blocks if isinstance(block, ToolResult)]
            assert given == [item.id for item in message.tool_calls]
        if message.role == "tool":
            assert messages[index - 1].role == "assistant"


def sample(root: Path) -> tuple[Path, str, tuple[Message, ...]]:
    """A transcript of two turns, with parallel calls, an update, and an unfinished step at its end."""
    store = ConversationStore(paths(root))
    conversation = store.create(KEY, root)
    conversation.set_extra("<available_skills>")
    conversation.begin_turn(user("first\u2028line\r\nsecond"))
    update = Update("message-u", Message("system", (Text("<memory_update>"),), "harness"))
    conversation.add_answer(1, answer("", call("a"), call("b")), "tool_use", Usage(1, 2), SENT)
    for call_id in ("a", "b"):
        conversation.mark_started(call_id, "Bash")
        conversation.add_result(ok(call_id, "x\u2028\x85\r\ny"))
    conversation.commit_step()
    conversation.add_answer(2, answer("fine"), "end_turn", Usage(3, 4), Sent(SENT.prompt, "m", "", update))
    conversation.commit_step()
    conversation.end_turn("success")
    conversation.begin_turn(user("second"))
    conversation.add_answer(1, answer("go", call("c"), call("d"), call("e")), "tool_use", Usage(), SENT)
    conversation.mark_started("c", "Bash")
    conversation.add_result(ok("c"))
    conversation.mark_started("d", "Bash")
    messages = conversation.messages
    path = paths(root).conversation(KEY, conversation.id)
    conversation.close()
    return path, conversation.id, messages


def test_d04_what_was_written_reads_back_equal(tmp_path: Path) -> None:
    _, conversation_id, messages = sample(tmp_path)
    history = ConversationStore(paths(tmp_path)).read(conversation_id)
    assert history.messages == messages
    assert history.messages[0].text == "first\u2028line\r\nsecond"
    assert [step.turn for step in history.steps] == [1, 1]
    assert history.steps[0].extra == "<available_skills>"
    assert [message.role for message in messages] == [
        "user",
        "assistant",
        "tool",
        "system",
        "assistant",
        "user",
    ]


def test_an_unfinished_step_is_recovered_with_what_is_known_of_each_call(tmp_path: Path) -> None:
    _, conversation_id, before = sample(tmp_path)
    conversation = ConversationStore(paths(tmp_path)).open(KEY, conversation_id)
    assert conversation.messages[: len(before)] == before
    results = conversation.messages[-1]
    assert [block.status for block in results.blocks if isinstance(block, ToolResult)] == [
        "ok",
        "unknown",
        "interrupted",
    ]
    assert "not known whether this was done: Bash" in conversation.recovered[0]
    after = conversation.messages
    conversation.close()
    again = ConversationStore(paths(tmp_path)).open(KEY, conversation_id)
    assert again.messages == after
    assert again.recovered == ("turn 2 (second) was interrupted after 1 step; what was finished is kept",)
    again.begin_turn(user("third"))
    again.close()
    third = ConversationStore(paths(tmp_path)).open(KEY, conversation_id)
    assert third.recovered == ("turn 3 (third) was interrupted after 0 steps; what was finished is kept",)
    third.end_turn("success")
    third.close()
    assert ConversationStore(paths(tmp_path)).read(conversation_id).unfinished is None


def test_d01_every_cut_leaves_a_valid_conversation_that_goes_on(tmp_path: Path) -> None:
    path, conversation_id, _ = sample(tmp_path)
    whole = path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")]
    cuts = sorted({cut for end in ends for cut in (end, end - 1, end - 2, end - 25)} - {0})
    committed = 0
    for cut in cuts:
        path.write_bytes(whole[:cut])
        conversation = ConversationStore(paths(tmp_path)).open(KEY, conversation_id)
        assert_valid(conversation.messages)
        assert len(conversation.history.steps) >= committed
        committed = whole[:cut].count(b'{"kind":"step"')
        conversation.begin_turn(user("after"))
        written = conversation.messages
        conversation.close()
        assert ConversationStore(paths(tmp_path)).read(conversation_id, KEY).messages == written
        assert written[-1].text == "after"
        committed = 0


def test_d01_a_torn_line_is_cut_off_and_the_person_is_told(tmp_path: Path) -> None:
    path, conversation_id, _ = sample(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"kind":"result","call_id":"d","res')
    conversation = ConversationStore(paths(tmp_path)).open(KEY, conversation_id)
    conversation.close()
    assert any("torn" in note for note in conversation.recovered)
    lines = path.read_bytes().split(b"\n")
    assert all(json.loads(line) for line in lines if line)
    assert b'"cut":"{\\"kind\\":\\"result\\"' in path.read_bytes()


def test_damage_in_the_middle_is_skipped_and_reported(tmp_path: Path) -> None:
    path, conversation_id, messages = sample(tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines[3:3] = [b"\0" * 512, b"not json", b"[1]", b'{"kind":"later"}', b"\xff\xfe"]
    path.write_bytes(b"\n".join(lines))
    history = ConversationStore(paths(tmp_path)).read(conversation_id)
    assert history.messages == messages
    assert len(history.problems) == 4


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_lost_or_repeated_lines_leave_a_valid_conversation(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("log")
    path, conversation_id, _ = sample(root)
    lines = path.read_bytes().splitlines(keepends=True)
    chosen = data.draw(st.lists(st.sampled_from(lines), max_size=len(lines) + 5))
    path.write_bytes(b"".join(chosen))
    conversation = ConversationStore(paths(root)).open(KEY, conversation_id)
    assert_valid(conversation.messages)
    conversation.close()


def test_d06_a_second_process_is_refused_at_once(tmp_path: Path) -> None:
    store = ConversationStore(paths(tmp_path))
    conversation = store.create(KEY, tmp_path)
    program = f"""
        from pathlib import Path
        from letta_code.conversations.store import ConversationStore
        from letta_code.core.ids import AgentKey
        from letta_code.errors import ConversationError
        from letta_code.paths import Paths
        root = Path({str(tmp_path)!r})
        store = ConversationStore(Paths(*(root / n for n in ("memfs", "config", "data", "cache", "log"))))
        try:
            store.open(AgentKey({KEY.org!r}, {KEY.agent!r}), {conversation.id!r})
        except ConversationError as error:
            print(error.message)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "open in another process" in done.stdout
    with pytest.raises(ConversationError, match="another process"):
        store.delete(conversation.id)
    conversation.close()
    store.open(KEY, conversation.id).close()
    store.delete(conversation.id)
    assert store.list() == ()


def test_a_full_disk_takes_nothing_half(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:  # the limit on file sizes can't be lifted again, so it is another process that meets it
        code = 1
        try:
            store = ConversationStore(paths(tmp_path))
            conversation = store.create(KEY, tmp_path)
            conversation.begin_turn(user("kept"))
            before = conversation.messages
            import signal

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
            try:
                conversation.add_answer(1, answer("x" * 5000), "end_turn", Usage(), SENT)
            except StorageError:
                code = 0 if conversation.messages == before and conversation.history.pending is None else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store = ConversationStore(paths(tmp_path))
    conversation = store.open(KEY, store.list()[0].id)
    assert [note for note in conversation.recovered if "torn" in note] == []
    assert [message.text for message in conversation.messages] == ["kept"]
    conversation.close()


def test_an_input_that_no_request_can_carry_is_dropped(tmp_path: Path) -> None:
    store = ConversationStore(paths(tmp_path))
    conversation = store.create(KEY, tmp_path)
    conversation.begin_turn(user("too long"))
    conversation.end_turn("error", "window", dropped=True)
    conversation.begin_turn(user("short"))
    conversation.end_turn("error", "overloaded")
    conversation.close()
    assert [message.text for message in store.read(conversation.id).messages] == ["short"]


def test_lists_and_prefixes(tmp_path: Path) -> None:
    _, conversation_id, _ = sample(tmp_path)
    store = ConversationStore(paths(tmp_path))
    empty = store.create(AgentKey(DEFAULT_ORG, "agent-2"), tmp_path)
    empty.close()
    summary = store.find(conversation_id[:12])
    assert (summary.title, summary.turns, summary.cwd) == ("first line second", 2, str(tmp_path))
    assert store.find(conversation_id.removeprefix("conv-")) == summary
    assert {item.id for item in store.list()} == {conversation_id, empty.id}
    assert [item.id for item in store.list(KEY)] == [conversation_id]
    with pytest.raises(ConversationError, match="fits 2"):
        store.find("conv-")
    with pytest.raises(ConversationError, match="there is no"):
        store.find("conv-zzz")
