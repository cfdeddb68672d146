"""A session without agent and model: it plays scenes, written as events, through the front ends' public
doors. `python -m tests.frontends.fake FRONT SCENE [PROMPT]` is a process of its own for signals and ptys; it
has less patience than letta."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from letta_code.agent.rewind import Rewound
from letta_code.conversations.summary import ConversationSummary
from letta_code.core.events import (
    ApprovalAsked,
    ApprovalGiven,
    Compacted,
    Event,
    MessageDone,
    Notice,
    Retrying,
    StepDone,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolDone,
    ToolRunning,
    TurnDone,
    TurnError,
    TurnStarted,
    TurnStatus,
)
from letta_code.core.ids import AgentKey
from letta_code.core.messages import Message, Text, ToolCall, ToolSpec, Usage
from letta_code.core.tooling import (
    ApprovalRequest,
    Ask,
    CommandDisplay,
    Decision,
    DiffDisplay,
    TodoDisplay,
    TodoItem,
    ToolOutput,
)
from letta_code.errors import ConversationError, UsageError
from letta_code.frontends.signals import Ending, Patience
from letta_code.frontends.undo import Wish
from letta_code.models.base import ModelInfo
from letta_code.tools.permissions.policy import StandingRule
from letta_code.tools.processes.sandbox import Sandbox
from letta_code.undo.restore import Outcome

AGENT = "agent-11111111-1111-4111-8111-111111111111"
ORG = "org-00000000-0000-4000-8000-000000000000"
USAGE = Usage(1200, 80, 15_000, 300)

ANSWER = """Found it. The total is **off by one**:

- `range(1, n)` leaves out the last row
- the test expects it

```python
def total(rows):

    return sum(row.price for row in rows)
```

All 12 tests pass now — see [docs](https://example.org/a).
"""


@dataclass
class Agent:
    key: AgentKey = field(default_factory=lambda: AgentKey(ORG, AGENT))
    name: str = "letta"


@dataclass
class Conversation:
    id: str = "conv-1"


@dataclass
class Model:
    info: ModelInfo = field(
        default_factory=lambda: ModelInfo("fake/one", "fake", "one", "anthropic", 200_000, 8000, True)
    )


class Toolbox:
    def specs(self) -> Sequence[ToolSpec]:
        return (ToolSpec("Read", "reads"), ToolSpec("Bash", "runs"))


@dataclass
class Policy:
    mode: str = "default"
    modes: tuple[str, ...] = ("default", "acceptEdits", "plan")

    def set_mode(self, name: str) -> None:
        if name not in self.modes:
            raise UsageError(f"no such permission mode: {name}")
        self.mode = name

    def rules(self) -> Sequence[StandingRule]:
        return (StandingRule("deny", "Read(.env)", ".letta/settings.json"),)


@dataclass
class Workspace:
    project: Path
    memory: Path | None
    sandbox: Sandbox | None = None


def done(status: TurnStatus = "success", text: str = "", error: TurnError | None = None) -> TurnDone:
    return TurnDone(status, text, 2, USAGE, 3.21, 0.0123, "a" * 40, error)


class Turn:
    """Plays a scene. `cancel` ends it as interrupted, after its child is gone."""

    def __init__(self, scene: str, text: str, ask: Ask) -> None:
        self._scene = scene
        self._text = text
        self._ask = ask
        self._cancelled = asyncio.Event()
        self._answer: asyncio.Future[Decision] | None = None

    def cancel(self) -> None:
        sys.stderr.write("cancelled\n" if self._scene in ("stubborn", "waiting") else "")
        self._cancelled.set()
        if self._answer is not None:
            self._answer.cancel()

    async def events(self) -> AsyncIterator[Event]:
        yield TurnStarted("conv-1", 1, "message-1")
        yield StepStarted(1)
        if self._scene in ("echo", "unclosing") and self._text != "hang":
            text = f"you said {self._text!r}"
            yield TextDelta(text)
            yield MessageDone("message-2", Message("assistant", (Text(text),), "agent"))
            yield done("success", text)
        elif self._scene == "work":
            async for event in self._work():
                yield event
        elif self._scene == "ask":
            async for event in self._question():
                yield event
        elif self._scene == "fail":
            yield Retrying(1, 0.5, "500 overloaded")
            error = TurnError("overloaded", "the server is overloaded", "try later", True, 75)
            yield done("error", "", error)
        elif self._scene == "bug":
            yield done("error", "", TurnError("bug", "KeyError: 'x'"))
        elif self._scene == "max":
            yield done("max_turns", "so far")
        elif self._scene == "many":
            for number in range(5000):
                if self._cancelled.is_set():
                    yield done("interrupted")
                    return
                yield TextDelta(f"line {number} {'x' * 60}\n\n")
                await asyncio.sleep(0)
            yield done("success", "last")
        else:
            async for event in self._hang():
                yield event

    async def _hang(self) -> AsyncIterator[Event]:
        child = await asyncio.create_subprocess_exec("sleep", "1000", process_group=0)
        try:
            yield ToolRunning(ToolCall("c1", "Bash", {}), f"Run: child {child.pid} of {os.getpid()}")
            if self._scene == "stuck":
                time.sleep(1000)  # noqa: ASYNC251
            if self._scene == "waiting":
                await child.wait()
            await (asyncio.Event() if self._scene == "stubborn" else self._cancelled).wait()
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()
        yield done("interrupted")

    async def _work(self) -> AsyncIterator[Event]:
        yield ThinkingDelta("The test fails because the last row\n")
        yield ThinkingDelta("is left out.")
        call = ToolCall("c1", "Edit", {"file_path": "src/a.py"})
        yield MessageDone("message-2", Message("assistant", (call,), "agent"))
        yield ToolRunning(call, "Edit src/total.py")
        before = "".join(f"line {n}\n" for n in range(1, 20))
        change = DiffDisplay("src/total.py", before, before.replace("line 9\n", "line nine\nline 9½\n"))
        yield ToolDone("c1", "Edit", ToolOutput.of("edited", change), 0.01)
        yield ToolRunning(ToolCall("c2", "Bash", {"command": "pytest"}), "Run: pytest -q")
        shown = CommandDisplay("pytest -q", "\x1b[31m" + "".join(f"test {n}\n" for n in range(30)), 1)
        yield ToolDone("c2", "Bash", ToolOutput.of("exit code 1", shown, status="error"), 6.2)
        plan = TodoDisplay((TodoItem("Fix", "completed"), TodoItem("Test", "in_progress", "Testing")))
        yield ToolRunning(ToolCall("c3", "TodoWrite", {}), "Plan: 1 of 2 done")
        yield ToolDone("c3", "TodoWrite", ToolOutput.of("ok", plan), 0.0)
        yield StepDone(1, USAGE)
        yield StepStarted(2)
        yield Notice("warning", "memory: 系统 was cut")
        for start in range(0, len(ANSWER), 7):
            yield TextDelta(ANSWER[start : start + 7])
        yield MessageDone("message-3", Message("assistant", (Text(ANSWER),), "agent"))
        yield done("success", ANSWER)

    async def _question(self) -> AsyncIterator[Event]:
        display = (DiffDisplay("/etc/hosts", "a\n", "b\n"),)
        request = ApprovalRequest(
            "c1",
            "Bash",
            "execute",
            "Run: git push",
            "it is not read-only",
            "Bash(git push:*)",
            display,
            "--allowed-tools 'Bash(git push:*)'",
        )
        answer = self._answer = asyncio.ensure_future(self._ask(request))  # as a turn: beside its events
        await asyncio.wait((answer,), timeout=0)
        yield TextDelta("I push it now.")
        yield ApprovalAsked(request)
        yield ToolRunning(ToolCall("c0", "Read", {}), "Read beside.py")
        try:
            decision = await answer
        except asyncio.CancelledError:
            yield done("interrupted")
            return
        yield ApprovalGiven("c1", decision)
        yield StepStarted(2)
        text = f"decided {decision.choice}: {decision.feedback}"
        yield MessageDone("message-2", Message("assistant", (Text(text),), "agent"))
        yield done("success", text)


class Session:
    def __init__(self, scene: str, folder: Path, conversation_id: str = "conv-1") -> None:
        self.scene = scene
        self.agent = Agent()
        self.conversation = Conversation(conversation_id)
        self.model = Model()
        self.toolbox = Toolbox()
        self.policy = Policy()
        self.workspace = Workspace(folder, folder / "memory")

    def turn(self, text: str, ask: Ask) -> Turn:
        return Turn(self.scene, text, ask)

    async def compact(self, instructions: str, emit: Callable[[Event], None]) -> Compacted | None:
        if instructions == "nothing":
            return None
        if instructions == "for ever":
            emit(Notice("info", "it is being summarised"))
            await asyncio.Event().wait()
        done = Compacted("manual", "all", 9000, 900, 12, f"Summary: {instructions}", USAGE, 0.01)
        emit(done)
        return done

    async def close(self) -> Sequence[str]:
        if self.scene == "unclosing":
            await asyncio.create_subprocess_exec("sleep", "1000")
            await asyncio.Event().wait()
        sys.stderr.write(f"closed {self.conversation.id}\n")
        return [f"stopped background command of {self.conversation.id}"]


class Host:
    def __init__(self, folder: Path, scene: str) -> None:
        self.history_file = folder / "data" / "history"
        self.log_file = folder / "log" / "letta.log"
        self._folder = folder
        self._scene = scene

    async def new_session(self) -> Session:
        return Session(self._scene, self._folder, "conv-2")

    async def resume(self, conversation_id: str) -> Session:
        if conversation_id != "conv-3":
            raise ConversationError(f"no such conversation: {conversation_id}", "see /resume")
        return Session(self._scene, self._folder, "conv-3")

    def conversations(self) -> Sequence[ConversationSummary]:
        when = "2026-01-01T00:00:00.000+00:00"
        return [ConversationSummary("conv-3", AgentKey(ORG, AGENT), "Fix totals", when, when, 4, "/p")]

    async def open_model(self, session: object, handle: str) -> None:
        assert isinstance(session, Session)
        session.model = Model(
            ModelInfo(handle, "fake", handle.split("/")[-1], "anthropic", 100_000, 8000, True)
        )

    async def models(self) -> Sequence[str]:
        return ["fake/one", "fake/two"]

    def undo(self, session: object, wish: Wish) -> Rewound:
        return Rewound(Outcome((), (), dry=wish.dry))

    async def search(self, session: object, query: str) -> list[str]:
        return [f"2026-01-01 00:00  user  conv-1:message-1 {query}"]

    def memory_log(self) -> Sequence[str]:
        return ["aaaaaaaaaa  2026-01-01 00:00  first"]

    def cost(self, session: object) -> list[str]:
        return ["fake/one  2 requests  $0.0120"]

    def context(self, session: object) -> str:
        return "system 2,000 tokens"


async def play(front: str, scene: str, prompt: str | None, ending: Ending) -> int:
    folder = Path.cwd()
    session = Session(scene, folder)
    if front == "chat":
        from letta_code.frontends.repl import run_chat

        return await run_chat(Host(folder, scene), session, prompt, ending)
    code = 1
    try:
        if front == "stream":
            from letta_code.frontends.stream_json import run_stream_json

            code = await run_stream_json(session, prompt or "hi", ending, memory_revision="b" * 40)
        else:
            from letta_code.frontends.oneshot import run_oneshot

            form: Literal["json", "text"] = "json" if front == "json" else "text"
            code = await run_oneshot(session, prompt or "hi", form, True, ending)
        return code
    finally:
        ending.closing(code)
        await session.close()


def main() -> int:
    """Play what the words of this process say; the exit code."""
    front, scene, *prompt = sys.argv[1:]
    hopeless = scene in ("stubborn", "stuck", "unclosing")
    patience = Patience(heard=0.5, ended=0.5, closed=0.5) if hopeless else Patience(reader=0.2)
    with Ending(interactive=front == "chat", patience=patience) as started:
        return started.run(play(front, scene, prompt[0] if prompt else None, started))


if __name__ == "__main__":
    sys.exit(main())
