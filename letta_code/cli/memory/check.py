"""`letta memory check`: what is wrong with memory and how large it is; in a Git hook: with a commit of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from letta_code.cli.hook import line, problems_of_staged, refuse, refuse_held
from letta_code.cli.memory.common import Agent, Json, opened, overrides
from letta_code.cli.place import Place
from letta_code.cli.show import as_json, label, table
from letta_code.cli.sizes import budget_window, model_of
from letta_code.errors import EXIT_FAILED

if TYPE_CHECKING:
    from letta_code.memory.budget import Budget
    from letta_code.memory.snapshot import Problem

app = typer.Typer()


@app.command()
def check(
    ctx: typer.Context,
    staged: Annotated[
        bool,
        typer.Option("--staged", help="Only what is staged for a commit of plain Git, as its hook does."),
    ] = False,
    agent: Agent = None,
    json: Json = False,
) -> int:
    """What is wrong, and how large memory is. Files, drafts and the repository are checked; exit code 1 when
    something is wrong."""
    return _check_staged(ctx, agent, json) if staged else _check_all(ctx, agent, json)


def _check_all(ctx: typer.Context, agent: str | None, json: bool) -> int:
    from letta_code.memory.budget import measure, pressure
    from letta_code.memory.git.check import (
        problems_of_drafts,
        problems_of_head,
        problems_of_repository,
    )

    place: Place = ctx.obj
    state, memory = opened(ctx, agent)
    snapshot = memory.snapshot()
    files, drafts = problems_of_head(snapshot), problems_of_drafts(memory, overrides(place))
    faults = problems_of_repository(memory)
    window, budget = budget_window(model_of(place, state)), measure(snapshot)
    warnings = pressure(budget, window, place.settings().memory.budget)
    code = EXIT_FAILED if files or drafts or faults else 0
    if json:
        as_json(
            {
                "revision": snapshot.revision,
                "problems": _listed(files),
                "drafts": _listed(drafts),
                "repository": list(faults),
                "size": _size(budget, window) | {"warnings": list(warnings)},
            }
        )
        return code
    _section(f"memory at {snapshot.revision[:10]}", [line(problem) for problem in files])
    _section("drafts, not committed", [line(problem) for problem in drafts])
    _section("repository", [label(fault) for fault in faults])
    _show_size(budget, window)
    for warning in warnings:
        sys.stdout.write(f"warning: {label(warning)}\n")
    if not code:
        sys.stderr.write("nothing is wrong\n")
    return code


def _check_staged(ctx: typer.Context, agent: str | None, json: bool) -> int:
    from letta_code.memory.git.check import opened_inside_git

    place: Place = ctx.obj
    git_dir = _inherited(place)
    if git_dir is not None:
        refuse_held(place.environment, place.paths)
    memory = opened_inside_git(git_dir) if git_dir is not None else opened(ctx, agent)[1]
    found = problems_of_staged(memory, place.environment)
    if json:
        as_json({"problems": _listed(found)})
        return EXIT_FAILED if found else 0
    return refuse([line(problem) for problem in found])


def _inherited(place: Place) -> Path | None:
    """The repository that Git runs us for, when it is a memory's."""
    from letta_code.memory.hooks import missing_hooks

    named = place.environment.get("GIT_DIR")
    if not named:
        return None
    git_dir = (Path.cwd() / named).resolve()
    return None if missing_hooks(git_dir) else git_dir


def _listed(problems: tuple[Problem, ...]) -> list[dict[str, str]]:
    from letta_code.memory.secrets import masked

    return [{"path": masked(problem.path), "problem": problem.message} for problem in problems]


def _section(title: str, lines: list[str]) -> None:
    if lines:
        sys.stdout.write(f"{title}:\n")
        for line in lines:
            sys.stdout.write(f"  {line}\n")


def _size(budget: Budget, window: int) -> dict[str, Any]:
    return {
        "tokens": budget.total,
        "window": window or None,
        "files": [
            {"path": file.path, "tokens": file.tokens, "characters": file.characters, "limit": file.limit}
            for file in budget.files
        ],
    }


def _show_size(budget: Budget, window: int) -> None:
    share = f", {budget.total / window:.1%} of the window of {window:,}" if window else ""
    sys.stdout.write(f"system/ takes about {budget.total:,} tokens{share}:\n")
    rows = []
    for file in budget.files:
        part = f"{file.tokens / window:.1%}" if window else ""
        limit = f" of {file.limit:,}" if file.limit is not None else ""
        rows.append(
            (f"  {file.tokens:,} tokens", part, f"{file.characters:,}{limit} characters", label(file.path))
        )
    table(rows)
