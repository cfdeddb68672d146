#!/usr/bin/env python3
"""`kill -9` at random moments of a long turn of the real program: what DESIGN promises of it, at full size.

    stress_turn.py --kills 200 [--seed N]

A scripted model (loopback) works through a fixed list of things to do: shell commands that append a line,
edits, new files, memory writes, parallel reads, streamed text. `letta -p` is killed at a random moment, the
conversation is resumed, often with another provider's dialect, killed again, and at last finished. The model
does what a careful one would: what was done it leaves, what is unknown it looks at first.

After each kill: the transcript opens, every step that was committed is there, nothing ran that was not
announced, nothing that has a result is missing. After each resume: exactly the operations that were started
and have no result are told to be unknown, the provider accepts the request, the person is told, memory's
repository is whole. At the end everything was done exactly once. Prints in which phases the kills fell; the
exit status is 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from letta_code.conversations.history import History  # noqa: E402
from letta_code.core.messages import ToolResult  # noqa: E402
from scripts.stress_turn_work import JOBS, Broken, World, script  # noqa: E402
from tests.model_server import ModelServer  # noqa: E402

_MODELS = ("anthropic/claude-sonnet-5-5", "openai/gpt-5.5", "vllm/scripted")
_MARK = "LETTA_STRESS"
_CUT_OFF = "The previous turn was cut off:"
_UNKNOWN = "its outcome is unknown"
_CUT = "the request body is not a JSON object"  # of a process that was killed while it sent it
_WAIT = 120.0  # seconds that a run may take


# One run ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """One process of `letta -p` and the server it talks to."""

    world: World
    server: ModelServer
    process: subprocess.Popen[str]
    mark: str

    @classmethod
    def start(cls, world: World, server: ModelServer, model: str, going_on: bool) -> Run:
        """Begin the turn, or go on with the conversation."""
        mark = f"{os.getpid()}-{world.attempts}-{time.monotonic_ns()}"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(world.root),
            "LETTA_HOME": str(world.root / "home"),
            "PYTHONPATH": str(ROOT),
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "x",
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "OPENAI_API_KEY": "x",
            "VLLM_BASE_URL": f"{server.url}/v1",
            _MARK: mark,
        }
        words = ["-p", "-m", model, "--permission-mode", "bypassPermissions"]
        words += ["-c", "go on"] if going_on else ["work through the plan"]
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "letta_code", *words],
            cwd=world.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        return cls(world, server, process, mark)

    def kill(self, chosen: random.Random, requests: int) -> None:
        """Kill it soon after its start, after one of its `requests`, or after a record it wrote."""
        moment = chosen.choice(("start", "request", "record", "record"))
        if moment == "start":
            time.sleep(chosen.uniform(0, 1.5))
        elif moment == "request":
            wanted = chosen.randint(1, requests)
            self._until(lambda: len(self.server.requests) >= wanted)
            time.sleep(chosen.uniform(0, 0.2))
        else:
            wanted = self._records() + chosen.randint(1, 4 * requests)
            self._until(lambda: self._records() >= wanted)
            time.sleep(chosen.uniform(0, 0.02))
        self.process.kill()

    def _until(self, reached: Callable[[], bool]) -> None:
        while not reached() and self.process.poll() is None:
            time.sleep(0.002)

    def _records(self) -> int:
        folder = self.world.paths.all_conversations()
        return sum(path.read_bytes().count(b"\n") for path in folder.glob("*/*/conv-*.jsonl"))

    def end(self) -> tuple[int, str]:
        """Wait for its end and its children's; its exit status and what it said on stderr."""
        _, said = self.process.communicate(timeout=_WAIT)
        until = time.monotonic() + _WAIT
        while alive(self.mark):
            if time.monotonic() > until:
                raise Broken("a child lives on")
            time.sleep(0.01)
        return self.process.returncode, said


def alive(mark: str) -> bool:
    """Whether a process that inherited `mark` lives."""
    wanted = f"{_MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    return True
            except OSError:  # it has just ended, or is not ours
                continue
    return False


# What is checked ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Left:
    """What a kill left: the conversation, the calls by what is known of them, and the phase."""

    history: History | None
    started: frozenset[str] = frozenset()
    resulted: frozenset[str] = frozenset()
    phase: str = "before the conversation began"

    @property
    def unknown(self) -> frozenset[str]:
        """Calls that were started and have no result."""
        return self.started - self.resulted


def inspect(world: World, run: Run, before: Left) -> Left:
    """Look at what the kill left, and compare it with what was there and what the server saw."""
    found = world.history()
    if found is None:
        if run.server.requests:
            raise Broken("a request was sent and no conversation is on disk")
        return Left(None)
    conversation_id, history = found
    assert world.key is not None
    records = _records(world.paths.conversation(world.key, conversation_id))
    kinds = [record["kind"] for record in records]
    started = frozenset(record["call_id"] for record in records if record["kind"] == "started")
    resulted = frozenset(record["call_id"] for record in records if record["kind"] == "result")
    if (
        before.history is not None
        and history.messages[: len(before.history.messages)] != before.history.messages
    ):
        raise Broken("messages that were there have changed")
    turns = history.turns - (before.history.turns if before.history is not None else 0)
    mine = [step for step in history.steps if step.turn == history.turns] if turns else []
    if len(mine) < len(run.server.requests) - 1:
        raise Broken(f"{len(run.server.requests)} requests, {len(mine)} committed steps")
    for key, job in JOBS.items():
        there = job.count(world)
        calls = [f"call_{key}_{number}" for number in range(1, world.asked[key] + 1)]
        if there and not any(one in started for one in calls):
            raise Broken(f"{key} was done and never announced")
        if there > 1:
            raise Broken(f"{key} was done {there} times")
        statuses = _statuses(history)
        if not there and any(statuses.get(one) == "ok" for one in calls):
            raise Broken(f"{key} has a result and was not done")
    return Left(history, started, resulted, _phase(kinds, history, run, before, turns))


def _phase(kinds: Sequence[str], history: History, run: Run, before: Left, turns: int) -> str:
    if not turns:
        return "starting up" if before.history is not None else "the conversation is made"
    if history.unfinished is None:
        return "the turn is over"
    pending = history.pending
    if pending is None:
        sent = len(run.server.requests) - sum(step.turn == history.turns for step in history.steps)
        return "waiting for the model, or it streams" if sent else "between two steps"
    if pending.started - set(pending.results):
        return "an operation with effects runs"
    calls = pending.message.tool_calls if pending.message is not None else ()
    if len(pending.results) == len(calls):
        return "results are in, no checkpoint yet"
    return "between the operations of a step" if pending.results else "the answer is recorded, nothing ran"


def _statuses(history: History) -> dict[str, str]:
    messages = list(history.messages)
    if history.pending is not None:
        messages.append(history.results_message(history.pending))
    return {
        block.call_id: block.status
        for message in messages
        for block in message.blocks
        if isinstance(block, ToolResult)
    }


def _records(path: Path) -> list[dict[str, Any]]:
    lines = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


def check_resumed(world: World, run: Run, left: Left, said: str) -> None:
    """What must hold once the run after a kill has sent its first request."""
    refused = [words for words in run.server.violations if not (run.process.returncode < 0 and words == _CUT)]
    if refused:
        raise Broken(f"the provider refused: {refused}")
    found = world.history()
    if left.history is None or found is None or not run.server.requests:
        return
    statuses = _statuses(found[1])
    pending = left.history.pending
    calls = pending.message.tool_calls if pending is not None and pending.message is not None else ()
    for one in calls:
        wanted = "unknown" if one.id in left.unknown else None if one.id in left.resulted else "interrupted"
        if wanted is not None and statuses.get(one.id) != wanted:
            raise Broken(f"{one.id} is told to be {statuses.get(one.id)}, not {wanted}")
    body = json.dumps(run.server.requests[0].body)
    known = [call_id for call_id, status in _statuses_at(found[1], left) if status == "unknown"]
    if body.count(_UNKNOWN) != len(known):
        raise Broken(f"{len(known)} unknown outcomes, told {body.count(_UNKNOWN)} times")
    for step in left.history.messages:
        for one in step.tool_calls:
            if one.id not in body:
                raise Broken(f"the call {one.id} of a committed step is not in the request")
    # An answer without calls is whole: only its checkpoint is missing.
    cut_off = left.history.unfinished is not None and (pending is None or bool(calls))
    if ("was interrupted after" in said) != cut_off:
        raise Broken(f"the person was told {said!r}")
    if body.count(_CUT_OFF) != str(left.history.messages).count(_CUT_OFF) + cut_off:
        raise Broken("the model was not told of the interruption, or not once")


def _statuses_at(history: History, left: Left) -> list[tuple[str, str]]:
    """Calls and statuses of the conversation as the first request after the kill carried it."""
    assert left.history is not None
    held = {one.id for message in left.history.messages for one in message.tool_calls}
    if left.history.pending is not None and left.history.pending.message is not None:
        held |= {one.id for one in left.history.pending.message.tool_calls}
    return [(call_id, status) for call_id, status in _statuses(history).items() if call_id in held]


def check_memory(world: World) -> None:
    """Memory's repository is whole. Raises `Broken`."""
    if world.key is not None and world.paths.memory_repository(world.key).exists():
        world.git("fsck", "--full", "--strict", "--no-dangling")
        world.git("ls-tree", "-r", "HEAD")


# Many ---------------------------------------------------------------------------------------------


def one_conversation(root: Path, chosen: random.Random, kills: int) -> list[str]:
    """Kill and resume one conversation `kills` times, then finish it; the phases of the kills.

    Raises:
        Broken: a promise was broken.
    """
    world = World(root)
    phases: list[str] = []
    left = Left(None)
    for number in range(kills + 1):
        found = world.history()
        done = set() if world.key is None else {key for key, job in JOBS.items() if job.count(world)}
        turns = script(world, done)
        with ModelServer(turns) as server:
            run = Run.start(world, server, chosen.choice(_MODELS), found is not None)
            try:
                if number < kills:
                    run.kill(chosen, len(turns))
                code, said = run.end()
            finally:
                run.process.kill()
                run.process.communicate()
            check_resumed(world, run, left, said)
            after = inspect(world, run, left)
            check_memory(world)
            if number < kills:
                phases.append(after.phase if code else "the turn is over")
            elif code:
                raise Broken(f"the turn could not be finished: {code} {said}")
        left = after
    missing = [key for key, job in JOBS.items() if job.count(world) != 1]
    if missing:
        raise Broken(f"not done exactly once: {missing}")
    return phases


def main() -> int:
    """Kill as often as wanted and print the table."""
    parser = argparse.ArgumentParser(description="kill -9 at random moments of a long turn")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--each", type=int, default=4, help="kills of one conversation, at most")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    chosen = random.Random(options.seed)
    phases: Counter[str] = Counter()
    broken = conversations = 0
    while phases.total() + broken < options.kills:
        kills = min(chosen.randint(1, options.each), options.kills - phases.total() - broken)
        conversations += 1
        with tempfile.TemporaryDirectory(prefix="letta-stress-") as folder:
            try:
                phases.update(one_conversation(Path(folder), chosen, kills))
                print(f"{phases.total()} kills", file=sys.stderr, flush=True)
            except Broken as error:
                broken += 1
                print(f"conversation {conversations}: {error}", flush=True)
    width = max(map(len, phases), default=0)
    for phase, count in phases.most_common():
        print(f"{phase:<{width}}  {count:>4}")
    print(f"{phases.total()} kills in {conversations} conversations, {broken} broken promises")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
