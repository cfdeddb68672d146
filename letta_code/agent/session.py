"""A session: one open conversation with what it needs. Composition only; the work is in the parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from letta_code.agent.compaction.settings import CompactionSettings
from letta_code.agent.counting import Counter
from letta_code.agent.prompting import Prompts
from letta_code.agent.reminder import Reminder
from letta_code.agent.retry import RetryPolicy
from letta_code.agent.state import AgentState
from letta_code.conversations.store import Conversation
from letta_code.core.events import Compacted, Event
from letta_code.core.tooling import Ask
from letta_code.errors import UsageError
from letta_code.models.base import Model
from letta_code.tools.base import Workspace
from letta_code.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from letta_code.agent.syncing import BackgroundSync
    from letta_code.agent.turn import Turn
    from letta_code.memory.git.repository import MemoryRepository
    from letta_code.tools.permissions.policy import Policy


class Fallback:
    """The model `handle` beside the main one, such as the one that answers when that stays out of reach:
    opened when first needed."""

    def __init__(self, handle: str, opener: Callable[[], Model]) -> None:
        self.handle = handle
        self._opener = opener
        self._model: Model | None = None

    async def open(self) -> Model:
        """The model.

        Raises:
            LettaError: it cannot be had, because its key is missing for example.
        """
        if self._model is None:
            self._model = await asyncio.to_thread(self._opener)
        return self._model

    async def close(self) -> None:
        """Free its connection, if there is one."""
        if self._model is not None:
            await self._model.close()


@dataclass(slots=True)
class Session:
    """One open conversation. `skills` is the `<available_skills>` text ("" when there are none);
    `max_turns` limits the requests of one turn (None: no limit); `syncing` is there when memory syncs after
    each turn; `fallback` when another model may answer for this one, `summariser` when another one writes
    summaries."""

    agent: AgentState
    conversation: Conversation
    model: Model
    toolbox: Toolbox
    policy: Policy
    workspace: Workspace
    memory: MemoryRepository
    prompts: Prompts
    reminder: Reminder
    skills: str = ""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_turns: int | None = None
    busy: bool = False
    syncing: BackgroundSync | None = None
    fallback: Fallback | None = None
    counter: Counter = field(default_factory=Counter)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    summariser: Fallback | None = None

    def __post_init__(self) -> None:
        self.counter.use(self.model.info)
        self.counter.resume(self.conversation.history)

    def turn(self, text: str, ask: Ask) -> Turn:
        """A turn with the person's `text`. It starts when its events are read.

        Raises:
            UsageError: the text is empty, or a turn is running.
        """
        from letta_code.agent.turn import Turn

        if not text.strip():
            raise UsageError("the prompt is empty", "say what you want")
        if self.busy:
            raise UsageError("a turn is running", "wait for its end, or interrupt it")
        return Turn(self, text, ask)

    async def compact(self, instructions: str, emit: Callable[[Event], None]) -> Compacted | None:
        """Summarise the conversation so far, as the person asks; None when there is nothing to summarise.
        `emit` gets what happens meanwhile. Cancelled or failed, the conversation is as it was.

        Raises:
            LettaError: a turn is running, no summary could be had, or it cannot be recorded.
        """
        from letta_code.agent.asking import Asking
        from letta_code.agent.compaction.compactor import Compactor

        if self.busy:
            raise UsageError("a turn is running", "wait for its end, or interrupt it")
        self.busy = True
        try:
            return await Compactor(self, Asking(self, emit), emit).manual(instructions)
        finally:
            self.busy = False

    def set_model(self, model: Model) -> Model:
        """Use `model` from the next request on; returns the one used before, for the caller to close."""
        before, self.model = self.model, model
        self.counter.use(model.info)
        return before

    async def close(self) -> tuple[str, ...]:
        """End background processes, close the model and the conversation; one line for each command that was
        ended so. Safe to call twice."""
        try:
            ended = await self.toolbox.close()
            await self.model.close()
            for other in (self.fallback, self.summariser):
                if other is not None:
                    await other.close()
            return ended
        finally:
            self.conversation.close()
