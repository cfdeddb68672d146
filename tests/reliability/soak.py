"""Many turns in one process, with faults, tools that have effects, and interrupts: is anything left behind?

`Soak.run` plays conversations one after another; `Sample`s of what the process holds are taken between them.
The scripted server is a process of its own, so that what it keeps is not measured.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import psutil

from letta_code.agent.session import Session
from letta_code.conversations.store import ConversationStore
from letta_code.core.events import Event, TextDelta, ToolRunning, TurnDone
from letta_code.core.messages import Message
from letta_code.core.tooling import ApprovalRequest, Decision
from tests.model_server import call, turn
from tests.reliability.cells import WAYS
from tests.reliability.faults import ANSWER, FAULTS, Fault, Told
from tests.reliability.scripted import ScriptedServer
from tests.reliability.sessions import Sessions

TURNS_A_SESSION = 10
"""Then it is closed, and the conversation opened again in the next dialect."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process holds, after `turns` turns and a garbage collection. `resident` is bytes."""

    turns: int
    resident: int
    handles: int
    children: int
    threads: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Play:
    """One turn: what the model does, how it ends, and at which event it is interrupted."""

    kind: str
    turns: tuple[Any, ...]
    status: str = "success"
    words: str = ""
    stop: type[Event] | None = None


class Broken(Exception):
    """A promise did not hold."""


def _eligible(fault: Fault) -> bool:
    return fault.place == "server" and not fault.gap and fault.idle is None


_FAULTS = tuple(fault for fault in FAULTS if _eligible(fault))
_STUCK = {"stall": "forever", "after": 8}


def _play(number: int, chosen: random.Random) -> Play:
    """What turn `number` is."""
    kind = chosen.choices(
        ("answer", "files", "shell", "memory", "fault", "stopped words", "stopped tool"),
        (2, 3, 3, 2, 6, 1, 1),
    )[0]
    done = turn(ANSWER, thinking="It is done.")
    match kind:
        case "files":
            path = f"work/{number}.txt"
            write = call("Write", file_path=path, content=f"one\ntwo {number}\n")
            edit = call("Edit", file_path=path, old_string="one", new_string="three")
            return Play(kind, (turn("I write.", write), turn("", edit), done))
        case "shell":
            command = f"echo {number} >> log.txt; (sleep 0.01 &) ; wc -l log.txt"
            return Play(kind, (turn("", call("Bash", command=command), thinking="Now."), done))
        case "memory":
            text = f"---\ndescription: Number {number % 20}.\n---\nTurn {number} was here.\n"
            create = call(
                "memory", command="create", file_path=f"notes/{number}.md", file_text=text, reason="Note it"
            )
            delete = call("memory", command="delete", file_path=f"notes/{number}.md", reason="Enough of it")
            return Play(kind, (turn("", create), turn("", delete), done))
        case "fault":
            fault = chosen.choice(_FAULTS)
            if isinstance(fault.end, Told):
                return Play(f"fault: {fault.name}", fault.turns, "error", fault.end.words)
            return Play(f"fault: {fault.name}", fault.turns)
        case "stopped words":
            return Play(
                kind, (turn("Words that come slowly. " * 9, fault=_STUCK),), "interrupted", "", TextDelta
            )
        case "stopped tool":
            sleeps = call("Bash", command="sleep 300 & sleep 300")
            return Play(kind, (turn("", sleeps),), "interrupted", "", ToolRunning)
        case _:
            return Play(kind, (done,))


@dataclass(slots=True)
class Soak:
    """`conversations` of `length` turns each, and a last one of `last` turns in one session."""

    sessions: Sessions
    server: ScriptedServer
    conversations: int
    length: int
    last: int = 0
    played: int = 0
    faults: int = 0
    interrupts: int = 0
    samples: list[Sample] = field(default_factory=list)
    chosen: random.Random = field(default_factory=lambda: random.Random(4))

    async def run(self) -> None:
        """Play everything.

        Raises:
            Broken: a turn ended otherwise than it had to, the server refused a request, or a conversation
                read from disk is not the one that was played.
        """
        for number in range(self.conversations):
            await self._conversation(number, self.length, TURNS_A_SESSION)
            self.samples.append(await self._sample())
        if self.last:
            await self._conversation(self.conversations, self.last, self.last)
            self.samples.append(await self._sample())

    async def _conversation(self, number: int, turns: int, a_session: int) -> None:
        conversation: str | None = None
        before: Sequence[Message] = ()
        for part, first in enumerate(range(0, turns, a_session)):
            way = WAYS[(number + part) % len(WAYS)]
            async with AsyncExitStack() as stack:
                session = await stack.enter_async_context(
                    self.sessions.open(
                        way, self.server.url, conversation=conversation, mode="bypassPermissions"
                    )
                )
                if list(session.conversation.messages) != list(before):
                    raise Broken(f"conversation {number} is another one on disk")
                for _ in range(min(a_session, turns - first)):
                    await self._turn(session)
                conversation, before = session.conversation.id, session.conversation.messages
                key = session.agent.key
        assert conversation is not None
        read = ConversationStore(self.sessions.paths).open(key, conversation)
        try:
            if list(read.messages) != list(before) or read.recovered:
                raise Broken(f"conversation {number} is another one on disk: {read.recovered}")
        finally:
            read.close()

    async def _turn(self, session: Session) -> None:
        play = _play(self.played, self.chosen)
        self.server.play(play.turns)
        running = session.turn(f"Turn {self.played}.", _nobody)
        done: TurnDone | None = None
        async for event in running.events():
            if play.stop is not None and isinstance(event, play.stop):
                running.cancel()
            if isinstance(event, TurnDone):
                done = event
        assert done is not None
        problem = "" if done.error is None else done.error.message
        if done.status != play.status or play.words not in problem:
            raise Broken(f"turn {self.played} ({play.kind}) ended with {done.status}: {problem}")
        if refused := self.server.refused():
            raise Broken(f"turn {self.played} ({play.kind}): the server refused {refused}")
        self.played += 1
        self.faults += play.kind.startswith("fault")
        self.interrupts += play.status == "interrupted"

    async def _sample(self) -> Sample:
        await asyncio.sleep(0)
        gc.collect()
        me = psutil.Process()
        return Sample(
            self.played,
            me.memory_info().rss,
            me.num_fds(),
            len(me.children(recursive=True)),
            me.num_threads(),
            len(asyncio.all_tasks()),
        )


async def _nobody(request: ApprovalRequest) -> Decision:
    return Decision("deny", "nobody is there to ask")
