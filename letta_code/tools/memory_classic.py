"""The memory tools that agents imported from Letta know. Each call is one commit, as with `memory`; a label
is a block of `system/`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from letta_code.core.tooling import Display, ToolKind, ToolOutput
from letta_code.memory.edits import Edit, Insert, Replace
from letta_code.memory.patches import Append, Rewrite
from letta_code.memory.secrets import masked
from letta_code.tools.base import Arguments, Call, Remembered, Tool
from letta_code.tools.memory_writing import MemoryWriter


class AppendArguments(Arguments):
    """What to add to a block."""

    label: str
    content: str


class CoreReplaceArguments(Arguments):
    """A passage of a block, and what it becomes."""

    label: str
    old_content: str
    new_content: str


class ReplaceArguments(Arguments):
    """A passage of a block, and what it becomes."""

    label: str
    old_string: str
    new_string: str


class InsertArguments(Arguments):
    """Text, and the line it goes after: 0 is the beginning, -1 the end."""

    label: str
    new_string: str
    insert_line: int = -1


class RethinkArguments(Arguments):
    """A block, written anew."""

    label: str
    new_memory: str


ClassicT = TypeVar(
    "ClassicT", AppendArguments, CoreReplaceArguments, ReplaceArguments, InsertArguments, RethinkArguments
)


class _Classic(Tool[ClassicT], Generic[ClassicT]):
    """What they share: they differ in their arguments and the edit these stand for."""

    kind: ClassVar[ToolKind] = "memory"
    words: ClassVar[str]

    def __init__(self, writer: MemoryWriter) -> None:
        self._writer = writer

    @abstractmethod
    def edit(self, given: ClassicT, path: str) -> tuple[Edit, str, str]:
        """The edit, the new text, and the text it replaces."""

    def description(self) -> str:
        """One sentence: these tools are known to those who use them."""
        return self.words

    def title(self, arguments: ClassicT) -> str:
        """One line for people."""
        return masked(f"{self.name} {arguments.label}")

    def remembers(self, arguments: ClassicT) -> Remembered | None:
        """The new text."""
        _, text, replaced = self.edit(arguments, _path(arguments.label))
        return Remembered(text, replaced)

    def preview(self, arguments: ClassicT) -> tuple[Display, ...]:
        """The change it would make."""
        return self._writer.preview(self.edit(arguments, _path(arguments.label))[0])

    async def run(self, arguments: ClassicT, call: Call) -> ToolOutput:
        """Make one commit."""
        path = _path(arguments.label)
        edit = self.edit(arguments, path)[0]
        return await self._writer.write(edit, (path,), f"{self.name} {arguments.label}", None, call)


class CoreMemoryAppend(_Classic[AppendArguments]):
    """Adds to the end of a block."""

    name: ClassVar[str] = "core_memory_append"
    words: ClassVar[str] = "Append to the contents of a memory block."
    arguments = AppendArguments

    def edit(self, given: AppendArguments, path: str) -> tuple[Edit, str, str]:
        """See `_Classic`."""
        return Append(path, given.content), given.content, ""


class CoreMemoryReplace(_Classic[CoreReplaceArguments]):
    """Replaces a passage of a block."""

    name: ClassVar[str] = "core_memory_replace"
    words: ClassVar[str] = "Replace a passage of a memory block; old_content must occur exactly once."
    arguments = CoreReplaceArguments

    def edit(self, given: CoreReplaceArguments, path: str) -> tuple[Edit, str, str]:
        """See `_Classic`."""
        return Replace(path, given.old_content, given.new_content), given.new_content, given.old_content


class MemoryReplace(_Classic[ReplaceArguments]):
    """Replaces a passage of a block."""

    name: ClassVar[str] = "memory_replace"
    words: ClassVar[str] = "Replace a passage of a memory block; old_string must occur exactly once."
    arguments = ReplaceArguments

    def edit(self, given: ReplaceArguments, path: str) -> tuple[Edit, str, str]:
        """See `_Classic`."""
        return Replace(path, given.old_string, given.new_string), given.new_string, given.old_string


class MemoryInsert(_Classic[InsertArguments]):
    """Puts text after a line of a block."""

    name: ClassVar[str] = "memory_insert"
    words: ClassVar[str] = "Insert text into a memory block after line insert_line (0 beginning, -1 end)."
    arguments = InsertArguments

    def edit(self, given: InsertArguments, path: str) -> tuple[Edit, str, str]:
        """See `_Classic`."""
        text, line = given.new_string, given.insert_line
        return (Append(path, text) if line == -1 else Insert(path, line + 1, text)), text, ""


class MemoryRethink(_Classic[RethinkArguments]):
    """Writes a block anew."""

    name: ClassVar[str] = "memory_rethink"
    words: ClassVar[str] = "Rewrite a memory block, or make it. Integrate what is new and keep what holds."
    arguments = RethinkArguments

    def edit(self, given: RethinkArguments, path: str) -> tuple[Edit, str, str]:
        """See `_Classic`."""
        return Rewrite(path, given.new_memory), given.new_memory, ""


CLASSIC: tuple[type[_Classic[Any]], ...] = (
    CoreMemoryAppend,
    CoreMemoryReplace,
    MemoryInsert,
    MemoryReplace,
    MemoryRethink,
)
"""All of them."""


def _path(label: str) -> str:
    return f"system/{label.removeprefix('system/').removesuffix('.md')}.md"
