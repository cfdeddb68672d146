"""A scripted model with a window, which refuses what does not fit into it, and conversations that fill it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from letta_code.agent.counting import Counter, message_tokens
from letta_code.agent.session import Session
from letta_code.core.messages import Message, StopReason, Text, ToolCall, Usage
from letta_code.core.tooling import ToolOutput
from letta_code.errors import ModelError
from letta_code.models.base import Completed, ModelInfo, ModelPart, ModelRequest, Price
from letta_code.tools.base import Call
from tests.agent.support import Bench, DoArguments, Look, done

SUMMARY = "Goals: build the bridge. Next: paint it. Key: K-4711."
LONG = "The quick brown fox jumps over the lazy dog near the river bank. "


class Big(Look):
    """`how` is how many sentences it reads."""

    async def run(self, arguments: DoArguments, call: Call) -> ToolOutput:
        self.ran.append(call.id)
        return ToolOutput.of(f"begin {LONG * int(arguments.how)}end")


def says(text: str, *calls: ToolCall, stop: StopReason = "end_turn") -> Completed:
    blocks = (*((Text(text),) if text else ()), *calls)
    return Completed(Message("assistant", blocks, "agent"), Usage(1, 1), stop)


@dataclass
class Windowed:
    """A model with a window: it refuses at `factor` times what we count, and tells what we count, unless it
    is one that tells nothing. Requests without tools are those of the summariser."""

    steps: list[Completed | Exception] = field(default_factory=list)
    summaries: list[Completed | Exception | asyncio.Event] = field(default_factory=list)
    window: int = 8_000
    factor: float = 1.0
    told: bool = True
    handle: str = "test/model"
    requests: list[ModelRequest] = field(default_factory=list)
    asked: list[ModelRequest] = field(default_factory=list)
    refused: int = 0
    took: Usage = field(default_factory=Usage)
    counter: Counter = field(default_factory=Counter)

    @property
    def info(self) -> ModelInfo:
        price = Price(1, 1, 1, 1)
        return ModelInfo(self.handle, "test", "model", "anthropic", self.window, 1_000, True, price=price)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        taken = self.counter.request(request)
        if taken * self.factor > self.window:
            self.refused += 1
            raise ModelError(f"prompt is too long: {taken} tokens", "context_overflow", status=400)
        if request.tools:
            self.requests.append(request)
            answer = self.steps.pop(0)
        else:
            self.asked.append(request)
            said = self.summaries.pop(0) if self.summaries else says(SUMMARY)
            if isinstance(said, asyncio.Event):
                said.set()
                await asyncio.Event().wait()
            assert not isinstance(said, asyncio.Event)
            answer = said
        if isinstance(answer, Exception):
            raise answer
        output = message_tokens(answer.message)
        usage = Usage(taken, output) if self.told else Usage()
        self.took += usage
        yield Completed(answer.message, usage, answer.stop)

    async def close(self) -> None:
        pass


def look(number: int, sentences: int) -> ToolCall:
    return ToolCall(f"c{number}", "Look", {"how": str(sentences)})


async def filled(
    bench: Bench, model: Windowed, turns: int = 6, sentences: int = 60, **options: Any
) -> Session:
    """A session after so many turns of one short question and one long answer."""
    session = bench.session(model, **options)
    for number in range(turns):
        model.steps.append(says(f"Answer {number}. {LONG * sentences}"))
        events = await bench.turn(session, f"Question {number}, which is not special.")
        assert done(events).error is None
    return session
