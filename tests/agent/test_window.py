"""What fills the window, and a system prompt that alone does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from letta_code.agent.counting import Counter
from letta_code.agent.window import filled
from letta_code.core.messages import Message, Text, Thinking, ToolCall, ToolResult, Usage
from letta_code.core.tokens import estimated_tokens
from letta_code.memory.git.repository import Author
from letta_code.models.base import ModelRequest
from tests.agent.support import Bench, Scripted, done, said
from tests.agent.windowed import Windowed, says


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench.make(tmp_path)


def remember(bench: Bench, **files: str) -> None:
    memory = bench.store.memory(bench.state)
    for name, text in files.items():
        path = memory.worktree / "system" / f"{name}.md"
        path.write_text(f"---\ndescription: {name}\n---\n{text}\n")
    memory.commit_drafts("facts", Author("me", "me@example.org"))


async def test_the_parts_add_up_to_the_total_that_the_last_usage_tells(bench: Bench) -> None:
    remember(bench, large="many words of a fact " * 200, small="one fact")
    (bench.root / "project" / "AGENTS.md").write_text("Run the tests with make check. " * 30)
    session = bench.session(Scripted([said("Yes. " * 50)]))
    await bench.turn(session, "please " * 100)
    prepared = session.prompts.prepare(session.conversation.last_prompt, True)
    thinking = Thinking("hm " * 100, "anthropic", "test/model", {"block": {}})
    call = ToolCall("a", "Look", {"how": "ok " * 50})
    summary = Message("user", (Text("It was said that. " * 30),), "harness")
    messages = (
        summary,
        *session.conversation.messages,
        Message("assistant", (thinking, call), "agent"),
        Message("tool", (ToolResult("a", (Text("found " * 80),)),), "harness"),
        Message("system", (Text("Memory changed. " * 20),), "harness"),
    )
    request = ModelRequest((prepared.system, "Skills: none."), messages, session.toolbox.specs(), "x")
    snapshot = session.memory.snapshot(prepared.key.revision)
    for usage in (None, Usage(7_000, 10, 1_234, 5)):
        counter = Counter()
        counter.use(session.model.info)
        if usage is not None:
            counter.learn(request, usage)
        shown = filled(request, counter, session.model.info, session.prompts.base, snapshot, [summary])
        assert sum(part.tokens for part in shown.parts) == shown.total
        assert all(sum(size for _, size in part.items) == part.tokens for part in shown.parts if part.items)
        assert shown.free == shown.window - shown.total - shown.reserved
        assert shown.measured == (usage is not None)
        assert usage is None or shown.total == 8_239
        for name in ("base prompt", "core memory", "skills", "tools", "project notes", "summary"):
            assert shown.part(name).tokens > 0, name
        memory = dict(shown.part("core memory").items)
        assert memory["system/large.md"] > 20 * memory["system/small.md"]
        assert set(dict(shown.part("tools").items)) == {"Look", "Do"}
        kinds = dict(shown.part("messages").items)
        assert all(size > 10 for size in kinds.values()), kinds
    await session.close()


async def test_a_system_prompt_that_fills_the_window_is_not_sent_and_does_not_stay(bench: Bench) -> None:
    remember(bench, large="many words of a fact " * 3_000)
    model = Scripted([said("hello")], window=12_000)
    session = bench.session(model)
    last = done(await bench.turn(session, "do it"))
    assert model.requests == []
    assert last.error is not None
    assert (last.error.kind, last.error.exit_code) == ("context_window_overflow_in_system_prompt", 1)
    assert "\n" not in last.error.message
    assert "core memory 1" in last.error.message
    assert "12,000" in last.error.message
    assert last.error.hint.startswith("shorten what is large (system/large.md (1")
    assert session.conversation.messages == ()
    path = bench.paths.conversation(bench.state.key, session.conversation.id)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert any("do it" in json.dumps(record) for record in records if record["kind"] == "input")
    remember(bench, large="few words")
    assert done(await bench.turn(session, "again")).text == "hello"
    assert len(model.requests[0].messages) == 1
    await session.close()


async def test_memory_that_was_shortened_is_compiled_anew_where_the_kept_prompt_does_not_fit(
    bench: Bench,
) -> None:
    remember(bench, large="many words of a fact " * 3_000, shown="first")
    session = bench.session(Scripted([said("hello")]))
    assert done(await bench.turn(session)).text == "hello"
    small = Scripted([said("again"), said("and again")], window=12_000)
    session.set_model(small)
    refused = done(await bench.turn(session)).error
    assert refused is not None
    assert refused.kind == "context_window_overflow_in_system_prompt"
    remember(bench, large="few words", shown="second")
    assert done(await bench.turn(session)).text == "again"
    (request,) = small.requests
    assert "second" in request.system[0]
    assert not any(message.role == "system" for message in request.messages)
    assert done(await bench.turn(session)).text == "and again"
    assert small.requests[1].system == request.system
    await session.close()


async def test_a_server_that_refuses_the_kept_prompt_is_sent_memory_as_it_is_now(bench: Bench) -> None:
    remember(bench, large="many words of a fact " * 1_000, shown="first")
    model = Windowed([says("hello"), says("again")])
    session = bench.session(model)
    await bench.turn(session)
    model.factor = model.window / 5_000  # the window is smaller than it says
    assert done(await bench.turn(session)).error is not None
    remember(bench, large="few words", shown="second")
    assert done(await bench.turn(session)).text == "again"
    assert "second" in model.requests[1].system[0]
    await session.close()


async def test_memory_updates_are_compiled_into_the_prompt_before_they_fill_the_window(bench: Bench) -> None:
    model = Scripted([said("ok") for _ in range(16)], window=40_000)
    session = bench.session(model)
    for number in range(16):
        remember(bench, note=f"fact {number} " + "of some length " * 200)
        await bench.turn(session)
        last = model.requests[-1]
        updates = [message.text for message in last.messages if message.role == "system"]
        assert f"fact {number} " in (updates or last.system)[-1]
        assert sum(map(estimated_tokens, updates)) <= 4_000
    prompts = [request.system for request in model.requests]
    assert 2 <= len(set(prompts)) <= 5
    await session.close()


async def test_the_model_is_warned_while_its_window_is_nearly_full_and_told_when_there_is_room(
    bench: Bench,
) -> None:
    sizes = (700, 840, 845, 855, 400, 400)
    script = [replace(said("ok"), usage=Usage(size * 100, 0)) for size in sizes]
    model = Scripted([*script, said("ok")])
    session = bench.session(model)
    for number in range(7):
        await bench.turn(session, f"message {number}")
    told = [message.blocks[0] for message in model.requests[-1].messages if message.role == "user"]
    assert all(isinstance(block, Text) for block in told)
    words = [block.text if isinstance(block, Text) else "" for block in told]
    assert ["Context window" in text for text in words] == [False, False, True, False, True, True, False]
    assert "Context window: over 80% full (of 100,000 tokens). At 90% the oldest part" in words[2]
    assert "over 85% full" in words[4]
    assert "Context window: there is room again" in words[5]
    assert all("Context window" not in request.system[0] for request in model.requests)
    await session.close()
