"""What fills the model's window: a request split into its parts, and whether the parts that never go away
leave room for a conversation.

The total is the counter's, so it rests on the last usage where there is one; the parts are estimates that
are scaled to add up to it. Before the first usage a tokenizer may count, where somebody only wants to see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from letta_code.agent.counting import MESSAGE, Counter, answer_room, block_tokens, spec_tokens
from letta_code.agent.reminder import PROJECT_NOTES
from letta_code.agent.vocabulary import vocabulary_of
from letta_code.core.messages import Image, Message, Text, Thinking, ToolCall, ToolResult
from letta_code.core.tokens import estimated_tokens
from letta_code.errors import SystemPromptOverflow
from letta_code.memory.budget import measure
from letta_code.memory.overview import TAG
from letta_code.memory.prompt import PLACEHOLDER
from letta_code.memory.render import external_tree
from letta_code.memory.snapshot import MemorySnapshot
from letta_code.models.base import ModelInfo, ModelRequest
from letta_code.models.catalog import LOCAL_PROVIDERS

_FRAME = "tags and paths"
_NEAR = 0.85  # part of the room from which the model is warned
_NAMED = 3  # parts that the message of an overflow names
_NOTES = re.compile(rf"^(?:{'|'.join(map(re.escape, PROJECT_NOTES))}).*|^<{TAG} .*", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a request, and what it is made of where that is told apart; then `tokens` is their sum."""

    name: str
    tokens: int
    items: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Filled:
    """A model's window with a request in it. `reserved` is kept for the answer, `free` is what is left
    (negative when the request does not fit); `measured` says that the total rests on a usage that the
    provider told, `tokenizer` names the one that counted; without both it is an estimate."""

    model: str
    window: int
    parts: tuple[Part, ...]
    total: int
    reserved: int
    measured: bool
    tokenizer: str = ""

    @property
    def free(self) -> int:
        """What more messages may take."""
        return self.window - self.reserved - self.total

    def part(self, name: str) -> Part:
        """The part of this name."""
        return next(part for part in self.parts if part.name == name)


def filled(
    request: ModelRequest,
    counter: Counter,
    info: ModelInfo,
    base: str,
    snapshot: MemorySnapshot,
    summaries: Collection[Message] = (),
    *,
    tokenizer: bool = False,
) -> Filled:
    """Split `request`, whose system prompt was compiled from `base` and `snapshot`. `summaries` are the
    messages of it that stand for what was compacted. With `tokenizer` a real one counts before the first
    usage, if there is one for the model: seconds that no turn should wait."""
    total = counter.request(request)
    vocabulary = vocabulary_of(info) if tokenizer and not counter.calibrated else None
    count = estimated_tokens if vocabulary is None else vocabulary.count
    sizes: dict[str, dict[str, int]] = {
        "base prompt": {},
        "core memory": {},
        "external tree": {},
        "skills": {"": sum(map(count, request.system[1:]))},
        "tools": {spec.name: spec_tokens(spec, count) for spec in request.tools},
        "project notes": {},
        "summary": {},
        "messages": dict.fromkeys(_KINDS, 0),
    }
    _system(sizes, request.system[0] if request.system else "", base, snapshot, count)
    for message in request.messages:
        summary = any(message is item for item in summaries)
        for part, kind, tokens in _message(message, info, summary, count):
            sizes[part][kind] = sizes[part].get(kind, 0) + tokens
    if vocabulary is not None:
        total = sum(sum(items.values()) for items in sizes.values())
    parts = _scaled(sizes, total)
    name = "" if vocabulary is None else vocabulary.name
    return Filled(info.handle, info.window, parts, total, answer_room(info), counter.calibrated, name)


def room(info: ModelInfo, threshold: float) -> int:
    """Tokens that a conversation may take before it is compacted; `threshold` is that of its settings."""
    return min(info.window - answer_room(info), int(threshold * info.window))


def pressure(used: int, info: ModelInfo, threshold: float) -> str:
    """What the model is told when `used` tokens of its window leave little room; "" else. The words change
    only with every twentieth of the window, so that they are said seldom."""
    most = room(info, threshold)
    if used < _NEAR * most:
        return ""
    full = used * 20 // info.window * 5
    return (
        f"over {full}% full (of {info.window:,} tokens). At {most / info.window:.0%} the oldest part of this "
        "conversation is replaced by a summary. Save now what must last: facts and decisions with the memory "
        "tool, open work with its exact names in the todo list or a file. Keep tool results short."
    )


def check_fixed(
    request: ModelRequest,
    counter: Counter,
    info: ModelInfo,
    base: str,
    snapshot: Callable[[], MemorySnapshot],
) -> None:
    """Whether system prompt and tools leave room for an answer. Nothing is refused for a window that is only
    assumed.

    Raises:
        SystemPromptOverflow: they do not, and no compaction could help.
    """
    if not info.known and info.provider not in LOCAL_PROVIDERS:
        return
    fixed = ModelRequest(request.system, (), request.tools, request.conversation_id)
    taken = sum(map(counter.text_tokens, fixed.system)) + sum(map(counter.spec_tokens, fixed.tools))
    if taken + answer_room(info) <= info.window:
        return
    shown = filled(fixed, counter, info, base, snapshot())
    raise overflow(info, taken, shown.parts)


def overflow(info: ModelInfo, taken: int, parts: Collection[Part]) -> SystemPromptOverflow:
    """The error of a system prompt with its tools that takes `taken` tokens, made of `parts`."""
    named = ", ".join(f"{part.name} {part.tokens:,}" for part in parts if part.tokens)
    flat = [
        (size, f"{item} ({size:,})")
        for part in parts
        if part.name in ("core memory", "tools")
        for item, size in part.items
        if item != _FRAME
    ]
    largest = ", ".join(words for _, words in sorted(flat, reverse=True)[:_NAMED])
    return SystemPromptOverflow(
        f"the system prompt and the tools take about {taken:,} tokens and leave no room in the window of "
        f"{info.handle} ({info.window:,}, of which {answer_room(info):,} are kept for the answer): {named}",
        f"shorten what is large ({largest}): `letta memory edit`, move detail out of system/; or use a model "
        "with a larger window",
    )


_KINDS = ("yours", "answers", "thinking", "tool calls", "tool results", "memory updates", "reminders")


def _system(
    sizes: dict[str, dict[str, int]],
    text: str,
    base: str,
    snapshot: MemorySnapshot,
    count: Callable[[str], int],
) -> None:
    whole = count(text)
    own = min(whole, count(base.replace(PLACEHOLDER, "")))
    tree = min(whole - own, count(external_tree(snapshot)))
    memory = whole - own - tree
    files = {file.path: file.tokens for file in measure(snapshot, count).files}
    named = sum(files.values())
    if named > memory:
        files = {path: tokens * memory // named for path, tokens in files.items()}
        named = sum(files.values())
    sizes["base prompt"][""] = own
    sizes["external tree"][""] = tree
    sizes["core memory"] = files | {_FRAME: memory - named}


def _message(
    message: Message, info: ModelInfo, summary: bool, count: Callable[[str], int]
) -> Iterator[tuple[str, str, int]]:
    """Part, kind and tokens of each piece of a message."""
    if summary:
        yield "summary", "", MESSAGE + sum(block_tokens(block, info, count) for block in message.blocks)
        return
    of_role = {"user": "yours", "assistant": "answers", "tool": "tool results", "system": "memory updates"}
    yield "messages", of_role[message.role], MESSAGE
    for index, block in enumerate(message.blocks):
        tokens = block_tokens(block, info, count)
        match block:
            case Text(text) if index < message.reminder:
                found = _NOTES.search(text)
                notes = 0 if found is None else min(tokens, count(found[0]))
                yield "project notes", "", notes
                yield "messages", "reminders", tokens - notes
            case Text() | Image():
                yield "messages", of_role[message.role], tokens
            case Thinking():
                yield "messages", "thinking", tokens
            case ToolCall():
                yield "messages", "tool calls", tokens
            case ToolResult():
                yield "messages", "tool results", tokens


def _scaled(sizes: Mapping[str, Mapping[str, int]], total: int) -> tuple[Part, ...]:
    """The parts, so that all items together are exactly `total`: each rounded from the sum of those before
    it."""
    whole = sum(sum(items.values()) for items in sizes.values())
    before = given = 0
    parts = []
    for name, items in sizes.items():
        shown = []
        for item, tokens in items.items():
            before += tokens
            upto = round(before * total / whole) if whole else 0
            shown.append((item, upto - given))
            given = upto
        named = tuple((item, tokens) for item, tokens in shown if item)
        parts.append(Part(name, sum(tokens for _, tokens in shown), named))
    return tuple(parts)
