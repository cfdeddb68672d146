"""The work that `stress_turn.py` gives the model, and the world in which its effects are counted."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from letta_code.conversations.history import History
from letta_code.conversations.store import ConversationStore
from letta_code.core.ids import AgentKey
from letta_code.paths import Paths
from tests.model_server import call, turn

_PACE = 0.004  # seconds between the pieces of a streamed answer


class Broken(Exception):
    """A promise was broken."""


@dataclass(frozen=True, slots=True)
class Job:
    """One operation with an effect: its key, its call, and how often its effect is there."""

    key: str
    tool: str
    arguments: dict[str, Any]
    count: Callable[[World], int]


@dataclass(slots=True)
class World:
    """One agent, its project and its only conversation."""

    root: Path
    paths: Paths = field(init=False)
    key: AgentKey | None = None
    asked: Counter[str] = field(default_factory=Counter)
    attempts: int = 0

    def __post_init__(self) -> None:
        home = self.root / "home"
        self.paths = Paths.from_environment({"LETTA_HOME": str(home)})
        self.project.mkdir(parents=True)
        (self.project / "code.py").write_text("".join(f"value_{number} = 0\n" for number in range(1, 5)))

    @property
    def project(self) -> Path:
        """The folder that the tools work in."""
        return self.root / "project"

    def text(self, name: str) -> str:
        """A file of the project; "" when it is not there."""
        path = self.project / name
        return path.read_text() if path.exists() else ""

    def git(self, *words: str) -> str:
        """Git in the memory repository; raises `Broken` when it fails."""
        assert self.key is not None
        repository = str(self.paths.memory_repository(self.key))
        done = subprocess.run(
            ["git", "--git-dir", repository, *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Broken(f"git {words[0]}: {done.stderr or done.stdout}")
        return done.stdout

    def history(self) -> tuple[str, History] | None:
        """The conversation as it is on disk, and its id; None when there is none yet."""
        found = ConversationStore(self.paths).list()
        if not found:
            return None
        if len(found) > 1:
            raise Broken(f"{len(found)} conversations")
        self.key = found[0].key
        history = ConversationStore(self.paths).read(found[0].id, self.key)
        if history.problems:
            raise Broken(f"damage was reported: {history.problems}")
        return found[0].id, history


def shell(number: int) -> Job:
    """A command that appends one line, after and before a moment in which it can be killed."""
    key = f"shell-{number}"
    command = f"sleep 0.03; echo {key} >> effects.txt; sleep 0.03"
    return Job(key, "Bash", {"command": command}, lambda world: world.text("effects.txt").split().count(key))


def edit(number: int) -> Job:
    """One line of a file changed."""
    old, new = f"value_{number} = 0\n", f"value_{number} = 1\n"
    arguments = {"file_path": "code.py", "old_string": old, "new_string": new}
    return Job(f"edit-{number}", "Edit", arguments, lambda world: world.text("code.py").count(new))


def write(number: int) -> Job:
    """A new file."""
    name, text = f"made_{number}.txt", f"written {number}\n" * 50
    arguments = {"file_path": name, "content": text}
    return Job(f"write-{number}", "Write", arguments, lambda world: int(world.text(name) == text))


def remember(number: int) -> Job:
    """A memory commit, known by its reason."""
    key = f"remember-{number}"
    arguments = {
        "command": "create",
        "reason": key,
        "file_path": f"notes/{key}.md",
        "description": "a note",
        "file_text": "A fact.\n" * 20,
        "source": "inferred",
    }
    return Job(
        key, "memory", arguments, lambda world: world.git("log", "--format=%s", "main").split().count(key)
    )


READS = (
    call("Read", file_path="code.py"),
    call("LS", path="."),
    call("Grep", pattern="value"),
    call("memory", command="view"),
)
PLAN: tuple[tuple[Job, ...], ...] = (
    (),
    (shell(1),),
    (edit(1),),
    (remember(1),),
    (shell(2), shell(3)),
    (),
    (write(1),),
    (edit(2), shell(4)),
    (remember(2),),
    (),
    (shell(5), edit(3), remember(3)),
    (shell(6),),
    (write(2), edit(4)),
    (remember(4), shell(7)),
)
JOBS = {job.key: job for step in PLAN for job in step}


def script(world: World, done: set[str]) -> list[dict[str, Any]]:
    """What the model says and does when `done` is done: it looks, does the rest, and tells at length."""
    world.attempts += 1
    looks = [
        call(item["name"], f"look_{world.attempts}_{at}", **item["arguments"])
        for at, item in enumerate(READS)
    ]
    turns = [turn("I look at what is there. " * 6, *looks, thinking="Where am I?", delay=_PACE)]
    for number, step in enumerate(PLAN, 1):
        jobs = [job for job in step if job.key not in done]
        calls = []
        for job in jobs:
            world.asked[job.key] += 1
            calls.append(call(job.tool, f"call_{job.key}_{world.asked[job.key]}", **job.arguments))
        if not step:
            calls = [
                call("Read", f"read_{world.attempts}_{number}_{at}", file_path="code.py") for at in range(3)
            ]
        if calls:
            turns.append(turn(f"Step {number} of the plan comes now. ", *calls, delay=_PACE))
    return [*turns, turn("All of it is done. " * 15, delay=_PACE)]
