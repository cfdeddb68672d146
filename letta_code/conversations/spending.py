"""What a conversation's requests took, as its transcript tells. Pure; reads and writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from letta_code.conversations.transcript import Record
from letta_code.core.messages import Usage


@dataclass(frozen=True, slots=True)
class Spent:
    """One answered request: the turn it was made in, its time (ISO 8601, UTC), and the model that answered (a
    handle). `kept` is False when the answer did not become part of the conversation: a refusal, an answer
    without a word, the summary of a compaction."""

    turn: int
    at: str
    model: str
    usage: Usage
    kept: bool = True


@dataclass(slots=True)
class Spending:
    """All requests of one conversation that were answered. `broken` counts answers by turn that broke off,
    whose tokens nobody told; `ends` says how each turn ended."""

    spent: list[Spent] = field(default_factory=list)
    broken: dict[int, int] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)


def spending_of(records: Iterable[Record], since: str = "") -> Spending:
    """What `records` tell, from `since` on (a time as transcripts write it). What a copied conversation took
    before it was copied is the original's, and left out; so are records that cannot be understood."""
    found = Spending()
    began = since
    for record in records:
        if record["kind"] == "conversation":
            began = max(began, str(record.get("created_at", "")))
            continue
        if str(record.get("at", began)) < began:
            continue
        try:
            _take(found, record)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def _take(found: Spending, record: Record) -> None:
    match record["kind"]:
        case "assistant":
            found.spent.append(_spent(record, record, str(record["sent"]["model"])))
        case "compaction":
            if record["model"]:
                found.spent.append(_spent(record, record, str(record["model"]), kept=False))
        case "spent":
            found.spent.append(_spent(record, record, str(record["model"]), kept=False))
        case "turn":
            turn, told = int(record["turn"]), record.get("discarded") or ()
            found.ends[turn] = str(record["status"])
            found.broken[turn] = max(0, found.broken.get(turn, 0) - len(told))
            found.spent += [_spent(record, item, str(item["model"]), kept=False) for item in told]
        case "partial":
            turn = int(record["turn"])
            found.broken[turn] = found.broken.get(turn, 0) + 1


def _spent(record: Record, item: Mapping[str, Any], model: str, *, kept: bool = True) -> Spent:
    usage = Usage(**item["usage"])
    # A sum with a wrong value in it would be wrong as a whole.
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in _numbers(usage)):
        raise ValueError("no numbers of tokens")
    return Spent(int(record["turn"]), str(record["at"]), model, usage, kept)


def _numbers(usage: Usage) -> tuple[object, ...]:
    return usage.input, usage.output, usage.cache_read, usage.cache_write
