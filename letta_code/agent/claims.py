"""Whether the files that a memory names are still as they were when it was written. Cheap and bounded: it
looks at names, times and numbers of lines, never at what a file says; it marks what to verify, no more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_CITED = re.compile(r"(?<![\w./:-])((?:[\w.-]+/)*[\w-][\w.-]*\.\w+)(?::(\d{1,7}))?(?![\w/])")
_NAMES = 50
_FILE_BYTES = 2_000_000


def stale_claims(text: str, project: Path, written: float) -> list[str]:
    """What to verify of a memory `text`, a phrase each: files it cites with a line (`src/a.py:10`) or a
    folder (`src/a.py`) that are not in `project`, are shorter than the cited line, or changed after
    `written` (seconds since the epoch). Reading either side changes nothing here."""
    return [words for name, line in _cited(text) if (words := _doubt(name, line, project, written))]


def _cited(text: str) -> Iterator[tuple[str, int]]:
    found = dict.fromkeys(
        (match[1], int(match[2] or 0))
        for match in _CITED.finditer(text)
        if (match[2] or "/" in match[1]) and ".." not in match[1].split("/") and "//" not in match[1]
    )
    yield from list(found)[:_NAMES]


def _doubt(name: str, line: int, project: Path, written: float) -> str:
    shown = f"{name}:{line}" if line else name
    path = project / name
    try:
        status = path.stat()
        if not os.path.realpath(path).startswith(f"{os.path.realpath(project)}{os.sep}"):
            return ""
        if line and status.st_size <= _FILE_BYTES and path.is_file():
            data = path.read_bytes()
            lines = data.count(b"\n") + (not data.endswith(b"\n"))
            if line > lines:
                return f"{shown} (the file has {lines:,} lines)"
    except (FileNotFoundError, NotADirectoryError):
        return f"{shown} (not there)" if line or (project / name.split("/")[0]).is_dir() else ""
    except (OSError, ValueError):
        return ""
    return f"{shown} (changed since)" if line and status.st_mtime > written else ""
