"""What listing commands print: safe for a terminal, stable for a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any


def visible(text: str) -> str:
    """`text` without characters that a terminal would obey: each becomes `\\x1b` and the like. Newlines
    and tabs stay."""
    return "".join(char if char in "\n\t" or char.isprintable() else _escaped(char) for char in text)


def label(text: str) -> str:
    """A name or title on one line: as `visible`, newlines and tabs included."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, all but the last padded."""
    for line in columns(rows):
        sys.stdout.write(f"{line}\n")


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of columns, all but the last padded."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    padded = ([cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)] for row in rows)
    return ["  ".join([*cells, row[-1]]).rstrip() for cells, row in zip(padded, rows, strict=True)]


def as_json(value: Any) -> None:
    """Print `value` as indented JSON, in ASCII so that any terminal and any name passes."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def local_time(stamp: str) -> str:
    """An ISO 8601 time as date and minute where the person is; what is no time stays as it is."""
    try:
        return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return label(stamp)


def _escaped(char: str) -> str:
    # A surrogate is a byte of a file name that is not UTF-8.
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
