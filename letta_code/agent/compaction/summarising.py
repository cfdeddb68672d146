"""What the summariser is given, and what becomes of its answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files

from letta_code.conversations.history import Entry
from letta_code.core.messages import Block, Image, Message, Text, Thinking, ToolCall, ToolResult
from letta_code.core.text import one_line, well_formed
from letta_code.memory.render import escaped, unescaped
from letta_code.models.base import Completed

TAG = "conversation_summary"

_LENGTHS = (4_000, 2_000, 1_000, 500, 200, 80)
"""Characters of one part of a message that the summariser reads: the most that lets all of it fit."""
_REQUESTS = 20  # of the person, in a cut without summary
_WORDS = 0.6  # words for a token, with room to spare

Tokens = Callable[[str], int]


class Unusable(Exception):
    """What the summariser answered is no summary; the text says why."""


@cache
def packaged_prompt() -> str:
    """How a summary is written, where the agent has no prompt of its own for it."""
    return files("letta_code.agent.compaction").joinpath("prompt.md").read_text("utf-8").strip()


def material(entries: Sequence[Entry], room: int, tokens: Tokens) -> str:
    """`entries` as the summariser reads them, in at most about `room` tokens: long parts are cut to one
    length, the same for all; where that is not enough, messages in the middle are left out."""
    lines: list[str] = []
    for length in _LENGTHS:
        lines = [_line(entry, length) for entry in entries]
        if tokens("\n".join(lines)) <= room:
            return "\n".join(lines)
    sizes = [tokens(line) for line in lines]
    left = room - tokens(_gap(entries, len(entries)))
    first, last = 0, len(lines)
    while first < last:  # from both ends, the newer one first
        newer = len(lines) - last <= first
        size = sizes[last - 1] if newer else sizes[first]
        if size > left:
            break
        left -= size
        first, last = (first, last - 1) if newer else (first + 1, last)
    return "\n".join([*lines[:first], _gap(entries[first:last], last - first), *lines[last:]])


def question(text: str, words: int, instructions: str) -> str:
    """The summariser's one message."""
    wish = (
        f"\n\nThe person asks for this of the summary: {instructions.strip()}" if instructions.strip() else ""
    )
    return (
        f"<conversation>\n{escaped(text, 'conversation')}\n</conversation>{wish}\n\n"
        f"Write the summary now, in at most {words:,} words."
    )


def words_for(tokens: int) -> int:
    """How many words a summary of so many tokens may have."""
    return max(60, int(tokens * _WORDS) // 10 * 10)


def summary_in(completed: Completed) -> str:
    """The summary that the model answered.

    Raises:
        Unusable: there is none.
    """
    if completed.stop == "refusal":
        raise Unusable("the model refused to write a summary")
    if completed.message.tool_calls:
        raise Unusable("the model called a tool instead of writing a summary")
    text = well_formed(completed.message.text).strip()
    if not text:
        raise Unusable("the model's summary was empty")
    return text


def bounded(text: str, room: int, tokens: Tokens) -> str:
    """`text` within `room` tokens, cut at its end."""
    if tokens(text) <= room:
        return text
    note = "[cut here: the summary was longer than it may be]"
    kept = text
    while kept and (size := tokens(f"{kept}\n{note}")) > room:
        kept = kept[: min(len(kept) - 1, int(len(kept) * room / size))]
    line = kept.rfind("\n")
    return f"{kept[:line] if line > len(kept) // 2 else kept}\n{note}".strip()


def mechanical(entries: Sequence[Entry], reason: str, room: int, tokens: Tokens) -> str:
    """What stands for `entries` where no summary could be had: the last summary, and what the person asked
    for last, as far as that fits."""
    head = f"No summary could be made of {_span(entries)} ({reason})."
    earlier = [entry for entry in entries if _is_summary(entry)]
    asked = [entry for entry in entries if entry.message.role == "user" and not _is_summary(entry)]
    requests = [
        f"- {_short_id(entry.id)}: {one_line(entry.message.text, 200)}"
        for entry in reversed(asked[-_REQUESTS:])
    ]
    lines = [head]
    if requests:
        lines += ["What the person had asked for, the newest first:", *requests]
    text = bounded("\n".join(lines), room * 2 // 3 if earlier else room, tokens)
    if earlier:
        before = inner(earlier[-1].message)
        text += "\n" + bounded(f"The summary before it:\n{before}", max(0, room - tokens(text)), tokens)
    return text


def summary_message(
    body: str, entries: Sequence[Entry], conversation: str, reminder: str, going_on: bool
) -> Message:
    """The message that stands for `entries` from now on. `going_on`: the person's words that follow it were
    already being worked on."""
    more = (
        " The person's words that follow are being worked on: what was done so far is in here, do not begin "
        "anew."
        if going_on
        else ""
    )
    text = (
        f"<{TAG}>\n"
        f"In the place of {_span(entries)}, which went out of sight to make room; written by Letta Code, not "
        f"by the person. Nothing is lost: a message's pointer is {conversation}:ID (the beginning of the id "
        f"is enough) for conversation_search.{more}\n\n{escaped(body, TAG)}\n</{TAG}>"
    )
    blocks = (Text(reminder), Text(text)) if reminder else (Text(text),)
    return Message("user", blocks, "harness", len(blocks) - 1)


def inner(message: Message) -> str:
    """A summary without the frame that `summary_message` puts around it."""
    _, _, body = message.text.partition("\n\n")
    return unescaped(body.removesuffix(f"\n</{TAG}>")) or message.text


def _span(entries: Sequence[Entry]) -> str:
    told = [entry for entry in entries if not _is_summary(entry)]
    earlier = "an earlier summary and " if len(told) < len(entries) else ""
    if not told:
        return "an earlier summary"
    ends = f"{_short_id(told[0].id)} to {_short_id(told[-1].id)}" if len(told) > 1 else _short_id(told[0].id)
    return f"{earlier}{len(told):,} message{'' if len(told) == 1 else 's'} ({ends})"


def _is_summary(entry: Entry) -> bool:
    return entry.message.role == "user" and entry.message.origin == "harness"


def _short_id(entry_id: str) -> str:
    """The beginning of an id that is enough to find it."""
    name, _, rest = entry_id.partition("-")
    return f"{name}-{rest[:8]}" if rest else entry_id


def _gap(entries: Sequence[Entry], count: int) -> str:
    if not count:
        return ""
    return f"[{count:,} messages left out here, {_short_id(entries[0].id)} to {_short_id(entries[-1].id)}]"


def _line(entry: Entry, length: int) -> str:
    if _is_summary(entry):
        return f"[earlier summary]\n{inner(entry.message)}"
    parts = [
        part for block in entry.message.blocks[entry.message.reminder :] if (part := _part(block, length))
    ]
    return f"[{_short_id(entry.id)} {entry.message.role}, turn {entry.turn}] " + "\n".join(parts)


def _part(block: Block, length: int) -> str:
    match block:
        case Text(text):
            return _middle_out(text, length)
        case Thinking():
            return ""
        case Image():
            return "(a picture)"
        case ToolCall():
            given = (
                block.raw
                if block.arguments is None
                else json.dumps(dict(block.arguments), ensure_ascii=False)
            )
            return f"→ {block.name}({_middle_out(given, length)})"
        case ToolResult():
            status = "" if block.status == "ok" else f" {block.status}:"
            return f"←{status} {_middle_out(block.text, length)}"


def _middle_out(text: str, length: int) -> str:
    text = well_formed(text).strip()
    if len(text) <= length:
        return text
    head = length * 2 // 3
    return f"{text[:head]} [… {len(text) - length:,} characters …] {text[head - length :]}"
