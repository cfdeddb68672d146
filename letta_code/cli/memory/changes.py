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
    in_agents_shell,
    opened,
    overrides,
    person,
    provenance,
    tell,
)
from letta_code.cli.memory.review import waiting
from letta_code.cli.memory.sharing import last_sync, sync_record
from letta_code.cli.place import Place
from letta_code.cli.show import as_json, label
from letta_code.errors import UsageError

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
    """Edits in the work tree that are not committed, and so not seen by the agent; and how many memories
    wait for review."""
    from letta_code.memory.repository_review import count_pending

    state, repository = opened(ctx, agent)
    drafts = repository.status()
    held, committed = count_pending(repository)
    if json:
        review = {"held": held, "committed": committed}
        drafts_ = [asdict(draft) for draft in drafts]
        synced = sync_record(ctx.obj, state)
        sync = asdict(synced) if synced is not None else None
        as_json({"head": repository.head(), "drafts": drafts_, "review": review, "sync": sync})
        return
    for draft in drafts:
        sys.stdout.write(f"{draft.state:9} {label(draft.path)}\n")
    if not drafts:
        sys.stderr.write("nothing is uncommitted\n")
    if held or committed:
        sys.stderr.write(f"{waiting(held, committed)}: letta memory review\n")
    if (line := last_sync(ctx.obj, state)) is not None:
        sys.stderr.write(f"{line}\n")


@app.command()
def commit(
    ctx: typer.Context,
    message: Annotated[str, typer.Option("--message", "-m", metavar="WHY", help="Why, in one sentence.")],
    agent: Agent = None,
    allow_secret: AllowSecret = False,
    over_limit: OverLimit = False,
) -> None:
    """Commit every edit of the work tree, so that the agent sees it in its next turn."""
    state, repository = opened(ctx, agent)
    if in_agents_shell(ctx.obj) and ctx.obj.settings().memory.review == "hold":
        raise UsageError(
            "what an agent writes is held for the person's review, so its shell cannot commit drafts",
            "use the memory tool; or leave the drafts for the person (letta memory status, commit)",
        )
    made = repository.commit_drafts(
        message,
        person(ctx.obj, state),
        provenance(ctx.obj, state),
        overrides(ctx.obj, allow_secret, over_limit),
    )
    tell(made)


@app.command()
def path(ctx: typer.Context, agent: Agent = None) -> None:
    """Print the folder with the files. Plain git works there."""
    place: Place = ctx.obj
    sys.stdout.write(f"{place.paths.memory_worktree(place.agent(agent).key)}\n")
