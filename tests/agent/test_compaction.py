"""Compaction in turns on real memory and transcripts: what triggers it, what it keeps, and what happens when
the summariser fails. The scripted model refuses what does not fit into its window."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from letta_code.agent.counting import message_tokens, spec_tokens
from letta_code.agent.session import Session
from letta_code.conversations.history import History
from letta_code.conversations.store import ConversationStore
from letta_code.core.events import Compacted, Event, Notice
from letta_code.core.messages import Message, StopReason, Text, ToolCall, ToolResult, Usage
from letta_code.core.tokens import estimated_tokens
from letta_code.core.tooling import ToolOutput
from letta_code.errors import ModelError
from letta_code.models.base import Completed, ModelInfo, ModelPart, ModelRequest, Price
from letta_code.tools.base import Call
from tests.agent.support import Bench, DoArguments, Look, done
from tests.conversations.test_log import assert_valid

SUMMARY = "Goals: build the bridge. Next: paint it. Key: K-4711."
LONG = "The quick brown fox jumps over the lazy dog near the river bank. "


class Big(Look):
    """`how` is how many sentences it reads."""

    async def run(self, arguments: DoArguments, call: Call) -> ToolOutput:
        self.ran.append(call.id)
        return ToolOutput.of(f"begin {LONG * int(arguments.how)}end")


def size(request: ModelRequest) -> int:
    return (
        sum(map(estimated_tokens, request.system))
        + sum(map(spec_tokens, request.tools))
        + sum(map(message_tokens, request.messages))
    )


Answer = Callable[[ModelRequest], Completed | Exception | asyncio.Event]


def says(text: str, *calls: ToolCall, stop: StopReason = "end_turn") -> Completed:
    blocks = (*((Text(text),) if text else ()), *calls)
    return Completed(Message("assistant", blocks, "agent"), Usage(1, 1), stop)


@dataclass
class Windowed:
    """A model with a window: it refuses at `factor` times what we count, and tells what we count. Requests
    without tools are those of the summariser."""

    steps: list[Completed] = field(default_factory=list)
    summaries: list[Completed | Exception | asyncio.Event] = field(default_factory=list)
    window: int = 8_000
    factor: float = 1.0
    handle: str = "test/model"
    requests: list[ModelRequest] = field(default_factory=list)
    asked: list[ModelRequest] = field(default_factory=list)
    refused: int = 0

    @property
    def info(self) -> ModelInfo:
        price = Price(1, 1, 1, 1)
        return ModelInfo(self.handle, "test", "model", "anthropic", self.window, 1_000, True, price=price)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        taken = size(request)
        if taken * self.factor > self.window:
            self.refused += 1
            raise ModelError(f"prompt is too long: {taken} tokens", "context_overflow", status=400)
        if request.tools:
            self.requests.append(request)
            step = self.steps.pop(0)
        else:
            self.asked.append(request)
            said = self.summaries.pop(0) if self.summaries else says(SUMMARY)
            if isinstance(said, asyncio.Event):
                said.set()
                await asyncio.Event().wait()
            if isinstance(said, Exception):
                raise said
            assert isinstance(said, Completed)
            step = said
        output = estimated_tokens(step.message.text) + 1
        yield Completed(step.message, Usage(taken, output), step.stop)

    async def close(self) -> None:
        pass


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench.make(tmp_path)
    made.look = Big()
    return made


def look(number: int, sentences: int) -> ToolCall:
    return ToolCall(f"c{number}", "Look", {"how": str(sentences)})


def compactions(events: Sequence[Event]) -> list[Compacted]:
    return [event for event in events if isinstance(event, Compacted)]


def warnings(events: Sequence[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice) and event.level == "warning"]


def seen(session: Session) -> list[Message]:
    return [entry.message for entry in session.conversation.history.visible]


def read(bench: Bench, session: Session) -> History:
    return ConversationStore(bench.paths).read(session.conversation.id, bench.state.key)


async def filled(bench: Bench, model: Windowed, turns: int = 6, sentences: int = 60) -> Session:
    """A session after so many turns of one short question and one long answer."""
    session = bench.session(model)
    for number in range(turns):
        model.steps.append(says(f"Answer {number}. {LONG * sentences}"))
        events = await bench.turn(session, f"Question {number}, which is not special.")
        assert done(events).error is None
    return session


async def test_c20_a_request_that_would_not_fit_is_compacted_before_it_is_sent(bench: Bench) -> None:
    model = Windowed()
    session = await filled(bench, model, 12)
    assert model.refused == 0
    history = session.conversation.history
    assert history.compactions
    assert {item.trigger for item in history.compactions} <= {"preflight", "threshold"}
    assert {item.mode for item in history.compactions} == {"sliding_window"}
    assert len(history.entries) == 24  # nothing left the transcript
    first, *kept = seen(session)
    assert (first.role, first.origin, first.reminder) == ("user", "harness", 1)
    assert SUMMARY in first.text
    assert first.text.startswith("<conversation_summary>\n")
    assert first.text.endswith("\n</conversation_summary>")
    assert "Date: " in str(first.blocks[0])
    assert kept == [entry.message for entry in history.entries[-len(kept) :]]
    assert_valid(seen(session))
    assert read(bench, session).visible == history.visible
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        if after.messages[0] == before.messages[0]:
            assert after.messages[: len(before.messages)] == before.messages
    await session.close()


async def test_an_overflow_error_is_answered_by_compaction_and_the_turn_goes_on(bench: Bench) -> None:
    model = Windowed(factor=1.6)  # what it tells of its counts is not what it refuses by
    session = bench.session(model)
    events: list[Event] = []
    for number in range(12):
        model.steps.append(says(f"Answer {number}. {LONG * 60}"))
        events = await bench.turn(session, f"Question {number}")
        assert done(events).error is None
        if any(item.trigger == "overflow" for item in compactions(events)):
            break
    else:
        pytest.fail("no overflow")
    assert model.refused
    (made,) = compactions(events)
    assert made.summary == SUMMARY
    assert made.usage.input > 0
    assert done(events).usage.input > made.usage.input
    assert done(events).cost_usd == pytest.approx(
        sum(getattr(done(events).usage, name) for name in ("input", "output")) / 1_000_000
    )
    await session.close()


async def test_c19_one_result_larger_than_the_window_is_shortened_and_can_be_looked_up(bench: Bench) -> None:
    model = Windowed([says("", look(1, 2_500), stop="tool_use"), says("I see.")])
    session = bench.session(model)
    events = await bench.turn(session, "Look at it.")
    assert done(events).text == "I see."
    assert model.refused == 0
    assert model.asked == []  # that alone was enough
    (made,) = compactions(events)
    assert (made.mode, made.summary, made.messages) == ("shortened", "", 0)
    result = model.requests[1].messages[-1].blocks[0]
    assert isinstance(result, ToolResult)
    whole = session.conversation.history.entries[2]
    assert f"the whole result is {session.conversation.id}:{whole.id}]" in result.text
    assert result.text.startswith("begin ")
    assert result.text.endswith("end")
    assert len(str(whole.message)) > 150_000
    assert read(bench, session).visible == session.conversation.history.visible
    await session.close()
