"""Turns on real memory, tools and transcripts, with a scripted model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from letta_code.core.events import (
    ApprovalAsked,
    MessageDone,
    Notice,
    PromptReady,
    Retrying,
    StepDone,
    StepStarted,
    TextDelta,
    ToolDone,
    ToolRunning,
)
from letta_code.core.messages import Message, Text, Thinking, ToolCall, Usage
from letta_code.core.tooling import Decision
from letta_code.errors import ModelError, UsageError
from letta_code.memory.git.repository import Author
from letta_code.models.base import Completed
from tests.agent.support import Bench, Scripted, asked, check, done, results, said
from tests.conversations.test_log import assert_valid


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench.make(tmp_path)


async def test_a_turn_with_a_call_in_the_order_of_its_events(bench: Bench) -> None:
    model = Scripted([asked(("a", "Look", {})), said("Done.")])
    session = bench.session(model)
    events = await bench.turn(session, "hello")
    kinds = [event.type for event in events]
    assert kinds == [
        *("turn_started", "prompt_ready", "step_started", "message_done", "tool_running", "tool_progress"),
        *("tool_done", "step_done", "prompt_ready", "step_started", "text_delta", "message_done"),
        *("step_done", "turn_done"),
    ]
    last = done(events)
    assert (last.status, last.text, last.steps, last.usage) == ("success", "Done.", 2, Usage(20, 10))
    assert last.cost_usd == pytest.approx(30 / 1_000_000)
    assert last.memory_revision == session.memory.head()
    first = model.requests[0].messages[0]
    assert first.text == "hello"
    assert first.reminder == 1
    reminder = first.blocks[0]
    assert isinstance(reminder, Text)
    assert reminder.text.startswith("<system-reminder>\nDate: 2")
    await session.close()


async def test_requests_without_a_memory_change_are_prefixes(bench: Bench) -> None:
    model = Scripted([asked(("a", "Look", {})), said("1"), said("2")])
    session = bench.session(model)
    await bench.turn(session)
    await bench.turn(session, "more")
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages
        assert (after.system, after.tools) == (before.system, before.tools)
    assert model.requests[2].messages[-1] == Message("user", (Text("more"),))
    await session.close()


async def test_c03_five_calls_one_failing_one_denied_in_call_order(bench: Bench) -> None:
    calls: tuple[tuple[str, str, dict[str, str]], ...] = (
        ("a", "Look", {"how": "wait"}),
        ("b", "Look", {"how": "fail"}),
        ("c", "Look", {"how": "wait"}),
        ("d", "Do", {}),
        ("e", "Do", {}),
    )
    bench.decisions = [Decision("deny", "not today"), Decision("once")]
    session = bench.session(Scripted([asked(*calls), said("ok")]))
    events = await bench.turn(session)
    given = results(session)
    assert [result.call_id for result in given] == list("abcde")
    assert [result.status for result in given] == ["ok", "error", "ok", "denied", "ok"]
    assert "not today" in given[3].text
    assert [item.call_id for item in bench.questions] == ["d", "e"]
    assert bench.do.ran == ["e"]
    assert sum(isinstance(event, ToolDone) for event in events) == 5
    assert_valid(session.conversation.messages)
    await session.close()


async def test_always_is_asked_once(bench: Bench) -> None:
    bench.decisions = [Decision("always")]
    session = bench.session(Scripted([asked(("a", "Do", {}), ("b", "Do", {})), said("ok")]))
    events = await bench.turn(session)
    assert [result.status for result in results(session)] == ["ok", "ok"]
    assert sum(isinstance(event, ApprovalAsked) for event in events) == 1
    await session.close()


async def test_c05_c07_calls_that_cannot_run_get_an_error_and_the_loop_goes_on(bench: Bench) -> None:
    blocks = (
        ToolCall("a", "Look", None, "x" * 200_000, "it is cut off"),
        ToolCall("b", "Nope", {}),
        ToolCall("c", "Look", {"hwo": 1}),
        ToolCall("d", "Look", {"how": "bug"}),
        ToolCall("e", "Look", {"how": "nothing"}),
    )
    message = Message("assistant", (Text(""), *blocks), "agent")
    session = bench.session(Scripted([Completed(message, Usage(), "tool_use"), said("ok")]))
    assert done(await bench.turn(session)).status == "success"
    given = results(session)
    assert [result.status for result in given] == ["error", "error", "error", "error", "ok"]
    assert bench.look.ran == ["d", "e"]
    assert all(0 < len(result.text) < 1000 for result in given)
    assert "Look, Do" in given[1].text
    assert '{"hwo": 1}' in given[2].text
    assert session.conversation.messages[1].blocks == blocks
    await session.close()


async def test_c08_whitespace_is_refused_before_anything_is_written(bench: Bench) -> None:
    session = bench.session(Scripted([]))
    with pytest.raises(UsageError):
        session.turn(" \n\u3000", bench.ask)
    assert session.conversation.turns == 0
    await session.close()


async def test_c12_c15_a_retry_doubles_nothing(bench: Bench) -> None:
    broken = ModelError("closed early", "broken_stream")
    busy = ModelError("overloaded", "overloaded", retry_after=0.01)
    model = Scripted([broken, busy, said("whole")])
    session = bench.session(model)
    events = await bench.turn(session)
    assert [event.attempt for event in events if isinstance(event, Retrying)] == [1, 2]
    assert done(events).text == "whole"
    assert [message.role for message in session.conversation.messages] == ["user", "assistant"]
    assert model.requests[0].messages == model.requests[2].messages  # C14
    assert sum(isinstance(event, TextDelta | StepStarted) for event in events) == 4
    await session.close()


async def test_a_wait_that_is_too_long_is_not_waited(bench: Bench) -> None:
    session = bench.session(Scripted([ModelError("slow down", "rate_limited", retry_after=3600)]))
    last = done(await bench.turn(session))
    assert last.error is not None
    assert (last.error.kind, last.error.exit_code) == ("rate_limited", 75)
    assert "3600 seconds" in last.error.message
    await session.close()


async def test_shown_4_a_failed_request_keeps_the_update(bench: Bench) -> None:
    failures = [ModelError("500", "overloaded") for _ in range(6)]
    model = Scripted([said("1"), *failures, said("2"), said("3")])
    session = bench.session(model)
    await bench.turn(session)
    remember(bench, "Likes tea.")
    last = done(await bench.turn(session, "again"))
    assert last.error is not None
    assert last.error.exit_code == 75
    assert [message.role for message in session.conversation.messages] == ["user", "assistant", "user"]
    await session.close()
    session = bench.session(model, session.conversation.id)
    events = await bench.turn(session, "and again")
    assert [event.how for event in events if isinstance(event, PromptReady)] == ["update"]
    assert "Likes tea." in model.requests[-1].messages[-1].text
    await bench.turn(session, "more")
    assert "Likes tea." in model.requests[-1].messages[-3].text
    assert {request.system for request in model.requests} == {model.requests[0].system}
    await session.close()


async def test_a_model_without_system_messages_gets_a_new_prompt_and_no_old_update(bench: Bench) -> None:
    model = Scripted([said("1"), said("2")])
    session = bench.session(model)
    await bench.turn(session)
    remember(bench, "Likes tea.")
    await bench.turn(session)
    other = Scripted([said("3")], system_messages=False)
    session.set_model(other)
    events = await bench.turn(session)
    assert [event.how for event in events if isinstance(event, PromptReady)] == ["compiled"]
    assert all(message.role != "system" for message in other.requests[0].messages)
    assert "Likes tea." in other.requests[0].system[0]
    await session.close()


async def test_c01_an_interrupted_tool_gets_a_result_and_the_session_goes_on(bench: Bench) -> None:
    calls: tuple[tuple[str, str, dict[str, str]], ...] = (
        ("a", "Look", {}),
        ("b", "Do", {"how": "hang"}),
        ("c", "Do", {}),
    )
    session = bench.session(Scripted([asked(*calls), said("on")]))
    turn = session.turn("go", bench.ask)
    events = []
    async for event in turn.events():
        events.append(event)
        if isinstance(event, ToolRunning) and event.call.id == "b":
            await bench.do.running.wait()
            turn.cancel()
            turn.cancel()
    check(events)
    assert done(events).status == "interrupted"
    assert bench.do.cleaned == 1
    assert [result.status for result in results(session)] == ["ok", "interrupted", "interrupted"]
    assert isinstance(events[-2], StepDone)
    assert done(await bench.turn(session)).status == "success"
    assert_valid(session.conversation.messages)
    await session.close()


async def test_an_interrupted_stream_leaves_only_the_input(bench: Bench) -> None:
    silent = asyncio.Event()
    session = bench.session(Scripted([silent, said("on")]))
    turn = session.turn("go", bench.ask)
    events = []
    async for event in turn.events():
        events.append(event)
        if isinstance(event, TextDelta):
            turn.cancel()
    check(events)
    assert done(events).status == "interrupted"
    assert [message.role for message in session.conversation.messages] == ["user"]
    assert done(await bench.turn(session)).status == "success"
    await session.close()


async def test_an_abandoned_iterator_ends_the_turn(bench: Bench) -> None:
    session = bench.session(Scripted([asked(("a", "Do", {"how": "hang"})), said("on")]))
    stream = session.turn("go", bench.ask).events()
    async for event in stream:
        if isinstance(event, ToolRunning):
            break
    await stream.aclose()  # type: ignore[attr-defined]
    assert bench.do.cleaned == len(bench.do.ran)
    assert [result.status for result in results(session)] == ["interrupted"]
    assert done(await bench.turn(session)).status == "success"
    await session.close()


async def test_a_bug_is_logged_and_the_turn_ends(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    session = bench.session(Scripted([RuntimeError("oops"), said("on")]))
    last = done(await bench.turn(session))
    assert last.error is not None
    assert last.error.kind == "bug"
    assert "RuntimeError: oops" in caplog.text
    assert done(await bench.turn(session)).status == "success"
    await session.close()


async def test_max_turns_keeps_the_last_results(bench: Bench) -> None:
    session = bench.session(Scripted([asked(("a", "Look", {})), asked(("b", "Look", {}))]), max_turns=2)
    last = done(await bench.turn(session))
    assert (last.status, last.steps) == ("max_turns", 2)
    assert [result.call_id for result in results(session)] == ["b"]
    await session.close()


async def test_an_answer_cut_by_the_limit_is_kept_and_its_last_call_is_not_run(bench: Bench) -> None:
    cut = asked(("a", "Look", {}), ("b", "Do", {}), stop="max_tokens")
    session = bench.session(Scripted([cut, said("rest", stop="max_tokens")]))
    events = await bench.turn(session)
    assert [result.status for result in results(session)] == ["ok", "error"]
    assert bench.do.ran == []
    assert done(events).text == "rest"
    assert sum(isinstance(event, Notice) for event in events) == 2
    await session.close()


@pytest.mark.parametrize("blocks", [(), (Text(" "),), (Thinking("hm", "anthropic", "model"),)])
async def test_an_empty_answer_is_asked_for_once_more_and_is_no_success(
    bench: Bench, blocks: tuple[Text, ...]
) -> None:
    empty = Completed(Message("assistant", blocks, "agent"), Usage(1, 2), "end_turn")
    session = bench.session(Scripted([empty, empty, empty, said("on")]))
    events = await bench.turn(session)
    last = done(events)
    assert last.error is not None
    assert (last.status, last.error.kind, last.error.retryable) == ("error", "no_answer", False)
    assert (last.error.message, last.error.exit_code) == ("the model answered nothing", 1)
    assert (last.text, last.steps, last.usage) == ("", 0, Usage(2, 4))
    assert not any(isinstance(event, MessageDone) for event in events)
    assert [message.role for message in session.conversation.messages] == ["user"]
    assert done(await bench.turn(session)).text == "on"
    await session.close()


async def test_a_refusal_and_a_bad_request_leave_no_trace(bench: Bench) -> None:
    bad = ModelError("prompt too long", "context_overflow")
    model = Scripted([said("no", stop="refusal"), bad, said("fine")])
    session = bench.session(model)
    kinds = []
    for _ in range(2):
        last = done(await bench.turn(session))
        assert last.error is not None
        kinds.append(last.error.kind)
    assert kinds == ["refusal", "context_overflow"]
    await bench.turn(session, "other")
    assert [message.text for message in model.requests[-1].messages] == ["other"]
    assert model.requests[-1].messages[0].reminder == 1
    await session.close()


def remember(bench: Bench, text: str) -> None:
    memory = bench.store.memory(bench.state)
    (memory.worktree / "system" / "human.md").write_text(f"---\ndescription: The person.\n---\n{text}\n")
    memory.commit_drafts("note", Author("Ada", "ada@example.com"))
