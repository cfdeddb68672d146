"""Large tool results in fewer words: head and tail, and where the whole is. Deterministic."""

from __future__ import annotations

from collections.abc import Callable

from letta_code.core.messages import Image, Message, Text, ToolResult

Measure = Callable[[Message], int]
"""Tokens that a message takes in a request."""

LEAST = 80
"""Tokens below which nothing is shortened: the note alone takes as many."""

_HEAD = 0.65  # share of what is kept that comes from the beginning


def result_tokens(result: ToolResult, measure: Measure) -> int:
    """Tokens of one result."""
    return measure(Message("tool", (result,), "harness"))


def shortened(result: ToolResult, tokens: int, where: str, measure: Measure) -> str:
    """The text of `result` cut to about `tokens`, with a note that names `where` the whole is."""
    text, pictures = result.text, sum(isinstance(block, Image) for block in result.content)
    size = result_tokens(ToolResult(result.call_id, (Text(text),)), measure)
    room = len(text)
    while True:
        cut = _cut(text, room, pictures, where)
        size = result_tokens(ToolResult(result.call_id, (Text(cut),)), measure)
        if size <= tokens or room == 0:
            return cut
        room = min(room - 1, int(room * tokens / size * 0.95)) if room > 40 else 0


def _cut(text: str, room: int, pictures: int, where: str) -> str:
    head = text[: int(room * _HEAD)]
    tail = text[len(text) - (room - len(head)) :] if room > len(head) else ""
    gone = len(text) - len(head) - len(tail)
    left_out = [f"{gone:,} of {len(text):,} characters"] if gone else []
    left_out += [f"{pictures} pictures" if pictures > 1 else "a picture"] if pictures else []
    if not left_out:
        return text
    note = f"[shortened: {' and '.join(left_out)} left out here; the whole result is {where}]"
    return "\n".join(part for part in (head, note, tail) if part)
