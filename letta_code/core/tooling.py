"""What a tool gives back and what a permission question is made of: values shared by tools, the turn
and the front ends. Content is for the model, display is for people; neither is derived from the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from letta_code.core.messages import Image, ResultStatus, Text

ToolKind = Literal["read", "edit", "execute", "memory", "other"]
"""What a call may do to the world; editors show it as an icon, permission modes go by it."""


@dataclass(frozen=True, slots=True)
class PlainDisplay:
    """A few lines of text for the person."""

    text: str
    type: Literal["plain"] = "plain"


@dataclass(frozen=True, slots=True)
class DiffDisplay:
    """A change to one file: texts before and after (None: did not or does not exist)."""

    path: str
    before: str | None
    after: str | None
    type: Literal["diff"] = "diff"


@dataclass(frozen=True, slots=True)
class CommandDisplay:
    """A command, what it printed (bounded), and its exit code (None while or when not known)."""

    command: str
    output: str
    exit_code: int | None
    type: Literal["command"] = "command"


@dataclass(frozen=True, slots=True)
class CommitDisplay:
    """A memory commit, with its unified diff."""

    revision: str
    reason: str
    diff: str
    type: Literal["commit"] = "commit"


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One line of the model's plan."""

    content: str
    status: Literal["pending", "in_progress", "completed"]
    active_form: str = ""


@dataclass(frozen=True, slots=True)
class TodoDisplay:
    """The model's plan as it stands."""

    items: tuple[TodoItem, ...]
    type: Literal["todo"] = "todo"


Display: TypeAlias = PlainDisplay | DiffDisplay | CommandDisplay | CommitDisplay | TodoDisplay


@dataclass(frozen=True, slots=True)
class MemoryCommitted:
    """A tool call moved memory's HEAD from `parent` to `revision`."""

    revision: str
    parent: str
    paths: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The outcome of one tool run. `content` is what the model reads; it is never empty."""

    content: tuple[Text | Image, ...]
    status: ResultStatus = "ok"
    display: tuple[Display, ...] = ()
    committed: MemoryCommitted | None = None

    @classmethod
    def of(cls, text: str, *display: Display, status: ResultStatus = "ok") -> ToolOutput:
        """An output of one text. Empty text becomes a note, since providers refuse empty blocks."""
        return cls((Text(text if text.strip() else "(no output)"),), status, display)


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question to the person: may this call run?

    `title` is one line ("Run: git push"), `reason` says why it asks, `rule` is the permission rule
    that "always" would add for this session, such as `Bash(git push:*)`; empty when "always" is not
    offered (destructive commands). `remedy` is the option of the command line that would allow it in a run
    without a person, empty when none does.
    """

    call_id: str
    tool: str
    kind: ToolKind
    title: str
    reason: str
    rule: str
    display: tuple[Display, ...] = ()
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer. `feedback` reaches the model as the reason of a denial."""

    choice: Literal["once", "always", "deny"]
    feedback: str = ""


Ask: TypeAlias = Callable[[ApprovalRequest], Awaitable[Decision]]
"""How a front end answers a permission question."""
