"""Reading a transcript piece by piece, from any place where a piece begins.

A piece is what changes which messages a conversation has: an input, a step (from the model's answer to the
record that commits it), an input that left again, turns that were undone. The messages of a piece are what
`History` makes of its records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from letta_code.conversations.history import Entry, History
from letta_code.conversations.transcript import Record, parse_line


@dataclass(frozen=True, slots=True)
class Messages:
    """A piece that adds messages; its bytes are `start` to `end` of the file."""

    entries: tuple[Entry, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Left:
    """A piece that takes messages away: those of `turns`; `unanswered`: only an input that nothing
    followed."""

    turns: frozenset[int]
    unanswered: bool
    end: int


Piece = Messages | Left


def pieces(file: BinaryIO, start: int) -> Iterator[Piece]:
    """The whole pieces from the byte `start` on. What is after the last one may still become a piece."""
    file.seek(start)
    offset = start
    answer: list[Record] = []
    answered_at = start
    for line in file:
        begin, offset = offset, offset + len(line)
        record = parse_line(line)
        if record is None:
            continue
        match record["kind"]:
            case "input":
                answer = []
                yield Messages(entries_of([record]), begin, offset)
            case "assistant":
                answer, answered_at = [record], begin
            case "result" if answer:
                answer.append(record)
            case "started" if answer:
                answer.append(record)
            case "step" if answer:
                yield Messages(entries_of([*answer, record]), answered_at, offset)
                answer = []
            case "turn":
                answer = []
                if record.get("dropped") and isinstance(turn := record.get("turn"), int):
                    yield Left(frozenset({turn}), True, offset)
            case "undo":
                if turns := frozenset(turn for turn in record.get("turns", ()) if isinstance(turn, int)):
                    answer = []
                    yield Left(turns, False, offset)


def entries_at(file: BinaryIO, start: int, length: int) -> tuple[Entry, ...]:
    """The messages of the piece at these bytes."""
    file.seek(start)
    lines = file.read(length).split(b"\n")
    return entries_of([record for line in lines if (record := parse_line(line)) is not None])


def entries_of(records: list[Record]) -> tuple[Entry, ...]:
    """The messages that the records of a piece make."""
    history = History()
    for record in records:
        history.apply(record)
    return tuple(history.entries)
