"""Edits of memory: what to change, as values, and what they make of a set of files.

Pure: `apply` gets the files of one commit and answers with the changed ones. Whether the result may be
written is for `memory.rules`; locking, committing and the work tree are for the repository.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

from letta_code.errors import MemoryEditError
from letta_code.memory.blocks import Block, new_block, parse_block
from letta_code.memory.rules import checked_path
from letta_code.memory.secrets import masked

Files: TypeAlias = Mapping[str, bytes]


class Edit(Protocol):
    """One change. `reapplies` says whether it still means the same on files that others changed since."""

    reapplies: ClassVar[bool]

    def apply(self, files: Files) -> dict[str, bytes | None]:
        """New content by path; None deletes.

        Raises:
            MemoryEditError: it does not fit these files.
        """
        ...


def memory_path(files: Container[str], given: str) -> str:
    """The file that `given` means: with or without a leading `memory/` or `/memories/` and `.md`.

    Raises:
        MemoryEditError: it cannot be a memory path.
    """
    path = _stripped(given)
    for candidate in (given, path, path + ".md"):
        if candidate in files:
            return candidate
    return checked_path(path if path.endswith(".md") else path + ".md")


@dataclass(frozen=True, slots=True)
class Create:
    """A new file."""

    path: str
    description: str
    text: str = ""
    reapplies: ClassVar[bool] = True

    def apply(self, files: Files) -> dict[str, bytes | None]:
        """See `Edit`."""
        path = memory_path(files, self.path)
        if path in files:
            raise MemoryEditError(f"{path}: exists already; change it with str_replace or insert")
        body = self.text if self.text.endswith("\n") or not self.text else self.text + "\n"
        return {path: new_block(path, self.description, body)}


@dataclass(frozen=True, slots=True)
class Replace:
    """One passage of a body by another; `new` may be empty."""

    path: str
    old: str
    new: str
    reapplies: ClassVar[bool] = True

    def apply(self, files: Files) -> dict[str, bytes | None]:
        """See `Edit`."""
        block = _existing(files, self.path)
        if not self.old:
            raise MemoryEditError(f"{block.path}: old_string is empty; use insert to add text")
        body = block.body
        old, new = _with_line_ends(self.old, body), _with_line_ends(self.new, body)
        starts = _occurrences(body, old)
        if not starts:
            raise MemoryEditError(_not_found(block, old))
        if len(starts) > 1:
            lines = ", ".join(str(body.count("\n", 0, at) + 1) for at in starts[:10])
            raise MemoryEditError(
                f"{block.path}: old_string occurs {len(starts)} times (lines {lines} of the body); "
                "add surrounding text so that it is unique"
            )
        at = starts[0]
        return {block.path: block.with_body(body[:at] + new + body[at + len(old) :])}


@dataclass(frozen=True, slots=True)
class Insert:
    """New lines before body line `line` (1-based); one past the last line appends."""

    path: str
    line: int
    text: str
    reapplies: ClassVar[bool] = False

    def apply(self, files: Files) -> dict[str, bytes | None]:
        """See `Edit`."""
        block = _existing(files, self.path)
        if not self.text:
            raise MemoryEditError(f"{block.path}: insert_text is empty")
        lines = _kept_lines(block.body)
        if not 1 <= self.line <= len(lines) + 1:
            raise MemoryEditError(
                f"{block.path}: insert_line {self.line} is outside 1 to {len(lines) + 1} "
                f"(the body has {len(lines)} lines)"
            )
        newline = "\r\n" if "\r\n" in block.body else "\n"
        text = _with_line_ends(self.text, block.body)
        if not text.endswith("\n"):
            text += newline
        before, after = lines[: self.line - 1], lines[self.line - 1 :]
        if before and not before[-1].endswith("\n"):
            before[-1] += newline
        return {block.path: block.with_body("".join([*before, text, *after]))}


@dataclass(frozen=True, slots=True)
class Delete:
    """A file, or a folder with all that is in it."""

    path: str
    reapplies: ClassVar[bool] = False

    def apply(self, files: Files) -> dict[str, bytes | None]:
        """See `Edit`."""
        return dict.fromkeys(_file_or_folder(files, self.path)[1])


@dataclass(frozen=True, slots=True)
class Rename:
    """A file or folder gets another name; contents are kept."""

    old: str
    new: str
    reapplies: ClassVar[bool] = True

    def apply(self, files: Files) -> dict[str, bytes | None]:
        """See `Edit`."""
        folder, paths = _file_or_folder(files, self.old)
        changes: dict[str, bytes | None] = dict.fromkeys(paths)
        if folder:
            target = checked_path(_stripped(self.new).removesuffix("/"))
            moved = {path: f"{target}/{path[len(folder) + 1 :]}" for path in paths}
        else:
            moved = {paths[0]: memory_path(files, self.new)}
        for path, target in moved.items():
            if target in files:
                raise MemoryEditError(f"{target}: exists already")
            changes[target] = files[path]
        return changes


@dataclass(frozen=True, slots=True)
class Describe:
    """Another description; nothing else of the file changes."""

    path: str
    description: str
    reapplies: ClassVar[bool] = False

    def apply(self, files: Files) -> dict[str, bytes | None]:
        """See `Edit`."""
        block = _existing(files, self.path)
        return {block.path: block.with_description(self.description)}


@dataclass(frozen=True, slots=True)
class Put:
    """Whole files at once, as they are (an import, an editor's result): full path to new content, None
    deletes. Files that were not there and files that others changed since are refused or merged as with
    every edit."""

    changes: Mapping[str, bytes | None]
    reapplies: ClassVar[bool] = False

    def apply(self, files: Files) -> dict[str, bytes | None]:
        """See `Edit`."""
        absent = [path for path, data in self.changes.items() if data is None and path not in files]
        if absent:
            raise MemoryEditError(f"{', '.join(absent)}: no such memory file")
        return dict(self.changes)


def _stripped(given: str) -> str:
    for prefix in ("/memories/", "memories/", "memory/", "$MEMORY_DIR/", "./"):
        if given.startswith(prefix):
            return given[len(prefix) :]
    return given


def _existing(files: Files, given: str) -> Block:
    path = memory_path(files, given)
    if path not in files:
        raise MemoryEditError(f"{masked(path)}: no such memory file{_nearest(files, path)}")
    if not path.endswith(".md"):
        raise MemoryEditError(f"{path}: is not a Markdown file; change it with the file tools")
    return parse_block(path, files[path])


def _file_or_folder(files: Files, given: str) -> tuple[str, list[str]]:
    """The folder's path (empty for a file) and the paths of the files meant."""
    path = _stripped(given)
    folder = path.rstrip("/")
    inside = sorted(name for name in files if name.startswith(folder + "/")) if folder else []
    named = "" if path.endswith("/") else next((p for p in (path, path + ".md") if p in files), "")
    if named and inside and named != path:
        raise MemoryEditError(
            f"{masked(given)!r} is ambiguous: say {folder}.md for the file or {folder}/ for the folder"
        )
    if named:
        return "", [named]
    if inside:
        return folder, inside
    checked_path(folder)
    raise MemoryEditError(f"{masked(folder)}: no such memory file or folder{_nearest(files, folder)}")


def _nearest(files: Files, path: str) -> str:
    name = path.rsplit("/", 1)[-1].removesuffix(".md").casefold()
    alike = [p for p in sorted(files) if name and name in p.casefold()][:3]
    return f"; there is {', '.join(alike)}" if alike else "; `view` without a path lists them"


def _with_line_ends(text: str, body: str) -> str:
    """`text` with the line ends of a body that is written in CRLF throughout."""
    if "\r" in text or "\r\n" not in body or body.count("\r\n") != body.count("\n"):
        return text
    return text.replace("\n", "\r\n")


def _kept_lines(body: str) -> list[str]:
    parts = body.split("\n")
    lines = [part + "\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _occurrences(body: str, old: str) -> list[int]:
    starts, at = [], body.find(old)
    while at != -1:
        starts.append(at)
        at = body.find(old, at + 1)
    return starts


def _not_found(block: Block, old: str) -> str:
    if old in block.text:
        return f"{block.path}: old_string is in the front matter; use update_description for the description"
    if " ".join(old.split()) in " ".join(block.body.split()):
        return f"{block.path}: old_string differs from the text in white space or line breaks; view the file"
    return f"{block.path}: old_string is not in the body; view the file and copy the text exactly"
