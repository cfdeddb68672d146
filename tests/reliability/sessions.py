"""Sessions as the command line opens them, in this process: all of it but a front end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from letta_code.agent.session import Session
from letta_code.cli.options import RunOptions
from letta_code.cli.place import Place
from letta_code.cli.wiring import Workbench
from letta_code.core.events import Event, TurnDone, TurnStarted
from letta_code.core.tooling import ApprovalRequest, Decision
from letta_code.paths import Paths
from tests.cli.harness import Letta
from tests.reliability.cells import Way
from tests.reliability.faults import Fault


class Sessions:
    """One home and one project below `letta`; every session is of the agent that the first one makes."""

    def __init__(self, letta: Letta) -> None:
        self.letta = letta
        home = letta.home
        self.paths = Paths(home / "memfs", home / "config", home / "data", home / "cache", home / "log")
        self.said: list[str] = []

    @asynccontextmanager
    async def open(
        self,
        way: Way,
        url: str,
        *,
        fault: Fault | None = None,
        conversation: str | None = None,
        mode: str | None = None,
    ) -> AsyncIterator[Session]:
        """A session with a model of `way` at `url`, in a new conversation or in `conversation`."""
        place = Place(self.paths, self.letta.project, self.letta.variables(way.environment(url, fault)))
        options = RunOptions(
            print_mode=True,
            model=way.handle,
            conversation=conversation,
            permission_mode=mode,
        )
        session = await Workbench(place, options, self.said.append).open()
        try:
            yield session
        finally:
            await session.close()


async def events_of(session: Session, text: str) -> tuple[Sequence[Event], TurnDone]:
    """A whole turn, and its last event. What asks is refused."""
    events = [event async for event in session.turn(text, _refuse).events()]
    last = events[-1]
    assert isinstance(last, TurnDone)
    assert sum(isinstance(event, TurnStarted | TurnDone) for event in events) == 2
    assert isinstance(events[0], TurnStarted)
    return events, last


async def _refuse(request: ApprovalRequest) -> Decision:
    return Decision("deny", "nobody is there to ask")
