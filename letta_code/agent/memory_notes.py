"""What the reminder says of memory: the project's scope and overview, drafts that were left, and pressure.

All of it changes by itself, so none of it is in the compiled prompt. Each note is told when it is new,
again when it changed, and pressure and drafts once more after a while if they still hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from letta_code.agent.claims import stale_claims
from letta_code.agent.projects import Project
from letta_code.core.messages import Message, Text
from letta_code.core.text import one_line
from letta_code.errors import MemoryStoreError
from letta_code.memory.budget import Budget, measure, pressure
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.overview import marker, overview_of
from letta_code.memory.render import escaped
from letta_code.memory.scope import overview_path, project_folder
from letta_code.memory.snapshot import MemorySnapshot

_AGAIN = 20  # messages of the person after which what still holds is said again
_DRAFTS = 10  # names
_SMALL_INDEX = 100_000  # bytes of Git's index: about a thousand files
_WRITERS = frozenset({"Bash", "Write", "Edit", "MultiEdit"})
"""Tools that can leave a file in the memory folder without committing it."""


class MemoryNotes:
    """The notes of one conversation. `share` is the part of the model's window that `system/` may take."""

    def __init__(self, repository: MemoryRepository, project: Project, share: float) -> None:
        self.project = project
        self.share = share
        self._repository = repository
        self._measured: tuple[str, Budget] | None = None
        self._overview = ""
        self._drafts: tuple[str, ...] = ()
        self._told: dict[str, tuple[str, int]] = {}
        self._turn = 0

    def facts(self) -> dict[str, str]:
        """Facts for the reminder's list, by name."""
        if not self.project.slug:
            return {}
        folder = f"$MEMORY_DIR/{project_folder(self.project.slug)}"
        return {"Project memory": f"{folder} (facts about this project go there, not into system/)"}

    def parts(self, messages: Sequence[Message], window: int) -> list[str]:
        """Paragraphs for the next message. `messages` is the conversation so far, as the model will see
        it; `window` is the model's, in tokens."""
        self._turn += 1
        try:
            snapshot = self._repository.snapshot()
            found = [
                self._project_overview(snapshot, messages),
                self._news(
                    "pressure", self._pressure(snapshot, window), "Memory is within its budget again."
                ),
                self._news("drafts", self._left(messages), "No uncommitted files are left in $MEMORY_DIR."),
            ]
        except MemoryStoreError:
            return []  # the prompt of this turn says so
        return [part for part in found if part]

    def forget(self) -> None:
        """What was told did not reach the conversation."""
        self._overview = ""
        self._told = {}

    def budget(self, snapshot: MemorySnapshot) -> Budget:
        """What `snapshot` takes in the prompt; measured once for a revision."""
        if self._measured is None or self._measured[0] != snapshot.revision:
            self._measured = snapshot.revision, measure(snapshot)
        return self._measured[1]

    def _project_overview(self, snapshot: MemorySnapshot, messages: Sequence[Message]) -> str:
        if not self.project.slug:
            return ""
        overview = overview_of(snapshot, self.project.slug)
        blob = overview.blob if overview is not None else ""
        if blob == self._overview:
            return ""
        before, self._overview = self._overview, blob
        if overview is None:
            return f"{overview_path(self.project.slug)} is gone from memory or empty now."
        if not before and _has(messages, marker(overview.path, overview.blob)):
            return ""  # the conversation is gone on with
        doubts = stale_claims(overview.body, self.project.root, self._written(overview.path))
        if not doubts:
            return overview.text
        return (
            f"{overview.text}\nVerify before you rely on it: {escaped('; '.join(doubts), 'system-reminder')}."
        )

    def _written(self, path: str) -> float:
        """When the memory file in the work tree was last written; reading does not change that."""
        try:
            return (self._repository.worktree / path).stat().st_mtime
        except OSError:
            return math.inf

    def _pressure(self, snapshot: MemorySnapshot, window: int) -> str:
        lines = pressure(self.budget(snapshot), window, self.share)
        if not lines:
            return ""
        return "\n".join(
            ["Memory pressure (shorten what is stale, move detail out of system/, lose nothing):", *lines]
        )

    def _left(self, messages: Sequence[Message]) -> str:
        # A large work tree takes time to look through, so a first answer does not wait for that.
        opening = 1 if self._small() else 2
        if self._turn == opening or self._drafts or _wrote(messages):
            self._drafts = tuple(draft.path for draft in self._repository.status())
        if not self._drafts:
            return ""
        names = [one_line(path, 200) for path in self._drafts[:_DRAFTS]]
        more = f", and {len(self._drafts) - _DRAFTS:,} more" if len(self._drafts) > _DRAFTS else ""
        return (
            f"Uncommitted in $MEMORY_DIR: {', '.join(names)}{more}. What is not committed is not memory: "
            '`letta memory commit -m "why"` in the shell commits it.'
        )

    def _small(self) -> bool:
        try:
            return (self._repository.git_dir / "index").stat().st_size < _SMALL_INDEX
        except OSError:
            return True

    def _news(self, name: str, text: str, over: str) -> str:
        before, turn = self._told.get(name, ("", 0))
        if text == before and (not text or self._turn - turn < _AGAIN):
            return ""
        self._told[name] = text, self._turn
        return escaped(text or over, "system-reminder")


def _has(messages: Sequence[Message], words: str) -> bool:
    return any(
        words in block.text
        for message in messages
        if message.role == "user"
        for block in message.blocks[: message.reminder]
        if isinstance(block, Text)
    )


def _wrote(messages: Sequence[Message]) -> bool:
    """Whether the last turn used a tool that can leave drafts."""
    for message in reversed(messages):
        if message.role == "user":
            return False
        if any(call.name in _WRITERS for call in message.tool_calls):
            return True
    return False
