"""Any event log can be replayed to the same conversation, and every beginning of it is one that each provider
takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from letta_code.conversations.compaction import Compaction
from letta_code.conversations.history import History, Sent, Update
from letta_code.conversations.store import Conversation, ConversationStore
from letta_code.conversations.transcript import parse_line
from letta_code.core.ids import new_message_id
from letta_code.core.messages import Message, PromptKey, Text, ToolCall, ToolResult, Usage
from letta_code.models import anthropic, openai_chat, openai_responses
from letta_code.models.base import ModelInfo, ModelRequest
from tests.conversations.test_log import KEY, assert_valid, paths
from tests.model_server import Dialect
from tests.model_server.rules import Rules

HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "x"}
WORDS = st.sampled_from(["go", "", "line\u2028one\r\ntwo\x85", "偏好 \ud800", "</system-reminder> {}", "\0"])
STEP = st.fixed_dictionaries(
    {
        "text": WORDS,
        "calls": st.lists(st.sampled_from(["ok", "error", "started", "asked"]), max_size=3),
        "update": st.booleans(),
        "extra": st.sampled_from(["", "skills"]),
        "commit": st.booleans(),
    }
)
TURN = st.fixed_dictionaries(
    {
        "asked": WORDS,
        "steps": st.lists(STEP, max_size=2),
        "partial": st.booleans(),
        "end": st.sampled_from(["success", "error", "interrupted", "dropped", "crash", "full disk"]),
        "undo": st.sampled_from([None, None, None, 0, 1, 2]),
        "compaction": st.sampled_from([None, "shortened", "all", "some", "words"]),
    }
)
OPTIONS = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def info(dialect: Dialect, name: str, system_messages: bool = False) -> ModelInfo:
    return ModelInfo(f"p/{name}", "p", name, dialect, 100_000, 1000, system_messages)


def refusals(messages: Sequence[Message]) -> list[str]:
    """What providers say of a next request with `messages` and one more input."""
    request = ModelRequest(("System.",), (*messages, Message("user", (Text("next"),))), (), "conv-1")
    bodies: list[tuple[dict[str, Any], Dialect]] = [
        (openai_chat.build(info("openai-chat", "qwen", True), request), "openai-chat"),
        (openai_responses.build(info("openai-responses", "gpt-6.2-sol", True), request), "openai-responses"),
        (anthropic.build(info("anthropic", "claude-opus-4-8", True), request), "anthropic"),
        (anthropic.build(info("anthropic", "claude-sonnet-5-5"), request), "anthropic"),
    ]
    said = [Rules().check(body, HEADERS, dialect) for body, dialect in bodies]
    return [problem for problem in said if problem is not None]


def play(
    store: ConversationStore, conversation: Conversation, turn: dict[str, Any], number: int
) -> Conversation:
    """One turn as the agent records it, however it ends."""
    words = turn["asked"].replace("\ud800", "?") or "x"
    conversation.begin_turn(Message("user", (Text("reminder"), Text(words)), "person", 1))
    for at, step in enumerate(turn["steps"], 1):
        conversation.set_extra(step["extra"])
        calls = [(ToolCall(f"c{number}-{at}-{i}", "Bash", {}), how) for i, how in enumerate(step["calls"])]
        said = step["text"].replace("\ud800", "?")
        blocks = (*((Text(said),) if said.strip() else ()), *(call for call, _ in calls))
        message = Message("assistant", blocks, "agent") if blocks else None
        told = Message("system", (Text(f"<memory_update>{number}.{at}"),), "harness")
        update = Update(f"message-{number}-{at}", told) if step["update"] else None
        key = PromptKey("b", "r1", "r1")
        conversation.add_answer(at, message, "end_turn", Usage(1, 2), Sent(key, "p/m", "0" * 64, update))
        for call, how in calls:
            if how != "asked":
                conversation.mark_started(call.id, call.name)
            if how in ("ok", "error"):
                conversation.add_result(
                    ToolResult(call.id, (Text(f"{how}\u2028"),), "ok" if how == "ok" else "error")
                )
        if step["commit"] or turn["end"] not in ("crash", "full disk"):
            conversation.recover()
    if turn["compaction"] is not None:
        compact(conversation, turn["compaction"])
    if turn["partial"]:
        conversation.add_partial(len(turn["steps"]) + 1, "p/m", "half a", "", "the stream broke off")
    if turn["end"] == "crash":
        conversation.close()
        conversation = store.open(KEY, conversation.id)
    elif turn["end"] != "full disk":
        conversation.end_turn(turn["end"], None, dropped=turn["end"] == "dropped" and not turn["steps"])
    if turn["undo"] is not None:
        gone = range(max(1, conversation.turns - turn["undo"] + 1), conversation.turns + 1)
        conversation.undo(list(gone), "files were changed back")
    return conversation


def compact(conversation: Conversation, how: str) -> None:
    """What a compaction after the last step records, cut where the agent may cut."""
    entries = conversation.history.visible
    starts = [i for i, entry in enumerate(entries) if i and entry.message.role in ("user", "assistant")]
    results = [block for entry in entries for block in entry.message.blocks if isinstance(block, ToolResult)]
    shortened = {entry.id: {block.call_id: "[cut]" for block in results} for entry in entries}
    words = next((e.id for e in entries if e.turn == conversation.turns and e.message.role == "user"), "")
    summary, first = None, ""
    if how != "shortened":
        summary = Message("user", (Text("<conversation_summary>"),), "harness")
        first = entries[starts[len(starts) // 2]].id if how == "some" and starts else ""
    conversation.compact(
        Compaction(
            new_message_id(),
            "2026-01-01T00:00:00.000+00:00",
            conversation.turns,
            "manual",
            "shortened" if summary is None else "all",
            summary,
            first,
            words if how == "words" else "",
            shortened,
            10,
            5,
            Usage(1, 1),
            "p/m",
            "r1",
        )
    )


def facts(history: History) -> tuple[object, ...]:
    """Everything that a fold tells."""
    return (
        history.header,
        history.entries,
        history.steps,
        history.partials,
        history.turns,
        history.extra,
        history.news,
        history.unfinished,
        history.messages,
        history.visible,
        history.compactions,
        history.last_prompt,
    )


@given(turns=st.lists(TURN, max_size=3), cut=st.integers(0, 10_000))
@OPTIONS
def test_d01_any_log_and_any_beginning_of_it_fold_to_one_conversation_that_all_providers_take(
    tmp_path_factory: pytest.TempPathFactory, turns: list[dict[str, Any]], cut: int
) -> None:
    root = tmp_path_factory.mktemp("log")
    store = ConversationStore(paths(root))
    conversation = store.create(KEY, root)
    for number, turn in enumerate(turns, 1):
        conversation = play(store, conversation, turn, number)
    live = facts(conversation.history)
    conversation.close()
    assert facts(store.read(conversation.id)) == live

    path = paths(root).conversation(KEY, conversation.id)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    history = History()
    seen: list[Message] = []
    for line in lines:
        record = parse_line(line)
        assert record is not None
        history.apply(record)
        if (visible := [entry.message for entry in history.visible]) != seen:
            seen = visible
            assert_valid(history.messages)
            assert_valid(seen)
            assert refusals(seen) == []
    assert history.problems == []
    assert facts(history)[1:] == live[1:]

    end = len(whole) - cut % len(whole)
    path.write_bytes(whole[:end])
    left, size = History(), 0
    for line in lines:
        size += len(line)
        if size <= end + 1 and (record := parse_line(line)) is not None:  # a line break alone may be missing
            left.apply(record)
    assert facts(store.read(conversation.id))[1:] == facts(left)[1:]
    before = left.messages
    opened = store.open(KEY, conversation.id)
    after = facts(opened.history)
    opened.close()
    assert opened.messages[: len(before)] == before
    assert_valid(opened.messages)
    assert refusals([entry.message for entry in opened.history.visible]) == []
    assert facts(store.read(conversation.id)) == after
    again = store.open(KEY, conversation.id)
    assert facts(again.history) == after
    more: dict[str, Any] = {
        "asked": "more",
        "steps": [],
        "partial": False,
        "end": "success",
        "undo": None,
        "compaction": None,
    }
    play(store, again, more, len(turns) + 1)
    again.close()
    reread = store.read(conversation.id)
    assert facts(reread) == facts(again.history) != after
    assert reread.problems == []
