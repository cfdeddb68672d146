"""A program for `test_store.py`: inserts batches of three passages for ever, and names each batch that is
kept."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from letta_code.archive.passages import new_passage
from letta_code.archive.store import SqliteArchive
from letta_code.core.ids import DEFAULT_ORG, AgentKey


def main(path: Path, who: str, batches: int | None) -> None:
    store = SqliteArchive(path)
    for batch in count() if batches is None else range(batches):
        texts = [f"{who} batch {batch} part {part} {'x' * 500}" for part in range(3)]
        store.insert(
            AgentKey(DEFAULT_ORG, "agent-1"), [new_passage(text, [f"b{batch}"], "inferred") for text in texts]
        )
        sys.stdout.write(f"{batch}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
