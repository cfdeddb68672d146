"""What a compaction would do. Pure: from the entries in sight and their sizes to plans, the best first.

A cut is made only between complete steps, never between a call and its result. The words of the running turn
and its last step, whose results the model has not seen yet, stay in sight as long as they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from letta_code.agent.compaction.settings import CompactionSettings
from letta_code.agent.compaction.shortening import LEAST, Measure, result_tokens, shortened
from letta_code.conversations.compaction import Shortened, with_results
from letta_code.conversations.history import Entry
from letta_code.core.events import CompactionMode
from letta_code.core.messages import Message, Text, ToolResult

_ENOUGH, _ENOUGH_SHORTENED = 0.8, 0.5
"""Share of the limit that may be full after shortening alone (more would soon have to be compacted again),
and at which no further result is shortened."""

_GIANT = 600
"""Tokens of a result that is never large, however small the window is."""

_WORTH, _FRAME = 300, 160
"""Tokens below which nothing is summarised, and what a summary takes beside its words."""


@dataclass(frozen=True, slots=True)
class Item:
    """An entry in sight, its size in tokens, and its message as the transcript has it."""

    entry: Entry
    tokens: int
    whole: Message

    @property
    def is_summary(self) -> bool:
        """Whether it stands for what an earlier compaction took out of sight."""
        return self.entry.message.role == "user" and self.entry.message.origin == "harness"


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens: the model's window, what a request may take of it, what system prompt and tools take, and what
    a summary may take."""

    window: int
    limit: int
    floor: int
    summary: int

    @property
    def messages(self) -> int:
        """What is left for messages."""
        return max(0, self.limit - self.floor)


@dataclass(frozen=True, slots=True)
class Plan:
    """The first `cut` entries in sight go out of it, `words` (the id of the running turn's input) excepted.
    `kept` is the size of the next request without a summary, `gone` of what goes."""

    mode: CompactionMode
    cut: int
    kept: int
    gone: int = 0
    words: str = ""
    shortened: Shortened = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Task:
    """What plans are made for. `running` is the number of the turn that runs, 0 for none; `forced`: the
    person wants it, also where nothing is full; `where` says where the whole of an entry is."""

    items: Sequence[Item]
    room: Room
    settings: CompactionSettings
    running: int
    forced: bool
    where: Callable[[str], str]
    measure: Measure


def plans(task: Task) -> list[Plan]:
    """The ways to compact, the best first; empty when nothing would help."""
    tail = _tail(task.items, task.running)
    items, texts = _shortened(task, tail)
    size = task.room.floor + sum(item.tokens for item in items)
    alone = Plan("shortened", 0, size, shortened=texts)
    if texts and not task.forced and size <= task.room.limit * _ENOUGH:
        return [alone]
    task = replace(task, items=items)
    cuts: list[tuple[CompactionMode, int]] = [("all", tail), ("all", len(items))]
    if task.settings.mode == "sliding_window":
        cuts.insert(0, ("sliding_window", _sliding(task, tail)))
    found: list[Plan] = []
    for mode, cut in cuts:
        plan = _plan(task, mode, cut, texts)
        if plan is not None and all(other.cut != plan.cut for other in found):
            found.append(plan)
    if texts and size <= task.room.limit:
        found.append(alone)
    return found


def _plan(task: Task, mode: CompactionMode, cut: int, texts: Shortened) -> Plan | None:
    """The plan to cut there, or None when it would not help."""
    items, words = task.items, _words(task.items, task.running)
    if words is not None and cut == words + 1:
        cut = words
    spoken = words is not None and words < cut
    going = [item for index, item in enumerate(items[:cut]) if index != words]
    gone = sum(item.tokens for item in going)
    if gone < _WORTH or all(item.is_summary for item in going):
        return None
    kept = task.room.floor + sum(item.tokens for item in items) - gone
    if kept + _FRAME + min(task.room.summary, gone // 2) > task.room.limit:
        return None
    spared = items[words].entry.id if spoken and words is not None else ""
    return Plan(mode, cut, kept, gone, spared, texts)


def starts(items: Sequence[Item]) -> list[int]:
    """Where a cut may be made: before the person's words, and before a step."""
    return [index for index, item in enumerate(items) if item.entry.message.role in ("user", "assistant")]


def _tail(items: Sequence[Item], running: int) -> int:
    """Where the last step of the running turn begins, or its words when it has none yet."""
    last = next(reversed(starts(items)), 0)
    return last if running and items and items[last].entry.turn == running else len(items)


def _words(items: Sequence[Item], running: int) -> int | None:
    """Where the words of the running turn are."""
    for index, item in enumerate(items):
        if (
            running
            and item.entry.turn == running
            and item.entry.message.role == "user"
            and not item.is_summary
        ):
            return index
    return None


def _sliding(task: Task, tail: int) -> int:
    """Where the newest part begins that is to be kept."""
    items, room = task.items, task.room
    total = sum(item.tokens for item in items)
    share = task.settings.keep * (min(room.window, total) if task.forced else room.window)
    budget = min(share, room.messages - room.summary - _FRAME)
    words = _words(items, task.running)
    best, kept = tail, sum(item.tokens for item in items[tail:])
    after = tail
    for start in reversed([start for start in starts(items) if start < tail]):
        kept += sum(item.tokens for item in items[start:after])
        after = start
        spoken = items[words].tokens if words is not None and words < start else 0
        if kept + spoken > budget:
            break
        best = start
    return best


def _shortened(task: Task, tail: int) -> tuple[list[Item], Shortened]:
    """The items with large results shortened: old ones where they are large beside the window, the oldest
    first and as many as it takes, those of the last step only where they leave no room for anything else."""
    giant = max(_GIANT, task.room.window // 10)
    total = task.room.floor + sum(item.tokens for item in task.items)
    last = task.items[tail:]
    results = [block for item in last for block in item.whole.blocks if isinstance(block, ToolResult)]
    size = sum(item.tokens for item in last)
    allowed = size
    if results and size > task.room.messages // 2:
        others = size - sum(result_tokens(block, task.measure) for block in results)
        allowed = max(LEAST, (task.room.messages // 2 - others) // len(results))
    items = list(task.items)
    texts: dict[str, dict[str, str]] = {}
    for index, item in enumerate(task.items):
        if index < tail and total <= task.room.limit * _ENOUGH_SHORTENED:
            continue
        most, target = (giant, giant // 4) if index < tail else (allowed, allowed)
        if item.tokens > most and (found := _texts(task, item, max(most, LEAST), max(target, LEAST))):
            texts[item.entry.id] = found
            message = with_results(item.entry.message, found)
            entry = replace(item.entry, message=message)
            items[index] = Item(entry, task.measure(message), item.whole)
            total += items[index].tokens - item.tokens
    return items, texts


def _texts(task: Task, item: Item, most: int, target: int) -> dict[str, str]:
    """The shorter texts of an item's results that take more than `most` tokens, by call."""
    found: dict[str, str] = {}
    whole = {block.call_id: block for block in item.whole.blocks if isinstance(block, ToolResult)}
    for block in item.entry.message.blocks:
        if not isinstance(block, ToolResult) or (size := result_tokens(block, task.measure)) <= most:
            continue
        text = shortened(whole[block.call_id], target, task.where(item.entry.id), task.measure)
        if result_tokens(replace(block, content=(Text(text),)), task.measure) < size:
            found[block.call_id] = text
    return found
