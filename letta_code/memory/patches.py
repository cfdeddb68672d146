"""Edits that other memory tools know: whole patches, an addition at the end, a body written anew.

Values like those of `memory.edits`, on the same terms: pure, and all or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from letta_code.errors import MemoryEditError
from letta_code.memory.blocks import new_block, parse_block
from letta_code.memory.edits import Files, memory_path

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_HEADS: dict[str, Literal["add", "update", "delete"]] = {
    "*** Add File: ": "add",
    "*** Update File: ": "update",
    "*** Delete File: ": "delete",
}
_MOVE = "*** Move to: "
_SHOWN = 300  # characters of a hunk that does not fit


@dataclass(frozen=True, slots=True)
class FilePatch:
    """What a patch does to one file. `lines` are those behind its head, marks included."""

    kind: Literal["add", "update", "delete"]
    path: str
    lines: tuple[str, ...] = ()
    target: str = ""

    @property
    def added(self) -> str:
        """The new lines."""
        return "\n".join(line[1:] for line in self.lines if line.startswith("+"))

    @property
    def removed(self) -> str:
        """The lines that go."""
        return "\n".join(line[1:] for line in self.lines if line.startswith("-"))


@dataclass(frozen=True, slots=True)
class Patch:
    """Several files at once, as Codex writes patches."""

    files: tuple[FilePatch, ...]
    reapplies: ClassVar[bool] = True

    @classmethod
    def parse(cls, text: str) -> Patch:
        """Read a patch.

        Raises:
            MemoryEditError: it is none.
        """
        lines = text.strip().replace("\r\n", "\n").split("\n")
        if lines[0].strip() != _BEGIN or lines[-1].strip() != _END:
            raise MemoryEditError(f"a patch begins with `{_BEGIN}` and ends with `{_END}`")
        found: list[FilePatch] = []
        for line in lines[1:-1]:
            head = next((head for head in _HEADS if line.startswith(head)), None)
            if head is not None:
                found.append(FilePatch(_HEADS[head], line[len(head) :].strip()))
            elif not found:
                raise MemoryEditError(
                    f"a patch names a file first (`*** Update File: PATH`), not {line[:80]!r}"
                )
            else:
                found[-1] = _continued(found[-1], line)
        if not found:
            raise MemoryEditError("the patch changes no file")
        return cls(tuple(found))

    def apply(self, files: Files) -> dict[str, bytes | None]:
        """See `Edit`."""
        changes: dict[str, bytes | None] = {}
        for part in self.files:
            path = memory_path(files, part.path)
            if path in changes:
                raise MemoryEditError(f"{path}: a patch may name a file once")
            if part.kind == "add":
                if path in files:
                    raise MemoryEditError(f"{path}: exists already; use `*** Update File`")
                changes[path] = _new_file(path, part.added)
                continue
            if path not in files:
                raise MemoryEditError(f"{path}: no such memory file")
            if part.kind == "delete":
                changes[path] = None
                continue
            changed = _patched(path, files[path], part.lines)
            target = memory_path(files, part.target) if part.target else path
            if target != path:
                if target in files or target in changes:
                    raise MemoryEditError(f"{target}: exists already")
                changes[path] = None
            changes[target] = changed
        return changes


@dataclass(frozen=True, slots=True)
class Append:
    """Lines at the end of a body."""

    path: str
    text: str
    reapplies: ClassVar[bool] = True

    def apply(self, files: Files) -> dict[str, bytes | None]:
        """See `Edit`."""
        path = _known(files, self.path)
        block = parse_block(path, files[path])
        gap = "" if not block.body or block.body.endswith("\n") else "\n"
        return {path: block.with_body(f"{block.body}{gap}{self.text.removesuffix(chr(10))}\n")}


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Another body; the file is made when it is not there."""

    path: str
    text: str
    reapplies: ClassVar[bool] = False

    def apply(self, files: Files) -> dict[str, bytes | None]:
        """See `Edit`."""
        path = memory_path(files, self.path)
        body = f"{self.text.removesuffix(chr(10))}\n" if self.text else ""
        if path not in files:
            return {path: new_block(path, _description(path), body)}
        return {path: parse_block(path, files[path]).with_body(body)}


def _continued(part: FilePatch, line: str) -> FilePatch:
    if part.kind == "update" and line.startswith(_MOVE) and not part.lines:
        return FilePatch(part.kind, part.path, (), line[len(_MOVE) :].strip())
    if line.strip() == "*** End of File":
        return part
    allowed = {"add": "+", "update": "+-@ ", "delete": ""}[part.kind]
    if line and line[0] not in allowed:
        raise MemoryEditError(
            f"{part.path}: a line of {part.kind} cannot begin with {line[0]!r}: {line[:80]!r}"
        )
    return FilePatch(part.kind, part.path, (*part.lines, line or " "), part.target)


def _patched(path: str, data: bytes, lines: tuple[str, ...]) -> bytes:
    """The file after its hunks, each of which must fit in one place behind the one before it."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MemoryEditError(f"{path}: is not UTF-8 text") from error
    crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
    rows = text.replace("\r\n", "\n").split("\n") if crlf else text.split("\n")
    at = 0
    for hunk in _hunks(lines):
        old = [line[1:] for line in hunk if line[0] in " -"]
        new = [line[1:] for line in hunk if line[0] in " +"]
        if not old:
            raise MemoryEditError(f"{path}: a hunk needs a line of context or one that goes")
        places = [n for n in range(at, len(rows) - len(old) + 1) if rows[n : n + len(old)] == old]
        if len(places) != 1:
            fits = "fits in several places; add context" if places else "does not fit; `view` the file"
            shown = "\n".join(old)[:_SHOWN]
            raise MemoryEditError(f"{path}: this hunk {fits}:\n{shown}")
        rows[places[0] : places[0] + len(old)] = new
        at = places[0] + len(new)
    return ("\r\n" if crlf else "\n").join(rows).encode("utf-8")


def _hunks(lines: tuple[str, ...]) -> list[list[str]]:
    hunks: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("@@"):
            hunks.append([])
        else:
            hunks[-1].append(line)
    return [hunk for hunk in hunks if hunk]


def _new_file(path: str, text: str) -> bytes:
    body = f"{text}\n" if text else ""
    return body.encode("utf-8") if text.startswith("---\n") else new_block(path, _description(path), body)


def _description(path: str) -> str:
    return f"Memory block {path.removesuffix('.md')}"


def _known(files: Files, given: str) -> str:
    path = memory_path(files, given)
    if path not in files:
        raise MemoryEditError(f"{path}: no such memory file")
    return path
