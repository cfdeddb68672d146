"""A session on real memory, real tools and a real transcript; only the model is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from letta_code.agent.prompting import Prompts
from letta_code.agent.reminder import Reminder
from letta_code.agent.retry import RetryPolicy
from letta_code.agent.session import Session
from letta_code.agent.state import AgentState, AgentStore
from letta_code.conversations.store import ConversationStore
from letta_code.core.events import Event, TurnDone, TurnStarted
from letta_code.core.messages import Block, Message, StopReason, Text, ToolCall, ToolResult, Usage
from letta_code.core.tooling import ApprovalRequest, Decision, ToolKind, ToolOutput
from letta_code.errors import ModelError, ToolError
from letta_code.memory.prompt import PromptCache
from letta_code.memory.seed import default_files
from letta_code.models.base import Completed, Model, ModelInfo, ModelPart, ModelRequest, Price, TextPart
from letta_code.paths import Paths
from letta_code.tools.base import Arguments, Call, Tool, Workspace
from letta_code.tools.permissions.policy import Policy
from letta_code.tools.permissions.rules import Rules
from letta_code.tools.toolbox import Toolbox

Step = Completed | ModelError | Exception | asyncio.Event


def said(text: str, *blocks: Block, stop: StopReason = "end_turn") -> Completed:
    message = Message("assistant", (Text(text), *blocks), "agent")
    return Completed(message, Usage(10, 5), stop)


def asked(*calls: tuple[str, str, dict[str, Any]], stop: StopReason = "tool_use") -> Completed:
    blocks = tuple(ToolCall(call_id, name, arguments) for call_id, name, arguments in calls)
    return Completed(Message("assistant", blocks, "agent"), Usage(10, 5), stop)


@dataclass
class Scripted:
    """A model that plays `steps`: an answer, an error, or an event that it sets and then stays silent."""

    steps: list[Step]
    system_messages: bool = True
    handle: str = "test/model"
    window: int = 100_000
    requests: list[ModelRequest] = field(default_factory=list)

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            self.handle,
            "test",
            self.handle.partition("/")[2],
            "anthropic",
            self.window,
            100,
            self.system_messages,
            price=Price(1, 1, 1, 1),
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        self.requests.append(request)
        step = self.steps.pop(0)
        if isinstance(step, asyncio.Event):
            yield TextPart("half")
            step.set()
            await asyncio.Event().wait()
        elif isinstance(step, Exception):
            if str(step) != "unreachable":
                yield TextPart("half")
            raise step
        elif isinstance(step, Completed):
            if step.message.text:
                yield TextPart(step.message.text)
            yield step

    async def close(self) -> None:
        pass


class DoArguments(Arguments):
    how: str = "ok"


class Look(Tool[DoArguments]):
    """Reads. `wait` ends only when two calls wait at once."""

    name: ClassVar[str] = "Look"
    kind: ClassVar[ToolKind] = "read"
    arguments = DoArguments

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.barrier = asyncio.Barrier(2)
        self.running = asyncio.Event()
        self.cleaned = 0

    def description(self) -> str:
        return self.name

    def title(self, arguments: DoArguments) -> str:
        return f"{self.name} {arguments.how}"

    async def run(self, arguments: DoArguments, call: Call) -> ToolOutput:
        self.ran.append(call.id)
        match arguments.how:
            case "fail":
                raise ToolError("it cannot be done")
            case "bug":
                raise ZeroDivisionError("1/0")
            case "wait":
                await self.barrier.wait()
            case "hang":
                self.running.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cleaned += 1
            case "nothing":
                return ToolOutput((Text(""),))
            case _:
                call.progress("some")
        return ToolOutput.of(f"{call.id} {arguments.how}")


class Do(Look):
    """Has effects, so it asks."""

    name: ClassVar[str] = "Do"
    kind: ClassVar[ToolKind] = "other"


@dataclass
class Bench:
    """One agent below `root`, and sessions of it."""

    root: Path
    paths: Paths
    store: AgentStore
    state: AgentState
    look: Look
    do: Do
    decisions: list[Decision] = field(default_factory=list)
    questions: list[ApprovalRequest] = field(default_factory=list)

    @classmethod
    def make(cls, root: Path) -> Bench:
        paths = Paths(root / "memfs", root / "config", root / "data", root / "cache", root / "log")
        store = AgentStore(paths)
        (root / "project").mkdir()
        state = store.create("tester", "Base.\n\n{CORE_MEMORY}\n", default_files())
        return cls(root, paths, store, state, Look(), Do())

    async def ask(self, request: ApprovalRequest) -> Decision:
        self.questions.append(request)
        return self.decisions.pop(0) if self.decisions else Decision("once")

    def session(self, model: Model, conversation_id: str | None = None, **options: Any) -> Session:
        conversations = ConversationStore(self.paths)
        if conversation_id is None:
            conversation = conversations.create(self.state.key, self.root / "project")
        else:
            conversation = conversations.open(self.state.key, conversation_id)
        memory = self.store.memory(self.state)
        workspace = Workspace(self.root / "project", (self.root / "project",), self.root / "overflow")
        return Session(
            agent=self.state,
            conversation=conversation,
            model=model,
            toolbox=Toolbox([self.look, self.do]),
            policy=Policy("default", Rules(), workspace),
            workspace=workspace,
            memory=memory,
            prompts=Prompts(
                PromptCache(self.paths.compiled_prompts()), memory, self.store.base_prompt(self.state)
            ),
            reminder=Reminder(workspace, self.state.id, conversation.id),
            retry=RetryPolicy(base=0.0),
            **options,
        )

    async def turn(self, session: Session, text: str = "go") -> list[Event]:
        events = [event async for event in session.turn(text, self.ask).events()]
        check(events)
        return events


def check(events: Sequence[Event]) -> None:
    """What holds for every turn."""
    assert isinstance(events[0], TurnStarted)
    assert isinstance(events[-1], TurnDone)
    assert sum(isinstance(event, TurnStarted | TurnDone) for event in events) == 2


def done(events: Sequence[Event]) -> TurnDone:
    last = events[-1]
    assert isinstance(last, TurnDone)
    return last


def results(session: Session) -> list[ToolResult]:
    message = next(item for item in reversed(session.conversation.messages) if item.role == "tool")
    return [block for block in message.blocks if isinstance(block, ToolResult)]
