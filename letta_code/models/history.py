"""Any conversation as one that every provider accepts, whatever interrupted it.

Afterwards: no empty block or message; each assistant message with calls is followed by one tool message
with one result per call in call order; no result without its call; thinking only where its maker reads
it; the first message is not the assistant's and neither is the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from letta_code.core.messages import Block, Image, Message, Text, Thinking, ToolResult
from letta_code.core.text import well_formed
from letta_code.models.base import ModelInfo

_LOST = "No result was recorded for this call: it was interrupted."
_START = "(The conversation began earlier.)"


def well_formed_history(messages: Iterable[Message], info: ModelInfo) -> list[Message]:
    """`messages` in the shape described above, for the model `info`."""
    cleaned = [_cleaned(message, info) for message in messages]
    turns = list(_paired([message for message in cleaned if message.blocks]))
    while turns and turns[-1].role == "assistant":
        turns.pop()
    if turns and turns[0].role == "assistant":
        turns.insert(0, Message("user", (Text(_START),), "harness"))
    return turns


def _cleaned(message: Message, info: ModelInfo) -> Message:
    blocks = tuple(kept for block in message.blocks if (kept := _kept(block, info)) is not None)
    return replace(message, blocks=blocks, reminder=0)


def _kept(block: Block, info: ModelInfo) -> Block | None:
    if isinstance(block, Text):
        return Text(well_formed(block.text)) if block.text.strip() else None
    if isinstance(block, Thinking):
        own = block.dialect == info.dialect and block.model == info.handle
        return block if own and block.opaque is not None else None
    if isinstance(block, ToolResult):
        content = tuple(kept for item in block.content if (kept := _content(item)) is not None)
        return replace(block, content=content or (Text("(no output)"),))
    return block


def _content(item: Text | Image) -> Text | Image | None:
    if isinstance(item, Text):
        return Text(well_formed(item.text)) if item.text.strip() else None
    return item


def _paired(messages: list[Message]) -> Iterator[Message]:
    for position, message in enumerate(messages):
        if message.role == "tool":
            continue
        yield message
        if message.role == "assistant" and message.tool_calls:
            results = _results_after(messages, position)
            yield Message(
                "tool",
                tuple(
                    results.get(call.id) or ToolResult(call.id, (Text(_LOST),), "interrupted")
                    for call in message.tool_calls
                ),
                "agent",
            )


def _results_after(messages: list[Message], position: int) -> dict[str, ToolResult]:
    results: dict[str, ToolResult] = {}
    for message in messages[position + 1 :]:
        if message.role == "assistant":
            break
        for block in message.blocks:
            if isinstance(block, ToolResult):
                results.setdefault(block.call_id, block)
    return results
