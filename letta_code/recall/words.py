"""What of a message can be found, by who said it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from letta_code.core.messages import Message, Text, ToolCall, ToolResult

Column = Literal["user", "assistant", "calls", "results"]
COLUMNS: tuple[Column, ...] = ("user", "assistant", "calls", "results")

Role = Literal["user", "assistant", "tool"]
ROLES: dict[Role, tuple[Column, ...]] = {
    "user": ("user",),
    "assistant": ("assistant", "calls"),
    "tool": ("results",),
}

_ECHOES = frozenset({"conversation_search", "archival_memory_search"})
"""Tools whose calls and results repeat what is stored elsewhere: they would be found in its place."""


def findable(message: Message, tools: Mapping[str, str]) -> dict[Column, str]:
    """The texts of a message, those that are empty left out. Thinking, reminders and memory updates are not
    among them. `tools` names the tool of each call by its id, for a message of results."""
    match message.role:
        case "user":
            texts: dict[Column, str] = {"user": message.text}
        case "assistant":
            texts = {"assistant": message.text, "calls": "\n".join(map(_call, message.tool_calls))}
        case "tool":
            texts = {"results": "\n".join(_results(message, tools))}
        case "system":
            texts = {}
    return {column: text for column, text in texts.items() if text.strip()}


def readable(message: Message) -> str:
    """A message as it is shown in a search's result: words, calls and results."""
    parts = []
    for block in message.blocks[message.reminder :]:
        match block:
            case Text():
                parts.append(block.text)
            case ToolCall():
                parts.append(f"→ {block.name} {_arguments(block)}")
            case ToolResult():
                parts.append(f"← {'' if block.status == 'ok' else f'({block.status}) '}{block.text}")
            case _:
                pass
    return "\n".join(part.strip("\n") for part in parts)


def _call(call: ToolCall) -> str:
    return "" if call.name in _ECHOES else f"{call.name} {_arguments(call)}"


def _results(message: Message, tools: Mapping[str, str]) -> list[str]:
    return [
        block.text
        for block in message.blocks
        if isinstance(block, ToolResult) and tools.get(block.call_id) not in _ECHOES
    ]


def _arguments(call: ToolCall) -> str:
    """The arguments as lines of name and value: text in them stays as it is, newlines included."""
    values = call.arguments or {}
    shown = [
        f"{name}: {value}" if isinstance(value, str) else f"{name}: {_plain(value)}"
        for name, value in values.items()
    ]
    return "\n".join(shown)


def _plain(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
