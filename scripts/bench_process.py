"""How the benchmarks measure: processes by wall time, CPU and peak memory; calls by median time."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.model_server import ModelServer

_LAUNCHER = str(Path(__file__).with_name("bench_launcher.py"))
LETTA = str(Path(sys.executable).with_name("letta"))


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians over the runs: seconds of wall time, seconds of CPU, peak memory in MiB."""

    wall: float
    cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class Command:
    """What is run: words, variables beside those of this process, and folder."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Medians over the runs, in milliseconds. Other processes lengthen `wall` more than `cpu`."""

    wall: float
    cpu: float


def process_cost(
    command: Sequence[str], runs: int, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Cost:
    """Run `command` `runs` times after one warm-up."""
    return process_costs({"": Command(command, environment or {}, cwd)}, runs)[""]


def process_costs(commands: Mapping[str, Command], runs: int) -> dict[str, Cost]:
    """Run each command `runs` times after one warm-up. They take turns, so that load that comes and goes
    meets all of them."""
    found: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            cost = _run(command)
            if number:
                found[name].append(cost)
    return {
        name: Cost(
            statistics.median(cost.wall for cost in costs),
            statistics.median(cost.cpu for cost in costs),
            statistics.median(cost.memory for cost in costs),
        )
        for name, costs in found.items()
    }


def _run(command: Command) -> Cost:
    done = subprocess.run(
        [sys.executable, "-I", "-S", _LAUNCHER, *command.words],
        env={**os.environ, **command.environment},
        cwd=command.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    if done.returncode or (found := json.loads(done.stdout))[3]:
        raise SystemExit(f"{' '.join(command.words)} failed:\n{done.stderr.decode(errors='replace')}")
    wall, cpu, peak, _ = found
    return Cost(wall, cpu, peak / 1024)


def timed(work: Callable[[], object], runs: int) -> Timing:
    """What a call in this process costs."""
    return medians([once(work) for _ in range(runs)])


def once(work: Callable[[], object]) -> Timing:
    """What one call costs."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Timing((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000)


def medians(timings: Sequence[Timing]) -> Timing:
    """The medians of several."""
    return Timing(
        statistics.median(one.wall for one in timings), statistics.median(one.cpu for one in timings)
    )


def instant_model(server: ModelServer, home: Path) -> dict[str, str]:
    """The environment of a process that has its state in `home` and talks to `server`."""
    return {
        "LETTA_HOME": str(home),
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": "x",
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": "x",
    }


def print_costs(rows: Mapping[str, Cost], floor: Cost) -> None:
    print(f"  {'':42} {'wall ms':>8} {'× pass':>7} {'cpu ms':>8} {'peak MiB':>9}")
    for name, cost in rows.items():
        print(
            f"  {name:42} {cost.wall * 1000:8.0f} {cost.wall / floor.wall:7.1f} "
            f"{cost.cpu * 1000:8.0f} {cost.memory:9.0f}"
        )
