"""All tools of a session. A new tool is one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from letta_code.core.messages import ToolSpec
from letta_code.errors import UsageError
from letta_code.tools.base import Tool, Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from letta_code.archive.archive import Archive
    from letta_code.core.ids import AgentKey
    from letta_code.memory.git.repository import Author, MemoryRepository
    from letta_code.paths import Paths
    from letta_code.tools.permissions.sight import Sight


class Toolbox:
    """Tools by name, in the order the model sees them."""

    def __init__(self, tools: Sequence[Tool[Any]]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._specs = tuple(tool.spec() for tool in tools)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names, in order."""
        return tuple(self._tools)

    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told; the same for as long as the session lives."""
        return self._specs

    def get(self, name: str) -> Tool[Any] | None:
        """The tool of this name, or None."""
        return self._tools.get(name)

    async def close(self) -> tuple[str, ...]:
        """Free what the tools hold (background processes); lines for the person about what that ended."""
        return tuple([line for tool in self._tools.values() for line in await tool.close()])


def build_toolbox(
    workspace: Workspace,
    repository: MemoryRepository,
    author: Author,
    agent_id: str,
    allowed: tuple[str, ...] | None = None,
    disallowed: tuple[str, ...] = (),
    *,
    project: str = "",
    holds: bool = False,
    agents_tools: Sequence[str] = (),
    sight: Sight | None = None,
    archive: Archive | None = None,
    stored: tuple[Paths, AgentKey] | None = None,
) -> Toolbox:
    """The tools for one session: all, or those named in `allowed`, without those in `disallowed`.
    `project` and `holds` are for `MemoryWriter`. `agents_tools` names tools that are offered only to agents
    that have them: those of an agent imported from Letta, and `memory_apply_patch`. `sight` is what searches
    leave out (nothing, when it is None); without an `archive` its tools are missing, and without `stored`
    (where whose conversations are) the one that searches conversations.

    Raises:
        UsageError: a name is not a tool's.
    """
    from letta_code.tools.archive import ArchivalInsert, ArchivalSearch
    from letta_code.tools.edit import Edit, MultiEdit
    from letta_code.tools.files import Read, Write
    from letta_code.tools.memory import MemoryTool
    from letta_code.tools.memory_classic import CLASSIC
    from letta_code.tools.memory_patch import MemoryPatchTool
    from letta_code.tools.memory_writing import MemoryWriter
    from letta_code.tools.permissions.sight import all_is_seen
    from letta_code.tools.recall import ConversationSearch
    from letta_code.tools.search import LS, Glob, Grep
    from letta_code.tools.seen import SeenFiles
    from letta_code.tools.shell import Bash, BashOutput, KillShell, ShellPool
    from letta_code.tools.todo import TodoWrite

    seen = SeenFiles()
    shells = ShellPool(workspace)
    writer = MemoryWriter(repository, author, agent_id, project, holds)
    others: tuple[Tool[Any], ...] = (MemoryPatchTool(writer), *(classic(writer) for classic in CLASSIC))
    tools: tuple[Tool[Any], ...] = (
        Read(workspace, seen),
        Write(workspace, seen),
        Edit(workspace, seen),
        MultiEdit(workspace, seen),
        Glob(workspace, sight or all_is_seen),
        Grep(workspace, sight or all_is_seen),
        LS(workspace),
        Bash(workspace, shells),
        BashOutput(shells),
        KillShell(shells),
        TodoWrite(),
        MemoryTool(writer),
        *(() if stored is None else (ConversationSearch(*stored),)),
        *(() if archive is None else (ArchivalInsert(archive), ArchivalSearch(archive))),
        *(tool for tool in others if tool.name in agents_tools),
    )
    known = {tool.name for tool in tools}
    for name in (*(allowed or ()), *disallowed):
        if name not in known:
            raise UsageError(f"there is no tool {name!r}", f"the tools are {', '.join(sorted(known))}")
    return Toolbox(
        [tool for tool in tools if (allowed is None or tool.name in allowed) and tool.name not in disallowed]
    )
