"""A process whose disk is full at one moment of a turn: `python -m tests.agent.full_disk FOLDER` plays all.

No file of it can grow from that moment on, until the turn is over; then there is room again. Prints a line
of JSON for each moment: its name, how each of two turns ended, and the results the model was then sent.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from letta_code.core.events import ToolRunning
from letta_code.core.messages import ToolResult
from letta_code.core.tooling import ApprovalRequest, Decision, ToolOutput
from letta_code.errors import ModelError
from letta_code.models.base import ModelPart, ModelRequest
from letta_code.tools.base import Call
from tests.agent.support import Bench, Do, DoArguments, Scripted, asked, check, done, said
from tests.conversations.test_log import assert_valid

MOMENTS = ("start", "request", "broken answer", "question", "tool", "interrupted tool", "last request")
_, HARD = resource.getrlimit(resource.RLIMIT_FSIZE)


class Full:
    """Fills the disk at one moment."""

    def __init__(self, moment: str) -> None:
        self.moment = moment
        self.transcript = Path()

    def at(self, moment: str) -> None:
        if moment == self.moment:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.transcript.stat().st_size, HARD))

    def over(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (HARD, HARD))
        self.moment = ""


class Model(Scripted):
    full: Full

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        self.full.at("last request" if self.requests else "request")
        async for part in super().stream(request):
            self.full.at("broken answer")
            yield part


class Tool(Do):
    full: Full

    async def run(self, arguments: DoArguments, call: Call) -> ToolOutput:
        self.full.at("tool")
        self.full.at("interrupted tool")
        return await super().run(arguments, call)


async def play(folder: Path, moment: str) -> None:
    folder.mkdir()
    full, bench = Full(moment), Bench.make(folder)
    how = "hang" if moment == "interrupted tool" else "ok"
    broken = [ModelError("cut", "broken_stream")] if moment == "broken answer" else []
    model = Model([*broken, asked(("a", "Do", {"how": how}), ("b", "Do", {})), said("one"), said("two")])
    model.full, tool = full, Tool()
    bench.do, tool.full = tool, full
    session = bench.session(model)
    full.transcript = bench.paths.conversation(bench.state.key, session.conversation.id)

    async def ask(request: ApprovalRequest) -> Decision:
        full.at("question")
        return Decision("once")

    ends = []
    for prompt in ("go", "and?"):
        full.at("start")
        turn, events = session.turn(prompt, ask), []
        async for event in turn.events():
            events.append(event)
            if isinstance(event, ToolRunning) and event.call.arguments == {"how": "hang"}:
                await tool.running.wait()
                turn.cancel()
        full.over()
        check(events)
        last = done(events)
        ends.append([last.status, last.text, last.error.kind if last.error else ""])
    await session.close()
    reopened = bench.session(Scripted([]), session.conversation.id)
    messages = reopened.conversation.messages
    await reopened.close()
    assert_valid(messages)
    assert messages == session.conversation.messages
    statuses = [block.status for item in messages for block in item.blocks if isinstance(block, ToolResult)]
    line = {"moment": moment, "ends": ends, "results": statuses, "ran": tool.ran}
    sys.stdout.write(json.dumps(line) + "\n")


async def main(folder: Path) -> None:
    for moment in MOMENTS:
        await play(folder / moment, moment)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
