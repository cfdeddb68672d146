"""What a list of conversations shows of each, read from the two ends of its transcript."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from letta_code.conversations.transcript import Record, parse_line
from letta_code.core.ids import AgentKey, checked_id
from letta_code.core.text import one_line
from letta_code.errors import UsageError

_HEAD = 262_144  # bytes read to find the first input
_TAIL = 65_536  # bytes read to find the last turn; more only when it is not there


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """What a list shows. Times are ISO 8601 in UTC; `title` is the start of the first input,
    `forked_from` the id of the conversation that it began as a copy of, or ""."""

    id: str
    key: AgentKey
    title: str
    created_at: str
    updated_at: str
    turns: int
    cwd: str
    forked_from: str = ""


def origin_of(header: Record) -> str:
    """The id of the conversation that this one began as a copy of, or ""."""
    origin = header.get("forked_from")
    return str(origin.get("id", "")) if isinstance(origin, dict) else ""


def summary_of(path: Path) -> ConversationSummary | None:
    """What the transcript at `path` says of itself; None when it is no transcript or cannot be read."""
    try:
        key = AgentKey(path.parent.parent.name, path.parent.name)
        conversation_id = checked_id(path.stem, "conv")
        with path.open("rb") as file:
            head = _records(file.read(_HEAD))
            size = file.seek(0, 2)
            last: Record = {}
            window = _TAIL
            while True:
                file.seek(max(0, size - window))
                tail = _records(file.read(window))
                last = next((record for record in reversed(tail) if isinstance(record.get("turn"), int)), {})
                if last or window >= size:
                    break
                window *= 4
    except (OSError, UsageError):
        return None
    header = next((record for record in head if record["kind"] == "conversation"), {})
    created = str(header.get("created_at", ""))
    return ConversationSummary(
        conversation_id,
        key,
        _title(head),
        created,
        str(last.get("at", created)),
        int(last.get("turn", 0)),
        str(header.get("cwd", "")),
        origin_of(header),
    )


def _records(data: bytes) -> list[Record]:
    return [record for line in data.split(b"\n") if (record := parse_line(line)) is not None]


def _title(head: list[Record]) -> str:
    first = next((record for record in head if record["kind"] == "input"), None)
    if first is None:
        return ""
    message = first.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("blocks"), list):
        return ""
    skip = message.get("reminder") if isinstance(message.get("reminder"), int) else 0
    words = [block.get("text") for block in message["blocks"][skip:] if isinstance(block, dict)]
    return one_line(" ".join(word for word in words if isinstance(word, str)), 80)
