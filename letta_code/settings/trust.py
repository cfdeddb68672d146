"""Which folders' settings the person trusts: by folder and content, so that a change asks again.

Recorded in our own data, never in the folder: what comes with a project cannot vouch for itself.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from letta_code.paths import Paths
from letta_code.storage import locked, write_atomically


@dataclass(frozen=True, slots=True)
class Trusted:
    """A folder (its real path) whose settings were trusted when they had this digest (hex)."""

    folder: Path
    digest: str
    when: str


class TrustStore:
    """The record. A damaged one counts as empty: then nothing is trusted."""

    def __init__(self, paths: Paths) -> None:
        self._path = paths.trust()

    def trusts(self, folder: Path, digest: str) -> bool:
        """Whether the settings of `folder` are trusted with this content."""
        return any(item.folder == _real(folder) and item.digest == digest for item in self.list())

    def list(self) -> tuple[Trusted, ...]:
        """Every folder that is recorded, by path."""
        found = []
        for folder, item in sorted(self._read().items()):
            if isinstance(item, dict) and isinstance(item.get("sha256"), str):
                found.append(Trusted(Path(folder), item["sha256"], str(item.get("when", ""))))
        return tuple(found)

    def record(self, folder: Path, digest: str) -> None:
        """Trust the settings of `folder` with this content.

        Raises:
            StorageError: it cannot be written.
        """
        when = datetime.now(UTC).isoformat(timespec="seconds")
        self._change({str(_real(folder)): {"sha256": digest, "when": when}}, ())

    def remove(self, folder: Path) -> bool:
        """Trust `folder` no longer; False when it was not trusted. Raises `StorageError`."""
        return self._change({}, (str(_real(folder)),))

    def _change(self, new: dict[str, Any], gone: tuple[str, ...]) -> bool:
        with locked(self._path.with_suffix(".lock"), 5, f"{self._path} is in use by another process"):
            items = self._read()
            before = dict(items)
            items.update(new)
            for name in gone:
                items.pop(name, None)
            if items != before:
                text = json.dumps(items, indent=2, ensure_ascii=True) + "\n"
                write_atomically(self._path, text.encode("ascii"))
            return items != before

    def _read(self) -> dict[str, Any]:
        try:
            data = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}


def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder))
