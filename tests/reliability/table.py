"""The table of the fault matrix in docs/reliability.md: written by the run, read by a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.reliability.cells import FORMS, WAYS, Form
from tests.reliability.faults import FAULTS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN = "<!-- the table: written by scripts/fault_matrix.py -->"
END = "<!-- the table ends -->"
HELD, FAILED = "✓", "✗"

Cells = dict[tuple[str, str, Form], bool]
"""Whether the promise held, by fault, dialect and form."""


def with_table(document: str, cells: Mapping[tuple[str, str, Form], bool]) -> str:
    """`document` with the table of `cells` between its marks."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{_table(cells)}{END}{after}"


def _table(cells: Mapping[tuple[str, str, Form], bool]) -> str:
    names = [f"{way.name}, {form}" for way in WAYS for form in FORMS]
    lines = [_row(["fault", "end", *names]), _row(["---"] * (2 + len(names)))]
    for fault in FAULTS:
        marks = [HELD if cells[fault.name, way.name, form] else FAILED for way in WAYS for form in FORMS]
        lines.append(_row([fault.name, str(fault.end), *marks]))
    return "".join(lines)


def _row(items: list[str]) -> str:
    return f"| {' | '.join(items)} |\n"


def known(document: str) -> Cells:
    """What the table in `document` says of faults that are still listed with the same end."""
    ends = {fault.name: str(fault.end) for fault in FAULTS}
    columns = [(way.name, form) for way in WAYS for form in FORMS]
    return {
        (name, way, form): mark == HELD
        for name, end, *marks in rows(document)
        if ends.get(name) == end
        for (way, form), mark in zip(columns, marks, strict=True)
    }


def rows(document: str) -> list[list[str]]:
    """The table's rows without its head."""
    table = document.partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    return [[item.strip() for item in line.strip("|").split("|")] for line in table[2:]]
