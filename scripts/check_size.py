"""Refuses Python files of more than 600 lines: past that, a file is two."""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT = 600


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    files = [file for folder in ("letta_code", "tests", "scripts") for file in (root / folder).rglob("*.py")]
    sizes = {file: len(file.read_text("utf-8").splitlines()) for file in files}
    for file, size in sorted(sizes.items()):
        if size > LIMIT:
            print(f"{file.relative_to(root)}: {size} lines, {LIMIT} allowed", file=sys.stderr)
    return 1 if any(size > LIMIT for size in sizes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
