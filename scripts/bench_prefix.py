"""How much of each request was already sent with the one before it, which is what providers' caches save.

A session of 50 turns, opened as the command line opens it, against the scripted server: each turn reads or
changes something, each fifth writes memory. A share is the bytes of the longest common beginning of a request
and the one before it (tools, system prompt, messages; cache marks aside), whole pieces only, divided by all
its bytes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from letta_code.agent.session import Session
from letta_code.cli.options import RunOptions
from letta_code.cli.place import Place
from letta_code.cli.wiring import Workbench
from letta_code.core.tooling import ApprovalRequest, Decision
from letta_code.paths import Paths
from scripts.bench_process import Cost, instant_model
from scripts.bench_texts import prose, python_code
from tests.model_server import ModelServer, Request, call, request_prefix, turn

TURNS = 50
EDIT_EVERY = 5
HANDLES = ("anthropic/claude-sonnet-5-5", "openai/gpt-6.2-sol")


@dataclass(frozen=True, slots=True)
class Reuse:
    """What a session sent: requests, their bytes, and how many of these the request before had too. `broken`
    counts requests that do not begin with all of the one before."""

    requests: int
    broken: int
    sent: int
    again: int
    lowest: float
    median: float

    @property
    def share(self) -> float:
        """Of all bytes but the first request's."""
        return self.again / self.sent


def prefix_reuse(folder: Path, runs: int, floor: Cost) -> None:
    """Print the share for each dialect."""
    print(f"\nPrefix of {TURNS} turns, memory written in every {EDIT_EVERY}th")
    print(f"  {'':32} {'requests':>9} {'broken':>7} {'MB':>6} {'share':>7} {'median':>7} {'lowest':>7}")
    for number, handle in enumerate(HANDLES):
        found = asyncio.run(measured(folder / str(number), handle))
        print(
            f"  {handle:32} {found.requests:9} {found.broken:7} {found.sent / 1e6:6.1f} {found.share:7.1%} "
            f"{found.median:7.1%} {found.lowest:7.1%}"
        )


async def measured(folder: Path, handle: str, turns: int = TURNS, edit_every: int = EDIT_EVERY) -> Reuse:
    """Play the session with one model's dialect, and compare what it sent."""
    sent = await played(folder, handle, turns, edit_every, lambda session: None)
    return reuse([request_prefix(request.body, request.dialect) for request in sent if request.dialect])


async def played(
    folder: Path, handle: str, turns: int, edit_every: int, opened: Callable[[Session], None]
) -> Sequence[Request]:
    """The requests of the session; `opened` is told when it begins."""
    project = folder / "project"
    project.mkdir(parents=True)
    for number in range(10):
        (project / f"module_{number}.py").write_text(python_code(number, 2_000))
    with ModelServer(script(turns, edit_every)) as server:
        environment = instant_model(server, folder / "home")
        home = folder / "home"
        paths = Paths(home / "memfs", home / "config", home / "data", home / "cache", home / "log")
        place = Place(paths, project, environment)
        options = RunOptions(print_mode=True, model=handle, permission_mode="bypassPermissions")
        session = await Workbench(place, options, lambda line: None).open()
        opened(session)
        try:
            for number in range(turns):
                async for _ in session.turn(prose(number, 300), _refuse).events():
                    pass
        finally:
            await session.close()
        server.assert_finished()
        if server.violations or len(session.memory.snapshot().blocks) < turns // edit_every:
            raise SystemExit(f"the session was not the one that is measured: {server.violations}")
        return server.requests


def reuse(requests: list[list[str]]) -> Reuse:
    """Compare each request with the one before it."""
    shares = []
    sent = again = broken = 0
    for before, now in pairwise(requests):
        same = next(
            (at for at, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1]), len(before)
        )
        common = sum(len(piece.encode()) for piece in now[:same])
        whole = sum(len(piece.encode()) for piece in now)
        shares.append(common / whole)
        broken += same < len(before)
        sent, again = sent + whole, again + common
    return Reuse(len(requests), broken, sent, again, min(shares), sorted(shares)[len(shares) // 2])


def script(turns: int, edit_every: int) -> list[dict[str, Any]]:
    """What the model does: look at a file, change one, or write memory; then say something."""
    steps = []
    for number in range(turns):
        if number % edit_every == edit_every - 1:
            path = f"system/fact-{number}.md"
            words = {"description": f"Fact {number}.", "file_text": prose(1_000 + number, 200)}
            done = call("memory", command="create", file_path=path, reason="learned", **words)
        elif number % 3:
            done = call("Read", file_path=f"module_{number % 10}.py")
        else:
            done = call("Write", file_path=f"new_{number}.py", content=python_code(number, 600))
        steps += [turn("", done), turn(prose(random.Random(number).randrange(10_000), 400))]
    return steps


async def _refuse(request: ApprovalRequest) -> Decision:
    return Decision("deny", "nobody is there to ask")
