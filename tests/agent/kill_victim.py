"""A program for `test_kill.py`: it starts a tool with effects that never ends, says so, and waits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from letta_code.core.events import ToolProgress, ToolRunning
from letta_code.core.tooling import ToolOutput
from letta_code.tools.base import Call
from tests.agent.support import Bench, Do, DoArguments, Scripted, asked


class Hang(Do):
    async def run(self, arguments: DoArguments, call: Call) -> ToolOutput:
        call.progress("running")
        await asyncio.Event().wait()
        return ToolOutput.of("never")


async def main(root: Path) -> None:
    bench = Bench.make(root)
    bench.do = Hang()
    calls: tuple[tuple[str, str, dict[str, str]], ...] = (("a", "Look", {}), ("b", "Do", {}), ("c", "Do", {}))
    session = bench.session(Scripted([asked(*calls)]))
    async for event in session.turn("go", bench.ask).events():
        if isinstance(event, ToolProgress | ToolRunning) and getattr(event, "call_id", "") == "b":
            sys.stdout.write(f"{session.conversation.id}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
