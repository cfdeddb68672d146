"""What memory costs: compiling the prompt, committing, history, and a turn as memory grows.

The floor beside the figures of this module is a bare walk over all trees through pygit2, or plain `git`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path

import pygit2

from letta_code.memory.edits import Create, Put, Replace
from letta_code.memory.git.blame import blame
from letta_code.memory.git.log import log
from letta_code.memory.git.repository import Author, MemoryRepository
from letta_code.memory.git.search import search_history
from letta_code.memory.prompt import CompiledPrompt, PromptCache
from scripts.bench_process import (
    LETTA,
    Command,
    Cost,
    Timing,
    instant_model,
    medians,
    once,
    print_costs,
    process_cost,
    process_costs,
    timed,
)
from tests.model_server import ModelServer

AUTHOR = Author("bench", "bench@letta.local")
COMMITS = 10_000
SIZES = (10, 1_000, 5_000)


def memory_costs(folder: Path, runs: int, floor: Cost) -> None:
    """Print every figure of memory."""
    compile_costs(folder, runs)
    history_costs(folder, runs)
    turn_costs(folder, runs, floor)


def compile_costs(folder: Path, runs: int) -> None:
    """Print what compiling the prompt and committing one file cost as memory grows."""
    base = files("letta_code.agent").joinpath("base_prompt.md").read_text("utf-8")
    print("\nCompiled prompt, in this process (2 KB a file, 10 of them in system/)")
    for count in SIZES:
        home = folder / f"memory-{count}"
        repository = MemoryRepository.create(
            home / "repo.git", home / "memory", memory_files(count), AUTHOR, "bench"
        )
        rows: dict[str, list[Timing]] = {}

        def take(name: str, timing: Timing, rows: dict[str, list[Timing]] = rows) -> None:
            rows.setdefault(name, []).append(timing)

        for run in range(runs):
            take("floor: bare tree walk through pygit2", once(partial(_tree_walk, repository.git_dir)))
            fresh = MemoryRepository.open(repository.git_dir)
            compiled = partial(_compile, PromptCache(home / f"cache-{run}"), base, fresh)
            take("cold compile", once(compiled))
            take("unchanged HEAD", timed(compiled, 5))
            edit = Replace("system/fact-0.md", f"marker {run}.", f"marker {run + 1}.")
            take("commit of one file", once(partial(fresh.commit, edit, "bench edit", AUTHOR)))
            take("prompt after it", once(compiled))
            new = Create(f"notes/00/new-{run}", "a new fact", "text")
            take("commit of one new file", once(partial(fresh.commit, new, "bench edit", AUTHOR)))
            later = partial(_compile, PromptCache(home / "cache"), base, MemoryRepository.open(fresh.git_dir))
            take("prompt after it, by a new process", once(later))
        rows["floor: plain `git commit` of one file"] = [_git_commit(home / "memory", runs)]
        print(f"  {count:,} files {'cpu ms':>39} {'wall ms':>8}")
        for name, timings in rows.items():
            median = medians(timings)
            print(f"    {name:40} {median.cpu:8.2f} {median.wall:8.2f}")


def _git_commit(worktree: Path, runs: int) -> Timing:
    script = "echo more >> system/fact-1.md && git commit --no-verify -qm bench -- system/fact-1.md"
    identity = {"GIT_AUTHOR_NAME": "b", "GIT_AUTHOR_EMAIL": "b@b"}
    identity |= {"GIT_COMMITTER_NAME": "b", "GIT_COMMITTER_EMAIL": "b@b"}
    cost = process_cost(["sh", "-c", script], runs, identity, worktree)
    return Timing(cost.wall * 1000, cost.cpu * 1000)


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
    print(f"\nHistory of {COMMITS:,} commits to 20 files, in this process; the floor is plain git (ms)")
    print(f"  {'':34} {'cpu':>8} {'wall':>8} {'git cpu':>8} {'git wall':>8}")
    for name, work, command in (
        ("log, newest 50", partial(log, repository, 50), ["log", "-50", "--name-only"]),
        ("log, all", partial(log, repository, COMMITS + 1), ["log", "--name-only"]),
        (f"log {path}, newest 50", partial(log, repository, 50, path), ["log", "-50", "--", path]),
        (f"log {path}, all", partial(log, repository, COMMITS, path), ["log", "--", path]),
        (f"blame {path}", partial(blame, repository, path), ["blame", "HEAD", "--", path]),
        ("search --history", partial(search_history, repository, "by 77"), ["log", "-S", "by 77"]),
    ):
        floor, here = process_cost([*git, *command], runs), timed(work, runs)
        print(
            f"  {name:34} {here.cpu:8.0f} {here.wall:8.0f} {floor.cpu * 1000:8.0f} {floor.wall * 1000:8.0f}"
        )


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


def turn_costs(folder: Path, runs: int, floor: Cost) -> None:
    """Print what a one-shot turn and `letta memory log` cost as memory grows, with peak memory."""
    project = folder / "memory-project"
    project.mkdir()
    words = [LETTA, "-p", "hi", "-m", "openai/gpt-5.5"]
    imported = "floor: python -c 'import pygit2'"
    commands = {imported: Command([sys.executable, "-c", "import pygit2"])}
    with ModelServer([{"text": "Hello.", "repeat": True}]) as server:
        for count in SIZES:
            environment = instant_model(server, folder / f"home-{count}")
            process_cost(words, 1, environment, project)
            _fill(folder / f"home-{count}", count)
            commands[_turn(count)] = Command(words, environment, project)
            log_words = [LETTA, "memory", "log"]
            commands[f"letta memory log, {count:,} memory files"] = Command(log_words, environment, project)
        rows = process_costs(commands, runs)
    print("\nProcesses as memory grows")
    print_costs(rows, floor)
    for count in SIZES[1:]:
        small, large = rows[_turn(SIZES[0])], rows[_turn(count)]
        print(
            f"  a turn with {count:,} files costs {large.cpu / small.cpu:.2f} × that with {SIZES[0]} in CPU, "
            f"{large.wall / small.wall:.2f} × in wall, {large.memory / small.memory:.2f} × in memory"
        )


def _turn(count: int) -> str:
    return f"letta -p hi, {count:,} memory files"


def _fill(home: Path, count: int) -> None:
    [git_dir] = home.glob("memfs/*/*/repo.git")
    changes = {path: text.encode() for path, text in memory_files(count).items()}
    MemoryRepository.open(git_dir).commit(Put(changes), "bench", AUTHOR)
