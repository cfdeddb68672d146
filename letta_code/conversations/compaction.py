"""Compactions as the transcript records them, and what of a conversation requests carry after one.

Nothing leaves the transcript: a compaction only changes what is in sight. Pure; reads and writes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast, get_args

from letta_code.conversations.transcript import Record
from letta_code.core.codec import dump, load_message
from letta_code.core.events import CompactionMode, CompactionTrigger
from letta_code.core.messages import Message, Text, ToolResult, Usage

if TYPE_CHECKING:
    from letta_code.conversations.history import Entry

Shortened = Mapping[str, Mapping[str, str]]
"""Entry id → call id → the text that requests carry in the place of that result."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """One compaction. `summary` stands for every entry before `first` (an entry's id, "" when none is kept);
    None: only results were shortened, and what the last summary covers is as it was. `words` is the id of
    the running turn's input when it stays in sight although it is before `first`. `before` and `after` are
    estimated tokens of the next request, `usage` and `model` (a handle, "" for none) of what the summary
    took, `revision` is memory's HEAD."""

    id: str
    at: str
    turn: int
    trigger: CompactionTrigger
    mode: CompactionMode
    summary: Message | None
    first: str
    words: str
    shortened: Shortened
    before: int
    after: int
    usage: Usage
    model: str
    revision: str


@dataclass(frozen=True, slots=True)
class Sight:
    """What is in sight: the summary, the entry at `words`, and all entries from the index `first` on, some
    `shortened` (entry id → its message). `covered` is the last turn of which the summary stands for
    something, `steps` how many steps were committed before."""

    first: int = 0
    summary: Entry | None = None
    words: int | None = None
    shortened: Mapping[str, Message] = field(default_factory=dict)
    covered: int = 0
    steps: int = 0

    def of(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries in sight, as requests carry them."""
        seen = [*((self.summary,) if self.summary is not None else ())]
        seen += [] if self.words is None else [entries[self.words]]
        seen += entries[self.first :]
        if not self.shortened:
            return seen
        return [
            entry if (message := self.shortened.get(entry.id)) is None else replace(entry, message=message)
            for entry in seen
        ]

    def then(
        self, compaction: Compaction, entries: Sequence[Entry], steps: int, summary: Entry | None
    ) -> Sight:
        """What is in sight after `compaction` of `entries`.

        Raises:
            ValueError: it names an entry that is not there or out of sight already.
        """
        texts = compaction.shortened
        shortened = {
            **self.shortened,
            **{
                entry.id: with_results(entry.message, texts[entry.id])
                for entry in self.of(entries)
                if entry.id in texts
            },
        }
        if summary is None:
            return replace(self, shortened=shortened, steps=steps)
        first = _index(entries, compaction.first) if compaction.first else len(entries)
        words = _index(entries, compaction.words) if compaction.words else None
        if first < self.first or (words is not None and words >= first):
            raise ValueError("a compaction that goes back")
        covered = max((entry.turn for entry in entries[self.first : first]), default=0)
        return Sight(first, summary, words, shortened, max(covered, self.covered), steps)

    def moved(self, kept: Sequence[int]) -> Sight:
        """The same when only the entries at the indices `kept` are left."""
        words = None if self.words is None or self.words not in kept else bisect_left(kept, self.words)
        return replace(self, first=bisect_left(kept, self.first), words=words)


def with_results(message: Message, texts: Mapping[str, str]) -> Message:
    """`message` with other words in the results of the calls that `texts` names."""
    return replace(
        message,
        blocks=tuple(
            replace(block, content=(Text(texts[block.call_id]),))
            if isinstance(block, ToolResult) and block.call_id in texts
            else block
            for block in message.blocks
        ),
    )


def compaction_record(compaction: Compaction) -> Record:
    """The record of a compaction."""
    return {"kind": "compaction", **cast(Record, dump(compaction))}


def load_compaction(record: Record) -> Compaction:
    """The compaction that `compaction_record` wrote; raises one of the errors of wrong values else."""
    if record["trigger"] not in get_args(CompactionTrigger) or record["mode"] not in get_args(CompactionMode):
        raise ValueError("an unknown compaction")
    words = {name: str(record[name]) for name in ("id", "at", "first", "words", "model", "revision")}
    return Compaction(
        turn=int(record["turn"]),
        trigger=record["trigger"],
        mode=record["mode"],
        summary=None if record["summary"] is None else load_message(record["summary"]),
        shortened={
            str(entry): {str(call): str(text) for call, text in texts.items()}
            for entry, texts in record["shortened"].items()
        },
        before=int(record["before"]),
        after=int(record["after"]),
        usage=Usage(**record["usage"]),
        **words,
    )


def _index(entries: Sequence[Entry], entry_id: str) -> int:
    for index in range(len(entries) - 1, -1, -1):
        if entries[index].id == entry_id:
            return index
    raise ValueError("a compaction names an entry that is not there")
