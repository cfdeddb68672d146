"""The `memory` tool: one call, one commit. The edits are `memory.edits`; the repository does the rest."""

from __future__ import annotations

from typing import ClassVar, Literal

from letta_code.core.tooling import Display, ToolKind, ToolOutput
from letta_code.errors import MemoryEditError, MemoryStoreError, ToolError
from letta_code.memory.blocks import parse_block
from letta_code.memory.edits import Create, Delete, Describe, Edit, Insert, Rename, Replace, memory_path
from letta_code.memory.secrets import masked
from letta_code.memory.snapshot import MemorySnapshot
from letta_code.tools.base import Arguments, Call, Remembered, Tool
from letta_code.tools.memory_writing import MemoryWriter

Command = Literal["view", "create", "str_replace", "insert", "delete", "rename", "update_description"]

_VIEW_LIMIT = 30_000
_LIST_LIMIT = 1_000


class MemoryArguments(Arguments):
    """Arguments of the memory tool."""

    command: Command
    reason: str | None = None
    file_path: str | None = None
    description: str | None = None
    file_text: str | None = None
    old_string: str | None = None
    new_string: str | None = None
    insert_line: int | None = None
    insert_text: str | None = None
    old_path: str | None = None
    new_path: str | None = None
    source: Literal["user-stated", "inferred", "tool-output"] | None = None


class MemoryTool(Tool[MemoryArguments]):
    """Reads committed memory and commits changes to it."""

    name: ClassVar[str] = "memory"
    kind: ClassVar[ToolKind] = "memory"
    arguments = MemoryArguments

    def __init__(self, writer: MemoryWriter) -> None:
        self._writer = writer
        self._repository = writer.repository

    def has_effects(self, arguments: MemoryArguments) -> bool:
        """A view has none."""
        return arguments.command != "view"

    def title(self, arguments: MemoryArguments) -> str:
        """One line for people."""
        what = arguments.file_path or arguments.old_path or "all"
        where = f" → {arguments.new_path}" if arguments.new_path else ""
        return masked(f"Memory {arguments.command} {what}{where}")

    def remembers(self, arguments: MemoryArguments) -> Remembered | None:
        """The new words."""
        if not self.has_effects(arguments):
            return None
        texts = (arguments.description, arguments.file_text, arguments.new_string, arguments.insert_text)
        return Remembered(
            "\n".join(text for text in texts if text),
            arguments.old_string or "",
            arguments.source == "tool-output",
        )

    def preview(self, arguments: MemoryArguments) -> tuple[Display, ...]:
        """The change it would make."""
        try:
            return self._writer.preview(self._edit(arguments)) if self.has_effects(arguments) else ()
        except ToolError:
            return ()

    async def run(self, arguments: MemoryArguments, call: Call) -> ToolOutput:
        """View, or make one commit."""
        if arguments.command == "view":
            try:
                return ToolOutput.of(self._view(arguments.file_path, call))
            except MemoryStoreError as error:
                raise ToolError(f"{error.message}\n{error.hint}".strip()) from error
        named = (arguments.file_path, arguments.old_path, arguments.new_path)
        paths = tuple(self._writer.relative(path) for path in named if path)
        edit = self._edit(arguments)
        return await self._writer.write(edit, paths, arguments.reason or "", arguments.source, call)

    def _edit(self, given: MemoryArguments) -> Edit:
        match given.command:
            case "create":
                path, words = self._path(given, "file_path"), _needed(given, "description")
                return Create(path, words, given.file_text or "")
            case "str_replace":
                old, new = _needed(given, "old_string"), given.new_string
                if new is None:
                    raise ToolError("str_replace needs new_string (empty deletes the passage)")
                return Replace(self._path(given, "file_path"), old, new)
            case "insert":
                if given.insert_line is None:
                    raise ToolError("insert needs insert_line")
                return Insert(
                    self._path(given, "file_path"), given.insert_line, _needed(given, "insert_text")
                )
            case "delete":
                return Delete(self._path(given, "file_path"))
            case "rename":
                return Rename(self._path(given, "old_path"), self._path(given, "new_path"))
            case _:
                return Describe(self._path(given, "file_path"), _needed(given, "description"))

    def _path(self, given: MemoryArguments, name: str) -> str:
        return self._writer.relative(_needed(given, name))

    def _view(self, given: str | None, call: Call) -> str:
        snapshot = self._repository.snapshot()
        path = self._writer.relative(given or "").strip("/") if given else ""
        folder = path.removeprefix("memories/").removeprefix("memory/")
        entry = snapshot.find(folder) if folder not in ("", "memory", "memories") else None
        if entry is not None and entry.kind == "folder":
            return _listing(snapshot, entry.id, folder + "/")
        if folder in ("", "memory", "memories"):
            return _listing(snapshot, snapshot.root, "")
        name = memory_path(snapshot.entries, path)
        if name not in snapshot.entries:
            raise ToolError(f"{masked(name)}: no such memory file; `view` without a path lists them")
        self._writer.saw(name, snapshot.revision, call)
        return _numbered(name, snapshot.read(name))


def _needed(given: MemoryArguments, name: str) -> str:
    value = getattr(given, name)
    if not isinstance(value, str) or not value:
        raise ToolError(f"{given.command} needs {name}")
    return value


def _listing(snapshot: MemorySnapshot, tree: str, prefix: str) -> str:
    lines = []
    paths = sorted(path for path, entry in snapshot.walk(tree, prefix) if entry.kind == "file")
    for path in paths[:_LIST_LIMIT]:
        words = ""
        if path.endswith(".md"):
            try:
                words = snapshot.objects.block(path, snapshot.entries[path]).summary
            except MemoryEditError:
                words = "(front matter unreadable)"
        lines.append(f"{path} — {words}" if words else path)
    if len(paths) > _LIST_LIMIT:
        lines.append(f"… {len(paths) - _LIST_LIMIT:,} more; view a folder")
    return "\n".join([f"Memory at {snapshot.revision[:7]}, {len(paths):,} files:", *lines])


def _numbered(path: str, data: bytes) -> str:
    block = parse_block(path, data)
    facts = [path]
    if block.description:
        facts.append(f"description: {block.description}")
    if block.limit is not None:
        facts.append(f"{len(block.body)}/{block.limit} characters")
    if block.read_only:
        facts.append("read-only")
    body = block.body.removesuffix("\n")
    lines = [f"{number}\t{line}" for number, line in enumerate(body.split("\n"), 1)] if body else ["(empty)"]
    text = "\n".join([*facts, "", *lines])
    if len(text) <= _VIEW_LIMIT:
        return text
    return text[:_VIEW_LIMIT] + "\n… cut; read the rest with Read in $MEMORY_DIR"
