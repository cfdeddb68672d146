"""What the model has seen of the disk: which content of which file.

Kept in memory for as long as the conversation is open; guards against overwriting what was never read.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal


class SeenFiles:
    """Files by resolved path, with the hash of the content that the model last saw or wrote.

    Content decides, not times: a file that was touched or checked out again unchanged is the same, and
    a change within one tick of the clock is a change.
    """

    def __init__(self) -> None:
        self._seen: dict[Path, bytes] = {}

    def record(self, path: Path, raw: bytes) -> None:
        """The model knows that `path` (resolved) holds `raw`."""
        self._seen[path] = hashlib.sha256(raw).digest()

    def state(self, path: Path, raw: bytes) -> Literal["unseen", "same", "changed"]:
        """How `raw`, what `path` (resolved) holds now, relates to what the model has seen."""
        digest = self._seen.get(path)
        if digest is None:
            return "unseen"
        return "same" if digest == hashlib.sha256(raw).digest() else "changed"
