"""What this program costs: start-up, prompt compilation, one turn. Own generated data, this machine.

Times drift with load, so every figure stands beside `python -c pass` or another floor of the same run;
quote the ratios. Nothing here is asserted; tests never look at a clock.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

import pygit2

from letta_code.memory.edits import Replace
from letta_code.memory.prompt import CompiledPrompt, PromptCache
from letta_code.memory.repository import Author, MemoryRepository
from tests.model_server import ModelServer

AUTHOR = Author("bench", "bench@letta.local")


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


def start_up(runs: int) -> Cost:
    """Print start-up costs; returns the floor, `python -c pass`."""
    python = sys.executable
    letta = str(Path(python).with_name("letta"))
    floor = process_cost([python, "-c", "pass"], runs)
    rows = {
        "python -c pass": floor,
        "letta --version": process_cost([letta, "--version"], runs),
        "letta --help": process_cost([letta, "--help"], runs),
        "python -c 'import openai'": process_cost([python, "-c", "import openai"], runs),
        "python -c 'import anthropic'": process_cost([python, "-c", "import anthropic"], runs),
    }
    print("\nStart-up")
    _print_costs(rows, floor)
    return floor


def _print_costs(rows: Mapping[str, Cost], floor: Cost) -> None:
    print(f"  {'':42} {'wall ms':>8} {'× pass':>7} {'cpu ms':>8} {'peak MiB':>9}")
    for name, cost in rows.items():
        print(
            f"  {name:42} {cost.wall * 1000:8.0f} {cost.wall / floor.wall:7.1f} "
            f"{cost.cpu * 1000:8.0f} {cost.memory:9.0f}"
        )


def compile_costs(folder: Path, runs: int) -> None:
    """Print what compiling the prompt costs as memory grows."""
    base = files("letta_code.agent").joinpath("base_prompt.md").read_text("utf-8")
    print("\nCompiled prompt, in this process (ms; 2 KB a file, 10 of them in system/)")
    print(
        f"  {'files':>6} {'HEAD':>8} {'tree walk':>10} {'cold':>8} {'unchanged':>10} {'after one commit':>17}"
    )
    for count in (10, 1_000, 5_000):
        home = folder / f"memory-{count}"
        repository = MemoryRepository.create(
            home / "repo.git", home / "memory", memory_files(count), AUTHOR, "bench"
        )
        head = median_ms(repository.head, 50)
        walk = median_ms(partial(_tree_walk, repository.git_dir), runs)
        cold, cached, after = [], [], []
        for run in range(runs):
            fresh = MemoryRepository.open(repository.git_dir)
            compiled = partial(_compile, PromptCache(home / f"cache-{run}"), base, fresh)
            cold.append(median_ms(compiled, 1))
            cached.append(median_ms(compiled, 5))
            edit = Replace("system/fact-0.md", f"marker {run}.", f"marker {run + 1}.")
            fresh.commit(edit, "bench edit", AUTHOR)
            after.append(median_ms(compiled, 1))
        print(
            f"  {count:6} {head:10.2f} {walk:10.2f} {statistics.median(cold):10.2f} "
            f"{statistics.median(cached):10.2f} {statistics.median(after):10.2f}"
        )


def memory_files(count: int) -> dict[str, str]:
    """`count` memory files of about 2 KB, ten of them in `system/`."""
    body = "Deploys go through the staging cluster first; ask before touching it. " * 27
    files_ = {}
    for number in range(count):
        place = "system" if number < 10 else f"notes/{number % 50:02}"
        header = f"---\ndescription: fact number {number}\n---\n"
        files_[f"{place}/fact-{number}.md"] = f"{header}marker 0.\n{body}\n"
    return files_


def _compile(cache: PromptCache, base: str, repository: MemoryRepository) -> CompiledPrompt:
    return cache.get(base, repository, repository.head())


def _tree_walk(git_dir: Path) -> int:
    repository = pygit2.Repository(str(git_dir))
    pending: list[pygit2.Tree] = [repository.revparse_single("HEAD^{tree}")]  # type: ignore[list-item]
    count = 0
    while pending:
        for entry in pending.pop():
            if isinstance(entry, pygit2.Tree):
                pending.append(entry)
            else:
                count += 1
    return count


def turn_costs(folder: Path, runs: int, floor: Cost) -> None:
    """Print what a one-shot turn with an instant model costs beside interpreter and SDK import."""
    letta = str(Path(sys.executable).with_name("letta"))
    project = folder / "project"
    project.mkdir()
    rows = {}
    with ModelServer([{"text": "Hello.", "repeat": True}]) as server:
        environment = {
            "LETTA_HOME": str(folder / "home"),
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "x",
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "OPENAI_API_KEY": "x",
        }
        for handle in ("openai/gpt-5.5", "anthropic/claude-sonnet-5-5"):
            command = [letta, "-p", "hi", "-m", handle]
            rows[f"letta -p hi -m {handle}"] = process_cost(command, runs, environment, project)
    print("\nOne-shot turn, instant model, existing agent")
    _print_costs(rows, floor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="runs per figure, the median is shown")
    runs = parser.parse_args().runs
    print(json.dumps({"python": sys.version.split()[0], "cores": os.cpu_count(), "runs": runs}))
    folder = Path(tempfile.mkdtemp(prefix="letta-bench-"))
    try:
        floor = start_up(runs)
        compile_costs(folder, runs)
        turn_costs(folder, runs, floor)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
