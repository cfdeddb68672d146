"""How the last sync ended: a small file, so that what happened in the background is told later."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, cast, get_args

from letta_code.storage import write_atomically

Outcome = Literal["up-to-date", "synced", "conflict", "failed"]


@dataclass(frozen=True, slots=True)
class SyncRecord:
    """`when` is ISO 8601 in UTC; `message` one line without credentials, `hint` what to do about it."""

    when: str
    outcome: Outcome
    message: str
    hint: str = ""

    @property
    def fine(self) -> bool:
        """Whether nobody has to do anything."""
        return self.outcome in ("up-to-date", "synced")


def write_record(file: Path, outcome: Outcome, message: str, hint: str = "") -> SyncRecord:
    """Note how a sync ended, now.

    Raises:
        StorageError: the disk refuses.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    record = SyncRecord(now, outcome, " ".join(message.split()), hint)
    write_atomically(file, (json.dumps(asdict(record), indent=2) + "\n").encode("ascii"))
    return record


def read_record(file: Path) -> SyncRecord | None:
    """How the last sync ended; None when there was none or the file says nothing."""
    try:
        data = json.loads(file.read_bytes())
        values = [data["when"], data["outcome"], data["message"], data["hint"]]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if not all(isinstance(value, str) for value in values) or values[1] not in get_args(Outcome):
        return None
    return SyncRecord(values[0], cast(Outcome, values[1]), values[2], values[3])
