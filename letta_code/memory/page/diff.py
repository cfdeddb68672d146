"""A unified diff as values, for showing it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

LINE = 2_000
"""Characters that are shown of one line."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line, with its sign. `kind` "at" is the head of a hunk, "note" what is no line of the file."""

    kind: Literal["add", "remove", "same", "at", "note"]
    text: str


@dataclass(frozen=True, slots=True)
class FileDiff:
    """What a commit did to one file. `state` in words: "new", "deleted" or empty."""

    path: str
    state: str
    lines: tuple[DiffLine, ...]

    def cut(self, count: int) -> FileDiff:
        """Its first `count` lines."""
        return replace(self, lines=self.lines[:count])


def split_patch(patch: str) -> tuple[FileDiff, ...]:
    """The files of a patch as Git writes it. What is no patch gives none."""
    parts = ("\n" + patch).split("\ndiff --git ")[1:]
    return tuple(_file(part) for part in parts)


def added_files(texts: Mapping[str, str]) -> tuple[FileDiff, ...]:
    """The diff of a first commit: everything is new."""
    return tuple(
        FileDiff(path, "new", tuple(_line(f"+{line}") for line in text.removesuffix("\n").split("\n")))
        for path, text in texts.items()
    )


def _file(part: str) -> FileDiff:
    lines = part.removesuffix("\n").split("\n")
    first_hunk = next((n for n, line in enumerate(lines) if n and line.startswith("@@ ")), len(lines))
    header = lines[1:first_hunk]
    path, state = _both(lines[0]), ""
    for line in header:
        sign, _, name = line.partition(" ")
        name = name.rstrip("\t").strip('"')
        if sign in ("---", "+++") and name != "/dev/null":
            path = name[2:]
    if any(line.startswith("new file") for line in header):
        state = "new"
    elif any(line.startswith("deleted file") for line in header):
        state = "deleted"
    notes = [line for line in header if line.startswith(("Binary", "old mode", "new mode", "GIT binary"))]
    shown = [DiffLine("note", line) for line in notes] + [_line(line) for line in lines[first_hunk:]]
    return FileDiff(path, state, tuple(shown))


def _both(names: str) -> str:
    """The name in `a/NAME b/NAME`."""
    middle = len(names) // 2
    return names[2:middle] if names[2:middle] == names[middle + 3 :] else names


def _line(line: str) -> DiffLine:
    text = line if len(line) <= LINE else f"{line[:LINE]} … ({len(line) - LINE:,} more characters)"
    match line[:1]:
        case "+":
            return DiffLine("add", text)
        case "-":
            return DiffLine("remove", text)
        case "@":
            return DiffLine("at", text)
        case "\\":
            return DiffLine("note", text)
    return DiffLine("same", text)
