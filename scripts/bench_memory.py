"""What memory costs: compiling the prompt, committing, history, and a turn as memory grows.

The floor beside the figures of this module is a bare walk over all trees through pygit2, or plain `git`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path

import pygit2

from letta_code.memory.edits import Put, Replace
from letta_code.memory.git.blame import blame
from letta_code.memory.git.log import log
from letta_code.memory.git.repository import Author, MemoryRepository
from letta_code.memory.prompt import CompiledPrompt, PromptCache
from scripts.bench_process import LETTA, Cost, instant_model, median_ms, print_costs, process_cost
from tests.model_server import ModelServer

AUTHOR = Author("bench", "bench@letta.local")
COMMITS = 10_000
SIZES = (10, 1_000, 5_000)


def memory_costs(folder: Path, runs: int, floor: Cost) -> None:
    """Print every figure of memory."""
    compile_costs(folder, runs)
    history_costs(folder, runs)
    process_costs(folder, runs, floor)


def compile_costs(folder: Path, runs: int) -> None:
    """Print what compiling the prompt and committing one file cost as memory grows."""
    base = files("letta_code.agent").joinpath("base_prompt.md").read_text("utf-8")
    print("\nCompiled prompt, in this process (ms; 2 KB a file, 10 of them in system/)")
    print(f"  {'files':>6} {'tree walk':>10} {'cold':>8} {'unchanged':>10} {'one commit':>11} {'then':>8}")
    for count in SIZES:
        home = folder / f"memory-{count}"
        repository = MemoryRepository.create(
            home / "repo.git", home / "memory", memory_files(count), AUTHOR, "bench"
        )
        walk = median_ms(partial(_tree_walk, repository.git_dir), runs)
        cold, cached, commits, after = [], [], [], []
        for run in range(runs):
            fresh = MemoryRepository.open(repository.git_dir)
            compiled = partial(_compile, PromptCache(home / f"cache-{run}"), base, fresh)
            cold.append(median_ms(compiled, 1))
            cached.append(median_ms(compiled, 5))
            edit = Replace("system/fact-0.md", f"marker {run}.", f"marker {run + 1}.")
            commits.append(median_ms(partial(fresh.commit, edit, "bench edit", AUTHOR), 1))
            after.append(median_ms(compiled, 1))
        print(
            f"  {count:6} {walk:10.2f} {statistics.median(cold):8.2f} {statistics.median(cached):10.2f} "
            f"{statistics.median(commits):11.2f} {statistics.median(after):8.2f}"
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


def history_costs(folder: Path, runs: int) -> None:
    """Print what reading a long history costs beside the same question to plain git."""
    home = folder / "history"
    repository = MemoryRepository.create(
        home / "repo.git", home / "memory", memory_files(20), AUTHOR, "bench"
    )
    _many_commits(repository.git_dir, COMMITS)
    repository = MemoryRepository.open(repository.git_dir)
    git = ["git", f"--git-dir={repository.git_dir}"]
    path = "system/fact-3.md"
    print(f"\nHistory of {COMMITS:,} commits to 20 files (ms)")
    print(f"  {'':34} {'here':>8} {'git':>8}")
    for name, work, command in (
        ("log, newest 50", partial(log, repository, 50), ["log", "-50", "--name-only"]),
        ("log, all", partial(log, repository, COMMITS + 1), ["log", "--name-only"]),
        (f"log {path}, all", partial(log, repository, COMMITS, path), ["log", "--", path]),
        (f"blame {path}", partial(blame, repository, path), ["blame", "HEAD", "--", path]),
    ):
        floor = median_ms(partial(_quiet, [*git, *command]), runs)
        print(f"  {name:34} {median_ms(work, runs):8.0f} {floor:8.0f}")


def _quiet(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _many_commits(git_dir: Path, count: int) -> None:
    """Add commits that each change one line of one of 20 files, through `git fast-import`."""
    git = ["git", f"--git-dir={git_dir}"]
    subprocess.run([*git, "fast-import", "--quiet"], input=b"".join(_stream(count)), check=True)
    subprocess.run([*git, "reset", "--hard", "--quiet"], check=True, cwd=git_dir.parent / "memory")


def _stream(count: int) -> Iterator[bytes]:
    lines = {number: [f"line {line} of 0" for line in range(60)] for number in range(20)}
    for commit in range(count):
        number = commit % 20
        lines[number][commit // 20 % 60] = f"line changed by {commit}"
        body = f"---\ndescription: fact number {number}\n---\n" + "\n".join(lines[number]) + "\n"
        place = "system" if number < 10 else f"notes/{number:02}"
        message = f"Learned fact {commit}\n\nLetta-Source: inferred\n"
        start = "from refs/heads/main^0\n" if commit == 0 else ""
        yield (
            f"commit refs/heads/main\ncommitter bench <b@letta.local> {1_700_000_000 + commit} +0000\n"
            f"data {len(message)}\n{message}\n{start}"
            f"M 100644 inline {place}/fact-{number}.md\ndata {len(body)}\n{body}\n"
        ).encode()


def process_costs(folder: Path, runs: int, floor: Cost) -> None:
    """Print what a one-shot turn and `letta memory log` cost as memory grows, with peak memory."""
    project = folder / "memory-project"
    project.mkdir()
    rows = {"python -c 'import pygit2'": process_cost([sys.executable, "-c", "import pygit2"], runs)}
    with ModelServer([{"text": "Hello.", "repeat": True}]) as server:
        for count in SIZES:
            environment = instant_model(server, folder / f"home-{count}")
            turn = [LETTA, "-p", "hi", "-m", "openai/gpt-5.5"]
            process_cost(turn, 1, environment, project)
            _fill(folder / f"home-{count}", count)
            rows[f"letta -p hi, {count:,} memory files"] = process_cost(turn, runs, environment, project)
            rows[f"letta memory log, {count:,} memory files"] = process_cost(
                [LETTA, "memory", "log"], runs, environment, project
            )
    print("\nProcesses as memory grows")
    print_costs(rows, floor)


def _fill(home: Path, count: int) -> None:
    [git_dir] = home.glob("memfs/*/*/repo.git")
    changes = {path: text.encode() for path, text in memory_files(count).items()}
    MemoryRepository.open(git_dir).commit(Put(changes), "bench", AUTHOR)
