"""`memory_apply_patch`: memory for models that were trained to write patches. One patch is one commit."""

from __future__ import annotations

from typing import ClassVar

from letta_code.core.tooling import Display, ToolKind, ToolOutput
from letta_code.errors import MemoryEditError, ToolError
from letta_code.memory.patches import Patch
from letta_code.memory.secrets import masked
from letta_code.tools.base import Arguments, Call, Remembered, Tool
from letta_code.tools.memory_writing import MemoryWriter


class PatchArguments(Arguments):
    """Arguments of `memory_apply_patch`."""

    reason: str
    input: str


class MemoryPatchTool(Tool[PatchArguments]):
    """Applies a patch to committed memory and commits it."""

    name: ClassVar[str] = "memory_apply_patch"
    kind: ClassVar[ToolKind] = "memory"
    arguments = PatchArguments

    def __init__(self, writer: MemoryWriter) -> None:
        self._writer = writer

    def title(self, arguments: PatchArguments) -> str:
        """One line for people."""
        try:
            paths = [part.path for part in Patch.parse(arguments.input).files]
        except MemoryEditError:
            paths = []
        return masked(f"Memory patch {', '.join(paths)}".rstrip())

    def remembers(self, arguments: PatchArguments) -> Remembered | None:
        """The added lines."""
        patch = _parsed(arguments)
        return Remembered(
            "\n".join(part.added for part in patch.files), "\n".join(part.removed for part in patch.files)
        )

    def preview(self, arguments: PatchArguments) -> tuple[Display, ...]:
        """The change it would make."""
        try:
            return self._writer.preview(Patch.parse(arguments.input))
        except MemoryEditError:
            return ()

    async def run(self, arguments: PatchArguments, call: Call) -> ToolOutput:
        """Make one commit."""
        patch = _parsed(arguments)
        paths = tuple(part.path for part in patch.files)
        return await self._writer.write(patch, paths, arguments.reason, None, call)


def _parsed(arguments: PatchArguments) -> Patch:
    try:
        return Patch.parse(arguments.input)
    except MemoryEditError as error:
        raise ToolError(masked(error.message)) from error
