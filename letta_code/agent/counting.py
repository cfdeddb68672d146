"""How many tokens a request takes. The provider's usage is the truth: each answer corrects the estimate of
the next request.

Counts only. What is too much, and what is done about it, is not decided here.
"""

from __future__ import annotations

import json
from functools import lru_cache

from letta_code.core.messages import (
    Block,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from letta_code.core.tokens import estimated_tokens
from letta_code.models.base import ModelRequest

_MESSAGE = 4  # tokens that mark a message's role and ends
_IMAGE = 1_600  # the most that a picture of the usual size costs; its own size is not looked at


class Counter:
    """Counts for one session's model. `learn` is told what requests really took."""

    def __init__(self) -> None:
        self._request: ModelRequest | None = None
        self._taken = 0

    def request(self, request: ModelRequest) -> int:
        """Tokens that `request` will take. When it goes on from the last one that was answered, that one's
        usage is counted on and only what is new is estimated."""
        last = self._request
        if last is not None and (last.system, last.tools) == (request.system, request.tools):
            known = len(last.messages)
            if request.messages[:known] == last.messages:
                return self._taken + sum(map(message_tokens, request.messages[known:]))
        return (
            sum(map(_text_tokens, request.system))
            + sum(map(spec_tokens, request.tools))
            + sum(map(message_tokens, request.messages))
        )

    def learn(self, request: ModelRequest, usage: Usage) -> None:
        """What an answered request took, its answer not counted."""
        taken = usage.context - usage.output
        if taken > 0:
            self._request, self._taken = request, taken


def message_tokens(message: Message) -> int:
    """About how many tokens `message` takes in a request."""
    return _MESSAGE + sum(map(_block_tokens, message.blocks))


def spec_tokens(spec: ToolSpec) -> int:
    """About how many tokens a tool's name, description and schema take."""
    return _text_tokens(f"{spec.name}\n{spec.description}\n{json.dumps(spec.schema, ensure_ascii=False)}")


def _block_tokens(block: Block) -> int:
    match block:
        case Text(text) | Thinking(text):
            return _text_tokens(text)
        case Image():
            return _IMAGE
        case ToolCall():
            given = block.raw if block.arguments is None else json.dumps(block.arguments, ensure_ascii=False)
            return _MESSAGE + _text_tokens(f"{block.name} {given}")
        case ToolResult():
            return _MESSAGE + sum(map(_block_tokens, block.content))


@lru_cache(maxsize=8192)
def _text_tokens(text: str) -> int:
    return estimated_tokens(text)
