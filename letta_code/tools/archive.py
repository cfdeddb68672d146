"""`archival_memory_insert` and `archival_memory_search`: the agent's archive. It is `archive.Archive`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from letta_code.archive.archive import Archive, Kept
from letta_code.archive.passages import ArchiveError, Passage, narrowed, new_passage
from letta_code.core.tooling import Display, PlainDisplay, ToolKind, ToolOutput
from letta_code.errors import StorageError, ToolError
from letta_code.memory.secrets import masked
from letta_code.tools.base import Arguments, Call, Remembered, Tool

_ANSWER = 30_000  # characters


class ArchivalInsertArguments(Arguments):
    """A passage."""

    content: str
    tags: tuple[str, ...] = ()
    source: Literal["user-stated", "inferred", "tool-output"] | None = None


class ArchivalInsert(Tool[ArchivalInsertArguments]):
    """Keeps a passage."""

    name: ClassVar[str] = "archival_memory_insert"
    kind: ClassVar[ToolKind] = "memory"
    arguments = ArchivalInsertArguments

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def title(self, arguments: ArchivalInsertArguments) -> str:
        """One line for people."""
        return masked(f"Archive: {arguments.content}")

    def remembers(self, arguments: ArchivalInsertArguments) -> Remembered:
        """The passage and its tags."""
        return Remembered(
            "\n".join((arguments.content, *arguments.tags)),
            from_outside=arguments.source == "tool-output",
            stated=arguments.source == "user-stated",
            reviewable=False,
        )

    def preview(self, arguments: ArchivalInsertArguments) -> tuple[Display, ...]:
        """All of the passage."""
        tags = f"\n[{', '.join(arguments.tags)}]" if arguments.tags else ""
        return (PlainDisplay(masked(arguments.content + tags)),)

    async def run(self, arguments: ArchivalInsertArguments, call: Call) -> ToolOutput:
        """Keep it."""
        source = "tool-output" if call.from_outside else arguments.source or "inferred"
        try:
            passage = new_passage(arguments.content, arguments.tags, source, call.pointer)
            return ToolOutput.of(_told(await self._archive.insert([passage])))
        except (ArchiveError, StorageError) as error:
            raise ToolError(masked(f"{error.message}: {error.hint}")) from error


class ArchivalSearchArguments(Arguments):
    """What to look for."""

    query: str
    tags: tuple[str, ...] = ()
    tag_match_mode: Literal["any", "all"] = "any"
    start_datetime: str | None = None
    end_datetime: str | None = None
    top_k: Annotated[int, Field(ge=1, le=50)] = 10


class ArchivalSearch(Tool[ArchivalSearchArguments]):
    """Finds passages."""

    name: ClassVar[str] = "archival_memory_search"
    kind: ClassVar[ToolKind] = "memory"
    arguments = ArchivalSearchArguments

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def has_effects(self, arguments: ArchivalSearchArguments) -> bool:
        """It only looks."""
        return False

    def title(self, arguments: ArchivalSearchArguments) -> str:
        """One line for people."""
        tags = f" [{', '.join(arguments.tags)}]" if arguments.tags else ""
        return masked(f"Search the archive: {arguments.query}{tags}")

    async def run(self, arguments: ArchivalSearchArguments, call: Call) -> ToolOutput:
        """The passages, the best first."""
        try:
            wanted = narrowed(
                arguments.tags,
                arguments.tag_match_mode == "all",
                arguments.start_datetime or "",
                arguments.end_datetime or "",
            )
            found = await self._archive.search(arguments.query, wanted, arguments.top_k)
        except (ArchiveError, StorageError) as error:
            raise ToolError(f"{error.message}: {error.hint}") from error
        return ToolOutput.of(listed(found.passages, found.note))


def listed(passages: tuple[Passage, ...], note: str) -> str:
    """What a search found, for the model."""
    how = f" ({note})" if note else ""
    if not passages:
        return f"No passage fits{how}."
    parts = [f"{len(passages)} passages, the best first{how}:"]
    room = _ANSWER
    for index, passage in enumerate(passages):
        facts = [passage.id, passage.created_at, passage.source, passage.pointer]
        facts.append(f"tags: {', '.join(passage.tags)}" if passage.tags else "")
        part = f"[{' · '.join(fact for fact in facts if fact)}]\n{passage.text}"
        room -= len(part)
        if room < 0:
            parts.append(f"{len(passages) - index} more are left out: ask for fewer, or narrow the search.")
            break
        parts.append(part)
    return "\n\n".join(parts)


def _told(kept: Kept) -> str:
    (stored,) = kept.stored
    passage = stored.passage
    if stored.new:
        words = f"Kept as {passage.id}."
    else:
        added = f"; added the tags {', '.join(stored.added)}" if stored.added else ""
        words = f"This is already in the archive, as {passage.id} of {passage.created_at}{added}."
    return f"{words} Search by meaning: {kept.note}." if kept.note else words
