"""What the tests of the models layer share: the three dialects, and a way to ask each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest

from letta_code.core.messages import Message, Text, ToolResult, ToolSpec
from letta_code.errors import ModelError
from letta_code.models.base import Completed, Model, ModelPart, ModelRequest
from letta_code.models.providers import open_model
from letta_code.settings.loading import Settings
from tests.model_server import Dialect, ModelServer, call, turn

KEY = "sk-test-0123456789abcdef"
TOOLS = (
    ToolSpec("LS", "List a folder.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("Read", "Read a file.", {"type": "object", "properties": {"file_path": {"type": "string"}}}),
)
SYSTEM = ("You are an agent. {CORE_MEMORY} </self> 偏好", "Skills: none.")


@dataclass(frozen=True)
class Way:
    """One dialect and how to reach the scripted server in it."""

    dialect: Dialect
    handle: str
    variable: str

    def environment(self, url: str, **more: str) -> dict[str, str]:
        return {f"{self.variable}_BASE_URL": url, f"{self.variable}_API_KEY": KEY, **more}

    def model(self, server: ModelServer, handle: str | None = None, **more: str) -> Model:
        return open_model(handle or self.handle, Settings(), self.environment(server.url, **more))


ANTHROPIC = Way("anthropic", "anthropic/claude-opus-4-8", "ANTHROPIC")
RESPONSES = Way("openai-responses", "openai/gpt-6.2-sol", "OPENAI")
CHAT = Way("openai-chat", "vllm/qwen", "VLLM")
WAYS = (ANTHROPIC, RESPONSES, CHAT)


def user(*texts: str) -> Message:
    return Message("user", tuple(Text(text) for text in texts))


def answers(message: Message, text: str = "out") -> Message:
    """A result for every call of `message`."""
    results = tuple(ToolResult(call.id, (Text(text),)) for call in message.tool_calls)
    return Message("tool", results, "agent")


def request(messages: Sequence[Message], system: tuple[str, ...] = SYSTEM) -> ModelRequest:
    return ModelRequest(system, tuple(messages), TOOLS, "conv-1")


async def parts(
    model: Model, messages: Sequence[Message], system: tuple[str, ...] = SYSTEM
) -> list[ModelPart]:
    seen: list[ModelPart] = []
    async with aclosing(model.stream(request(messages, system))) as stream:  # type: ignore[type-var]
        async for part in stream:
            seen.append(part)
    return seen


async def ask(model: Model, messages: Sequence[Message], system: tuple[str, ...] = SYSTEM) -> Completed:
    """The finished message; the model stays open."""
    last = (await parts(model, messages, system))[-1]
    assert isinstance(last, Completed)
    return last


async def converse(
    way: Way, script: Sequence[Mapping[str, Any]], messages: Sequence[Message], **options: Any
) -> tuple[Completed, ModelServer]:
    """One request to a server that plays `script`; the server is over afterwards and can be looked at."""
    with ModelServer(script, **options) as server:
        model = way.model(server)
        done = await ask(model, messages)
        await model.close()
        return done, server


async def failure(way: Way, fault: Mapping[str, Any], **more: str) -> ModelError:
    """The error that a turn with `fault` ends in, and nothing but it."""
    played = turn("Some words of an answer.", call("LS", path="a/b/c"), thinking="hm", fault=dict(fault))
    with ModelServer([played]) as server:
        model = way.model(server, **more)
        with pytest.raises(ModelError) as caught:
            await parts(model, [user("hi")])
        await model.close()
    assert KEY not in f"{caught.value.message} {caught.value.hint}"
    return caught.value
