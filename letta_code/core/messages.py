"""Messages: what a conversation is made of and what a model is sent.

Values only. Identity and time belong to the transcript entry that holds a message, never to the
message. There is no provider's shape here: adapters translate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

JSON: TypeAlias = Any
"""A JSON value as the standard library decodes it."""


@dataclass(frozen=True, slots=True)
class Text:
    """Words. Never empty in a stored message."""

    text: str
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class Thinking:
    """A model's reasoning, kept so that the same model can be sent its own words back.

    `opaque` is the provider's own object (signature, encrypted content, field name), returned
    untouched and only to the `dialect` and `model` (a handle) that made it. None means it can never be sent
    back: the stream was cut before the signature came.
    """

    text: str
    dialect: str
    model: str
    opaque: Mapping[str, JSON] | None = None
    type: Literal["thinking"] = "thinking"


@dataclass(frozen=True, slots=True)
class Image:
    """A picture: `data` is base64 of the file's bytes, `media_type` such as image/png."""

    media_type: str
    data: str
    type: Literal["image"] = "image"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model asks for a tool.

    `arguments` is the decoded object, or None when what came was not a JSON object; then `problem`
    says why and `raw` holds what came, cut to 2,000 characters. Such a call is answered with an error
    result and never run.
    """

    id: str
    name: str
    arguments: Mapping[str, JSON] | None
    raw: str = ""
    problem: str = ""
    opaque: Mapping[str, JSON] | None = None
    type: Literal["tool_call"] = "tool_call"


ResultStatus = Literal["ok", "error", "denied", "interrupted", "unknown"]
"""`unknown`: the operation started and its outcome was never recorded (a crash)."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The one answer to the tool call `call_id`. `content` is what the model reads; never empty."""

    call_id: str
    content: tuple[Text | Image, ...]
    status: ResultStatus = "ok"
    type: Literal["tool_result"] = "tool_result"

    @property
    def is_error(self) -> bool:
        """Whether providers are told that the call failed."""
        return self.status != "ok"

    @property
    def text(self) -> str:
        """The words of the result, pictures left out."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


Block: TypeAlias = Text | Thinking | Image | ToolCall | ToolResult

Role = Literal["user", "assistant", "tool", "system"]
"""`system` is only a durable memory update inside a conversation, never the system prompt."""

Origin = Literal["person", "agent", "harness"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Roles: `user` holds Text and Image (the reminder, when there is one, is its first Text block and
    `reminder` is 1); `assistant` holds Thinking, Text and ToolCall in the order they came; `tool`
    holds the results of one assistant message, in call order; `system` holds Text.
    """

    role: Role
    blocks: tuple[Block, ...]
    origin: Origin = "person"
    reminder: int = 0
    """How many leading Text blocks were written by the harness and not by the person."""

    @property
    def text(self) -> str:
        """The words of the message, without reminders, thinking, calls and results."""
        return "\n".join(block.text for block in self.blocks[self.reminder :] if isinstance(block, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls this message asks for, in order."""
        return tuple(block for block in self.blocks if isinstance(block, ToolCall))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more requests as the provider counted them. `input` excludes cached tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )

    @property
    def context(self) -> int:
        """All tokens the request put before the model, plus what it answered."""
        return self.input + self.cache_read + self.cache_write + self.output


StopReason = Literal["end_turn", "tool_use", "max_tokens", "context_full", "refusal", "stop_sequence"]
"""`max_tokens`: the answer reached the output limit; `context_full`: it filled what the window had left."""


@dataclass(frozen=True, slots=True)
class PromptKey:
    """Which compiled prompt a step was sent: the cache key, and the memory the model had seen.

    `base` is the sha256 hex of the base prompt, `revision` the commit id the system prompt was
    compiled from, `seen` the newest revision the model knew of (later than `revision` when memory
    updates were sent inside the conversation).
    """

    base: str
    revision: str
    seen: str


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told about a tool. `schema` is the JSON Schema of its arguments object."""

    name: str
    description: str
    schema: Mapping[str, JSON] = field(default_factory=dict)
