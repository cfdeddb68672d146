"""What only the Messages dialect has: cache marks, system messages, bound thinking."""

from __future__ import annotations

import json
from typing import Any

from letta_code.core.messages import Message, Text, ToolResult
from tests.model_server import ModelServer, call, turn
from tests.models.support import ANTHROPIC, CHAT, answers, ask, converse, user


def marks(value: Any) -> list[Any]:
    if isinstance(value, dict):
        own = [value] if "cache_control" in value else []
        return own + [found for item in value.values() for found in marks(item)]
    return [found for item in value for found in marks(item)] if isinstance(value, list) else []


async def test_c07_marks_sit_on_system_and_the_last_two_user_messages() -> None:
    done, _ = await converse(ANTHROPIC, [turn("a", call("LS", path="."))], [user("hi")])
    results = Message("tool", (ToolResult(done.message.tool_calls[0].id, (Text(""),)),), "agent")
    history = [user("one"), Message("assistant", (Text("x"),), "agent"), user("hi"), done.message, results]
    _, server = await converse(ANTHROPIC, [turn("ok")], history)
    body = server.requests[0].body
    assert server.violations == []
    assert len(marks(body)) == 3
    assert marks(body["system"]) == [body["system"][-1]]
    assert [bool(marks(message)) for message in body["messages"]] == [False, False, True, False, True]


async def test_results_come_first_in_the_user_message_that_follows() -> None:
    done, _ = await converse(ANTHROPIC, [turn("", call("LS", path="."))], [user("hi")])
    history = [user("hi"), done.message, user("and this"), answers(done.message)]
    _, server = await converse(ANTHROPIC, [turn("ok")], history)
    assert [block["type"] for block in server.requests[0].body["messages"][2]["content"]] == [
        "tool_result",
        "text",
    ]


async def test_memory_updates_are_system_messages_where_the_model_takes_them() -> None:
    update = Message("system", (Text("memory moved"),), "harness")
    history = [user("hi"), update, Message("assistant", (Text("x"),), "agent"), user("b"), update]
    for handle, roles in (
        ("anthropic/claude-opus-4-8", ["user", "system", "assistant", "user", "system"]),
        ("anthropic/claude-opus-4-7", ["user", "assistant", "user"]),
    ):
        with ModelServer([turn("ok")]) as server:
            model = ANTHROPIC.model(server, handle)
            await ask(model, history)
            await model.close()
            assert server.violations == []
            assert [message["role"] for message in server.requests[0].body["messages"]] == roles
            assert json.dumps(server.requests[0].body).count("memory moved") == 2


async def test_c10_thinking_is_left_out_once_what_preceded_it_changed() -> None:
    with ModelServer([turn("a", thinking="bound"), turn("b"), turn("c"), turn("d")]) as server:
        model = ANTHROPIC.model(server)
        first = (await ask(model, [user("hi")])).message
        await ask(model, [user("hi"), first, user("next")])
        await ask(model, [user("hi"), first, user("next")], ("Another system prompt.",))
        await ask(model, [user("summary"), first, user("next")])
        await model.close()
        sent = ["bound" in json.dumps(item.body) for item in server.requests]
    assert sent == [False, True, False, False]


async def test_c10_a_stream_without_signature_leaves_thinking_that_never_goes_back() -> None:
    done, _ = await converse(ANTHROPIC, [turn("a", thinking="t", fault={"no_signature": True})], [user("hi")])
    assert getattr(done.message.blocks[0], "opaque", "") is None
    _, server = await converse(ANTHROPIC, [turn("ok")], [user("hi"), done.message, user("b")])
    assert server.violations == []


async def test_c11_reasoning_is_echoed_after_a_tool_call() -> None:
    for field in ("reasoning_content", "reasoning"):
        options = {"reasoning_field": field, "require_reasoning_echo": True}
        script = [turn("", call("LS", path="."), thinking="why"), turn("ok")]
        with ModelServer(script, **options) as server:  # type: ignore[arg-type]
            model = CHAT.model(server)
            first = (await ask(model, [user("hi")])).message
            await ask(model, [user("hi"), first, answers(first)])
            await model.close()
            assert server.violations == []
            assert server.requests[1].body["messages"][2][field] == "why"


async def test_c23_a_server_that_dropped_the_prompt_is_named_with_the_cure_once() -> None:
    with ModelServer(
        [turn("ok"), turn("ok")], prompt_tokens=40, reported_window=4096, models=["qwen"]
    ) as server:
        model = CHAT.model(server)
        assert model.info.window == 4096
        first = await ask(model, [user("word " * 4_000)])
        second = await ask(model, [user("word " * 4_000)])
        await model.close()
    assert "40 prompt tokens" in first.notes[0]
    assert "--max-model-len" in first.notes[0]
    assert second.notes == ()
