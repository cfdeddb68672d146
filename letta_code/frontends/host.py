"""What the front ends need from below and beside them: the session they translate, and, for the chat,
the host that opens sessions and answers slash commands. Protocols only; `agent` and `cli` fulfil them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from letta_code.conversations.summary import ConversationSummary
from letta_code.core.events import Compacted, Event
from letta_code.core.ids import AgentKey
from letta_code.core.messages import ToolSpec
from letta_code.core.tooling import Ask
from letta_code.models.base import ModelInfo
from letta_code.tools.permissions.policy import StandingRule
from letta_code.tools.processes.sandbox import Sandbox

if TYPE_CHECKING:
    from rich.console import RenderableType

    from letta_code.agent.rewind import Rewound
    from letta_code.frontends.undo import Wish


class AgentView(Protocol):
    """Which agent answers."""

    @property
    def key(self) -> AgentKey:
        """Organisation and agent id."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...


class ConversationView(Protocol):
    """Which conversation is open."""

    @property
    def id(self) -> str:
        """Its id."""
        ...


class ModelView(Protocol):
    """Which model is asked."""

    @property
    def info(self) -> ModelInfo:
        """What is known about it."""
        ...


class ToolboxView(Protocol):
    """Which tools the model has."""

    def specs(self) -> Sequence[ToolSpec]:
        """In the order the model is told."""
        ...


class PolicyView(Protocol):
    """What tools may do without a question."""

    @property
    def mode(self) -> str:
        """The permission mode that holds now."""
        ...

    @property
    def modes(self) -> Sequence[str]:
        """Those that it may be changed to."""
        ...

    def set_mode(self, name: str) -> None:
        """Change it. Raises `UsageError` when there is no such mode, or it is not one of `modes`."""
        ...

    def rules(self) -> Sequence[StandingRule]:
        """The rules that hold now, the strictest first."""
        ...


class WorkspaceView(Protocol):
    """Where the tools work."""

    @property
    def project(self) -> Path:
        """The working directory."""
        ...

    @property
    def memory(self) -> Path | None:
        """The memory work tree."""
        ...

    @property
    def sandbox(self) -> Sandbox | None:
        """What shell commands run in."""
        ...


class Turn(Protocol):
    """A turn that was begun."""

    def events(self) -> AsyncIterator[Event]:
        """`TurnStarted` first, `TurnDone` last, whatever happens."""
        ...

    def cancel(self) -> None:
        """Interrupt: tools are stopped, then `TurnDone` comes with status "interrupted"."""
        ...


class Session(Protocol):
    """An open conversation with everything that answers in it."""

    @property
    def agent(self) -> AgentView:
        """Who answers."""
        ...

    @property
    def conversation(self) -> ConversationView:
        """Where it is kept."""
        ...

    @property
    def model(self) -> ModelView:
        """What is asked."""
        ...

    @property
    def toolbox(self) -> ToolboxView:
        """What it can do."""
        ...

    @property
    def policy(self) -> PolicyView:
        """What it may do."""
        ...

    @property
    def workspace(self) -> WorkspaceView:
        """Where it works."""
        ...

    def turn(self, text: str, ask: Ask) -> Turn:
        """Begin a turn with the person's words."""
        ...

    async def compact(self, instructions: str, emit: Callable[[Event], None]) -> Compacted | None:
        """Summarise the conversation so far; None when there is nothing to summarise."""
        ...

    async def close(self) -> Sequence[str]:
        """Stop background processes and release the conversation; a line for the person about each one."""
        ...


class Host(Protocol):
    """What the chat's slash commands need. Every method may raise `LettaError`.

    A method that returns a session leaves the old one open: the chat closes it once the new one is there.
    """

    @property
    def history_file(self) -> Path:
        """Where typed lines are kept; its folder is private."""
        ...

    @property
    def log_file(self) -> Path:
        """Where the traceback of a bug is."""
        ...

    async def new_session(self) -> Session:
        """A new conversation of the same agent, with the same model."""
        ...

    async def resume(self, conversation_id: str) -> Session:
        """Open an earlier conversation; the beginning of its id is enough."""
        ...

    def conversations(self) -> Sequence[ConversationSummary]:
        """This agent's conversations, latest first."""
        ...

    async def open_model(self, session: Session, handle: str) -> None:
        """Let `session` ask the model `handle` from its next turn on."""
        ...

    async def models(self) -> Sequence[str]:
        """Handles of the models that can be reached."""
        ...

    def undo(self, session: Session, wish: Wish) -> Rewound:
        """Take back what the session's last turns changed in files, or say what that would do."""
        ...

    async def search(self, session: Session, query: str) -> Sequence[RenderableType]:
        """Messages of the session's agent that fit, the best first, for people."""
        ...

    def memory_log(self) -> Sequence[str]:
        """The latest memory commits, one line each, newest first."""
        ...

    def cost(self, session: Session) -> Sequence[str]:
        """What the session's conversation took so far, for people."""
        ...

    def context(self, session: Session) -> RenderableType:
        """What fills the window of the session's model, for people."""
        ...
