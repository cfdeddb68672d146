"""`letta memory status | commit | revert | path`: what a person does to memory."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from letta_code.cli.memory.common import (
    Agent,
    AllowSecret,
    Json,
    OverLimit,
    opened,
    overrides,
    person,
    tell,
)
from letta_code.cli.place import Place
from letta_code.cli.show import as_json, label

app = typer.Typer()


@app.command()
def revert(
    ctx: typer.Context,
    revision: Annotated[str, typer.Argument(metavar="REV", help="The commit to undo.")],
    agent: Agent = None,
) -> None:
    """Undo one commit by a new one. Nothing changes when later commits touched the same text."""
    state, repository = opened(ctx, agent)
    commit = repository.revert(repository.resolve(revision), person(ctx.obj, state))
    tell(commit)


@app.command()
def status(ctx: typer.Context, agent: Agent = None, json: Json = False) -> None:
    """Edits in the work tree that are not committed, and so not seen by the agent."""
    _, repository = opened(ctx, agent)
    drafts = repository.status()
    if json:
        as_json({"head": repository.head(), "drafts": [asdict(draft) for draft in drafts]})
        return
    for draft in drafts:
        sys.stdout.write(f"{draft.state:9} {label(draft.path)}\n")
    if not drafts:
        sys.stderr.write("nothing is uncommitted\n")


@app.command()
def commit(
    ctx: typer.Context,
    message: Annotated[str, typer.Option("--message", "-m", metavar="WHY", help="Why, in one sentence.")],
    agent: Agent = None,
    allow_secret: AllowSecret = False,
    over_limit: OverLimit = False,
) -> None:
    """Commit every edit of the work tree, so that the agent sees it in its next turn."""
    from letta_code.memory.repository import Provenance

    state, repository = opened(ctx, agent)
    made = repository.commit_drafts(
        message,
        person(ctx.obj, state),
        Provenance(agent=state.id, source="user-stated"),
        overrides(ctx.obj, allow_secret, over_limit),
    )
    tell(made)


@app.command()
def path(ctx: typer.Context, agent: Agent = None) -> None:
    """Print the folder with the files. Plain git works there."""
    place: Place = ctx.obj
    sys.stdout.write(f"{place.paths.memory_worktree(place.agent(agent).key)}\n")
