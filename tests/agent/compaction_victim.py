"""A program for `test_compaction.py`: its summariser never answers; it says so, and waits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from letta_code.core.events import Notice
from tests.agent.support import Bench
from tests.agent.windowed import Windowed, filled


async def main(root: Path) -> None:
    bench = Bench.make(root)
    waiting = asyncio.Event()
    model = Windowed()
    session = await filled(bench, model, 7)
    model.summaries, model.window = [waiting], 6_000
    async for event in session.turn("And now?", bench.ask).events():
        if isinstance(event, Notice):
            await waiting.wait()
            sys.stdout.write(f"{session.conversation.id} {len(session.conversation.history.visible)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
