"""`letta doctor`: what is wrong with this installation, and the cure."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from letta_code import __version__
from letta_code.cli.memory.sharing import sync_record
from letta_code.cli.place import Place
from letta_code.cli.show import label, local_time
from letta_code.cli.sizes import budget_window, model_of, size_line
from letta_code.errors import LettaError, ToolError

if TYPE_CHECKING:
    from letta_code.agent.state import AgentState
    from letta_code.memory.snapshot import MemorySnapshot


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was looked at, whether it is as it should be, and the cure if not."""

    what: str
    fine: bool
    cure: str = ""


def doctor_command(ctx: typer.Context) -> int:
    """What is wrong with this installation, and the cure. Exit code 1 when something is."""
    place: Place = ctx.obj
    findings = [finding for check in _CHECKS for finding in _safely(check, place)]
    for finding in findings:
        sys.stdout.write(f"{'ok  ' if finding.fine else 'BAD '} {label(finding.what)}\n")
        if not finding.fine and finding.cure:
            sys.stdout.write(f"       {label(finding.cure)}\n")
    return 0 if all(finding.fine for finding in findings) else 1


def _safely(check: Callable[[Place], Iterator[Finding]], place: Place) -> Iterator[Finding]:
    try:
        yield from check(place)
    except LettaError as error:
        yield Finding(error.message, False, error.hint)


def _programs(place: Place) -> Iterator[Finding]:
    yield Finding(f"letta-code {__version__}, Python {sys.version.split()[0]}", sys.version_info >= (3, 11))
    git = shutil.which("git", path=place.environment.get("PATH"))
    yield Finding(
        f"git: {git or 'not found'}", git is not None, "install git: the model and you will need it"
    )
    from letta_code.tools.ripgrep import find_ripgrep

    try:
        yield Finding(f"ripgrep: {find_ripgrep(place.environment)}", True)
    except ToolError:
        yield Finding("ripgrep: not found", False, "reinstall letta-code, or install ripgrep")


def _folders(place: Place) -> Iterator[Finding]:
    paths = place.paths
    if paths.temporary:
        yield Finding(
            f"there is no home folder; everything is in {paths.data.parent}",
            False,
            "set HOME or LETTA_HOME to a folder that stays",
        )
    for name, folder in (("memory", paths.memfs), ("config", paths.config), ("data", paths.data)):
        existing = _existing(folder)
        yield Finding(
            f"{name}: {folder}",
            os.access(existing, os.W_OK | os.X_OK),
            f"{existing} cannot be written: change its owner, or set LETTA_HOME",
        )


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _settings(place: Place) -> Iterator[Finding]:
    settings = place.settings()
    for warning in settings.warnings:
        yield Finding(warning, False, f"see {place.paths.settings()}")
    yield Finding(f"settings: {place.paths.settings()}", True)


def _sandbox(place: Place) -> Iterator[Finding]:
    from letta_code.tools.processes.sandbox import find_sandbox

    settings = place.settings()
    environment = {**place.environment, **settings.environment}
    found = find_sandbox(settings.sandbox, place.paths, environment, (place.project,))
    if not settings.sandbox.enabled:
        able = found.problem or f"{found.version} works here: letta config set sandbox.enabled true"
        yield Finding(f"sandbox: off, shell commands run as you; {able}", True)
        return
    state = f"active, {found.version}, network {'on' if found.network else 'off'}"
    missing = f"missing, so no shell command runs: {found.problem}"
    yield Finding(
        f"sandbox: asked for and {missing if found.problem else state}", not found.problem, found.cure
    )
    for folder in found.write:
        if not folder.exists():
            yield Finding(f"sandbox.write: {folder} does not exist", False, "make it, or take it out")


def _agents(place: Place) -> Iterator[Finding]:
    agents, problems = place.agents().list_with_problems()
    for problem in problems:
        yield Finding(problem, False, "restore it from a backup, or letta agents repair ID")
    if not agents:
        yield Finding("no agent yet: the first chat creates one", True)
    for state in agents:
        yield from _safely(partial(_memory, state.id), place)


def _memory(agent: str, place: Place) -> Iterator[Finding]:
    from letta_code.memory.git.review import count_pending
    from letta_code.memory.render import problems_of

    state = place.agents().find(agent)
    repository = place.agents().memory(state)
    place.agents().base_prompt(state)
    snapshot = repository.snapshot()
    for blob in snapshot.entries.values():
        snapshot.objects.blob(blob)
    for problem in problems_of(snapshot):
        yield Finding(
            f"{state.name}: {problem.path} {problem.message}",
            False,
            f"correct it in {repository.worktree}, then letta memory commit",
        )
    yield from _size(place, state, snapshot)
    drafts = len(repository.status())
    uncommitted = f", {drafts} uncommitted (letta memory status)" if drafts else ""
    review = sum(count_pending(repository))
    waiting = f", {review} not stated by you (letta memory review)" if review else ""
    size = f"memory at {snapshot.revision[:10]}, {len(snapshot.entries)} files"
    yield Finding(
        f"agent {state.name}: {size}{uncommitted}{waiting}",
        True,
    )
    record = sync_record(place, state)
    if record is not None:
        when = local_time(record.when)
        yield Finding(f"{state.name}: last sync {when}: {record.message}", record.fine, record.hint)


def _size(place: Place, state: AgentState, snapshot: MemorySnapshot) -> Iterator[Finding]:
    from letta_code.cli.context import overflow_warning
    from letta_code.memory.budget import measure
    from letta_code.memory.overview import LIMIT, cut_overviews

    for path, characters in cut_overviews(snapshot):
        yield Finding(
            f"{state.name}: {path} is cut in conversations: {LIMIT:,} of {characters:,} characters at most",
            False,
            "keep the overview short and move detail to files beside it",
        )
    window, share = budget_window(model_of(place, state)), place.settings().memory.budget
    budget = measure(snapshot)
    yield Finding(
        f"{state.name}: {size_line(budget, window, share)}",
        not window or budget.total <= share * window,
        "move detail out of system/; `letta context` shows what is large",
    )
    if (error := overflow_warning(place, state)) is not None:
        yield Finding(f"{state.name}: {error.message}", False, error.hint)


def _archive(place: Place) -> Iterator[Finding]:
    from letta_code.archive.store import SqliteArchive
    from letta_code.models.embeddings import open_embedder

    embedder = open_embedder(place.settings(), place.environment)
    how = "words alone: no embedding model" if embedder is None else f"words and by {embedder.name}"
    yield Finding(f"archive: searched by {how}", True)
    store = SqliteArchive(place.paths.archive())
    for state in place.agents().list():
        if not (count := store.counts(state.key).passages):
            continue
        waiting = [] if embedder is None else store.without_vector(state.key, embedder.name)
        without = f", {len(waiting)} without a vector (letta archive reindex)" if waiting else ""
        yield Finding(f"{state.name}: {count} passages in the archive{without}", True)


def _models(place: Place) -> Iterator[Finding]:
    from letta_code.models.providers import discover

    found = discover(place.settings(), place.environment)
    reached = [
        status for status in found if status.reachable or (status.reachable is None and status.configured)
    ]
    names = ", ".join(f"{status.provider} at {status.address}" for status in reached)
    yield Finding(
        f"models: {names or 'none can be reached'}",
        bool(reached),
        "set ANTHROPIC_API_KEY or OPENAI_API_KEY, start a local server (ollama), or give --base-url",
    )


_CHECKS = (_programs, _folders, _settings, _sandbox, _agents, _archive, _models)
