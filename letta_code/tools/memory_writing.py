"""What every tool that writes memory shares: one edit is one commit, with its provenance, made from the
revision that the model knew."""

from __future__ import annotations

import asyncio
from pathlib import Path

from letta_code.core.tooling import (
    CommitDisplay,
    DiffDisplay,
    Display,
    MemoryCommitted,
    PlainDisplay,
    ToolOutput,
)
from letta_code.errors import MemoryStoreError, StorageError, ToolError
from letta_code.memory.edits import Edit
from letta_code.memory.git.log import diff
from letta_code.memory.git.repository import Author, MemoryCommit, MemoryRepository, Provenance
from letta_code.memory.git.review import changes_of, hold
from letta_code.memory.history import Source
from letta_code.memory.scope import scope_of
from letta_code.memory.secrets import masked
from letta_code.tools.base import Call


class MemoryWriter:
    """Commits edits for the model. `project` is the slug of the open project ("" for none); with `holds`,
    what the person did not state waits on a side branch until they confirm it."""

    def __init__(
        self,
        repository: MemoryRepository,
        author: Author,
        agent_id: str,
        project: str = "",
        holds: bool = False,
    ) -> None:
        self.repository = repository
        self.holds = holds
        self._author = author
        self._agent_id = agent_id
        self._project = project
        self._seen: dict[tuple[str, str], tuple[str, str]] = {}

    def saw(self, path: str, revision: str, call: Call) -> None:
        """The model has been shown `path` as it is at `revision`."""
        self._seen[call.conversation_id, _key(path)] = (call.memory_revision, revision)

    async def write(
        self, edit: Edit, paths: tuple[str, ...], reason: str, source: Source | None, call: Call
    ) -> ToolOutput:
        """Make one commit. `paths` are those the edit names.

        Raises:
            ToolError: it was refused; nothing was changed.
        """
        try:
            # A thread: other writers may hold the lock for a while.
            return await asyncio.to_thread(self._write, edit, paths, reason, source, call)
        except (MemoryStoreError, StorageError) as error:
            raise ToolError(masked(f"{error.message}\n{error.hint}".strip())) from error

    def preview(self, edit: Edit) -> tuple[Display, ...]:
        """What the edit would change; empty when it does not fit."""
        try:
            changes = changes_of(self.repository, edit)
            head = self.repository.snapshot()
            return tuple(
                DiffDisplay(
                    masked(path),
                    _shown(head.objects.blob(head.entries[path]) if path in head.entries else None),
                    _shown(data),
                )
                for path, data in changes.items()
            )
        except MemoryStoreError:
            return ()

    def relative(self, path: str) -> str:
        """`path` as edits take it.

        Raises:
            ToolError: it is absolute and outside the memory folder.
        """
        if not path.startswith("/") or path.startswith("/memories/"):
            return path
        for root in (self.repository.worktree, self.repository.worktree.resolve()):
            if Path(path).is_relative_to(root):
                return path[len(str(root)) :].lstrip("/")
        raise ToolError(f"{masked(path)} is outside the memory folder; give a path relative to it")

    def _write(
        self, edit: Edit, paths: tuple[str, ...], reason: str, source: Source | None, call: Call
    ) -> ToolOutput:
        if not reason.strip():
            raise ToolError("reason is required: one sentence that says why memory changes")
        known: Source = "tool-output" if call.from_outside else source or "inferred"
        provenance = Provenance(self._agent_id, call.conversation_id, call.id, known, reviewed=call.consented)
        expected = self._expected(paths, call)
        if self.holds and known != "user-stated" and not call.consented:
            return self._held(hold(self.repository, edit, reason, self._author, provenance, expected))
        made = self.repository.commit(edit, reason, self._author, provenance, expected)
        for path in made.paths:
            self.saw(path, made.revision, call)
        return ToolOutput(
            content=ToolOutput.of(f"Committed {made.revision[:7]} {self._where(made)}.").content,
            display=(
                CommitDisplay(made.revision, made.reason, diff(self.repository, made.parent, made.revision)),
            ),
            committed=MemoryCommitted(made.revision, made.parent, made.paths, made.reason),
        )

    def _held(self, made: MemoryCommit) -> ToolOutput:
        return ToolOutput.of(
            f"Held for review as {made.revision[:7]}: {', '.join(made.paths)}. It is not memory until the "
            "person confirms it, so later edits cannot build on it.",
            CommitDisplay(made.revision, made.reason, diff(self.repository, made.parent, made.revision)),
            PlainDisplay("held for review: letta memory review"),
        )

    def _expected(self, paths: tuple[str, ...], call: Call) -> str | None:
        """The revision that the model made its edit from: what it was last shown of these files, or the
        prompt, whichever is later. Files outside `system/` are not in the prompt."""
        revisions = []
        for path in paths:
            key = _key(path)
            prompt, shown = self._seen.get((call.conversation_id, key), ("", ""))
            if shown and (prompt == call.memory_revision or not key.startswith("system/")):
                revisions.append(shown)
        return (revisions[0] if len(revisions) == 1 else call.memory_revision) or None

    def _where(self, made: MemoryCommit) -> str:
        """ "in this project's memory: projects/x/a.md; in every project's memory: system/human.md"."""
        scopes: dict[str, list[str]] = {}
        for path in made.paths:
            scopes.setdefault(scope_of(path, self._project), []).append(path)
        return "; ".join(f"in {scope}'s memory: {', '.join(found)}" for scope, found in scopes.items())


def _shown(data: bytes | None) -> str | None:
    return None if data is None else masked(data.decode("utf-8", "replace"))


def _key(path: str) -> str:
    """One spelling for the spellings of a memory path."""
    for prefix in ("/memories/", "memories/", "memory/", "$MEMORY_DIR/", "./"):
        path = path.removeprefix(prefix)
    return path.removesuffix(".md")
