"""What the agent asks of a model, and what a model answers: the door every adapter stands behind.

An adapter translates; it never decides. It does not retry (the turn does, visibly), does not count
turns and keeps no history.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from letta_code.core.messages import Message, StopReason, ToolSpec, Usage

Dialect = Literal["anthropic", "openai-responses", "openai-chat"]


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known about a model. `handle` is `provider/name` as the person writes it.

    `window` and `max_output` are tokens; `known` is False when they are stated defaults;
    `system_messages` says whether `{"role": "system"}` is accepted inside the conversation.
    """

    handle: str
    provider: str
    name: str
    dialect: Dialect
    window: int
    max_output: int
    system_messages: bool
    thinking: bool = False
    images: bool = True
    price: Price | None = None
    known: bool = True

    def cost(self, usage: Usage) -> float | None:
        """US dollars for `usage`, or None when the price is not known."""
        if self.price is None:
            return None
        return (
            usage.input * self.price.input
            + usage.output * self.price.output
            + usage.cache_read * self.price.cache_read
            + usage.cache_write * self.price.cache_write
        ) / 1_000_000


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request. `system` are the parts of the system prompt, in order; the first is the compiled
    prompt. `messages` may have several of one role in a row; adapters merge what their dialect wants
    merged. `conversation_id` is for providers' cache routing only.
    """

    system: tuple[str, ...]
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    conversation_id: str


@dataclass(frozen=True, slots=True)
class TextPart:
    """Words as they arrive."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    """Reasoning as it arrives."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A tool call begins."""

    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The whole message, always the last part of a stream that did not fail.

    `message` has role `assistant`; its call ids are unique and not empty (the adapter makes one where
    the server gave none or the same twice). `notes` are things the person should know, such as a server
    that seems to have dropped the system prompt.
    """

    message: Message
    usage: Usage
    stop: StopReason
    notes: tuple[str, ...] = ()


ModelPart: TypeAlias = TextPart | ThinkingPart | ToolCallPart | Completed


class Model(Protocol):
    """A model that can be asked."""

    @property
    def info(self) -> ModelInfo:
        """What is known about it; may become more exact after the first request (served window)."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Send one request and yield its parts, `Completed` last.

        Raises:
            ModelError: the request failed, of the kind that says why. Also when the stream closed
                before its end or was silent for the idle timeout: never a `Completed` for a part.
        """
        ...

    async def close(self) -> None:
        """Free the connection."""
        ...
