"""How the benchmarks measure: processes by wall time, CPU and peak memory; calls by median time."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.model_server import ModelServer

LETTA = str(Path(sys.executable).with_name("letta"))


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians over the runs: seconds of wall time, seconds of CPU, peak memory in MiB."""

    wall: float
    cpu: float
    memory: float


def process_cost(
    command: Sequence[str], runs: int, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Cost:
    """Run `command` `runs` times after one warm-up."""
    walls, cpus, peaks = [], [], []
    for number in range(runs + 1):
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        errors = process.stderr.read()
        process.stderr.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{errors.decode(errors='replace')}")
        if number:
            walls.append(time.perf_counter() - started)
            cpus.append(usage.ru_utime + usage.ru_stime)
            peaks.append(usage.ru_maxrss / 1024)
    return Cost(statistics.median(walls), statistics.median(cpus), statistics.median(peaks))


def median_ms(work: Callable[[], object], runs: int) -> float:
    """Median milliseconds of `work`."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


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
