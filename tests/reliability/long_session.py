"""One conversation that is much longer than its model's window: is every request valid and small enough, and
is what was said long ago still known?

The scripted server refuses what is larger than the window, as a provider would. Its summariser repeats the
lines about the open task that it is given, and nothing else: what a compaction does not hand on is lost.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from letta_code.agent.session import Session
from letta_code.core.events import Compacted, Event, ToolDone, TurnDone
from letta_code.core.messages import Text
from letta_code.core.tooling import ApprovalRequest, Decision
from tests.model_server import ModelServer, call, turn
from tests.model_server.script import Script
from tests.reliability.cells import Way
from tests.reliability.sessions import Sessions

TASK = "OPEN TASK: move the ledger to revision 7 on the branch ledger-7."
FACT = "For later: the vault code is K-4711-Ω, and 王小明 has the second key."
ASKED = "Which vault code did I tell you?"
SUMMARISER = turn(
    "", lines="OPEN TASK", when={"anywhere": "You write the summary"}, repeat=True, optional=True
)
WORDS = "The ledger balances, the tests pass and the branch is clean; nothing was left behind this time. "
WAY = Way("Chat Completions", "vllm/scripted", "vllm/other", "VLLM")


class Broken(Exception):
    """A promise did not hold."""


@dataclass(slots=True)
class LongSession:
    """`turns` turns; a session of `a_session` turns, then it is closed and opened again. The fact is said in
    turn 3 and asked for in turn `recalled`, where the agent has a tool that finds it."""

    sessions: Sessions
    server: ModelServer
    turns: int
    recalled: int
    a_session: int = 50
    compactions: list[Compacted] = field(default_factory=list)
    found: bool | None = None
    seconds: float = 0.0
    chosen: random.Random = field(default_factory=lambda: random.Random(5))

    async def run(self) -> None:
        """Play everything.

        Raises:
            Broken: a request was refused, a turn failed, or something that must be known is not.
        """
        began = time.monotonic()
        conversation: str | None = None
        played = 0
        while played < self.turns:
            async with self.sessions.open(
                WAY, self.server.url, conversation=conversation, mode="bypassPermissions"
            ) as session:
                for _ in range(min(self.a_session, self.turns - played)):
                    played += 1
                    await self._turn(session, played)
                conversation = session.conversation.id
        self.seconds = time.monotonic() - began

    async def _turn(self, session: Session, number: int) -> None:
        words = {1: TASK, 3: FACT, self.recalled: ASKED}.get(number, f"Turn {number}: go on.")
        self.server.script = Script([SUMMARISER, *self._play(session, number)])
        done: TurnDone | None = None
        async for event in session.turn(words, _nobody).events():
            self._look(event, number)
            if isinstance(event, TurnDone):
                done = event
        assert done is not None
        if refused := [*self.server.violations, *self.server.oversized]:
            raise Broken(f"turn {number}: the server refused {refused}")
        if done.status != "success":
            raise Broken(f"turn {number} ended with {done.status}: {done.error}")
        if TASK not in str([entry.message for entry in session.conversation.history.visible]):
            raise Broken(f"turn {number}: the open task is out of sight")

    def _look(self, event: Event, number: int) -> None:
        if isinstance(event, Compacted):
            self.compactions.append(event)
            if event.mode == "cut" or (event.summary and TASK not in event.summary):
                raise Broken(f"turn {number}: a compaction lost the open task: {event}")
        if isinstance(event, ToolDone) and event.name == "conversation_search":
            said = "\n".join(block.text for block in event.output.content if isinstance(block, Text))
            self.found = "K-4711-Ω" in said

    def _play(self, session: Session, number: int) -> list[Any]:
        done = turn(f"Turn {number} is done. {WORDS * self.chosen.randint(1, 12)}")
        kind = self.chosen.choices(("answer", "read", "shell", "memory", "giant"), (4, 4, 4, 1, 1))[0]
        if number == self.recalled and any(
            spec.name == "conversation_search" for spec in session.toolbox.specs()
        ):
            return [turn("", call("conversation_search", query="vault code")), done]
        match kind:
            case "read":
                path = f"notes-{number}.txt"
                text = "\n".join(f"{line} {WORDS}" for line in range(self.chosen.randint(5, 60)))
                return [
                    turn("", call("Write", file_path=path, content=text)),
                    turn("", call("Read", file_path=path)),
                    done,
                ]
            case "shell":
                lines = self.chosen.randint(10, 300)
                return [turn("", call("Bash", command=f"seq -f 'line %g of turn {number}' {lines}")), done]
            case "giant":
                shown = call("Bash", command=f"seq -f 'entry %g of the log of turn {number}' 5000")
                return [turn("", shown), done]
            case "memory":
                text = f"---\ndescription: Number {number % 9}.\n---\nTurn {number} was here.\n"
                path = f"system/notes/{number % 9}.md"
                delete = call("memory", command="delete", file_path=path, reason="Enough of it")
                create = call(
                    "memory", command="create", file_path=path, file_text=text, reason="Note the turn"
                )
                return [turn("", create), turn("", delete), done]
            case _:
                return [done]

    def report(self) -> str:
        """A short text."""
        sizes = [len(request.raw) // 4 for request in self.server.requests]
        modes = Counter(event.mode for event in self.compactions)
        triggers = Counter(event.trigger for event in self.compactions)
        found = {True: "found", False: "NOT found", None: "not asked for: there is no conversation_search"}
        return "\n".join(
            [
                f"{self.turns} turns, {len(sizes)} requests, {self.seconds:.1f} s",
                f"{len(self.compactions)} compactions: {_counts(modes)}; {_counts(triggers)}",
                f"largest request {max(sizes):,} of {self.server.window or 0:,} tokens; none refused",
                f"the open task was in sight after every turn; the fact of turn 3, in turn {self.recalled}: "
                f"{found[self.found]}",
            ]
        )


def _counts(counter: Counter[Any]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counter.most_common())


async def _nobody(request: ApprovalRequest) -> Decision:
    return Decision("deny", "nobody is there to ask")
