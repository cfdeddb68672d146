"""`letta memory status | commit | revert | restore | path`: what a person does to memory."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.hook import refuse_held
from letta_code.cli.memory.common import (
    Agent,
    AllowSecret,
    Json,
    OverLimit,
    opened,
    overrides,
    person,
    provenance,
    tell,
)
from letta_code.cli.memory.naming import Revision, complete_paths, complete_revisions, file_named
from letta_code.cli.memory.review import waiting
from letta_code.cli.memory.sharing import last_sync, sync_record
from letta_code.cli.place import Place
from letta_code.cli.show import as_json, label

if TYPE_CHECKING:
    from letta_code.memory.git.undo import Restoring

app = typer.Typer()

_EFFECTS = {
    "changed": "changed",
    "brought back": "brought back",
    "removed": "removed",
    "kept": "left alone",
    "blocked": "in the way",
}


@app.command()
def revert(
    ctx: typer.Context,
    revision: Revision,
    agent: Agent = None,
    allow_secret: AllowSecret = False,
    over_limit: OverLimit = False,
) -> None:
    """Undo one commit by a new one. Nothing changes when later commits touched the same text."""
    from letta_code.memory.git import undo as git_undo

    state, repository = opened(ctx, agent)
    refuse_held(ctx.obj.environment, ctx.obj.paths)
    made = git_undo.revert(
        repository,
        repository.resolve(revision),
        person(ctx.obj, state),
        provenance(ctx.obj, state),
        overrides(ctx.obj, allow_secret, over_limit),
    )
    tell(made)


@app.command()
def restore(
    ctx: typer.Context,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", autocompletion=complete_paths, help="A file or folder; . is all of memory."
        ),
    ],
    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="REV", autocompletion=complete_revisions, help="As it was in this commit."
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would happen.")] = False,
    message: Annotated[str | None, typer.Option("--message", "-m", metavar="WHY", help="Why.")] = None,
    agent: Agent = None,
    allow_secret: AllowSecret = False,
    over_limit: OverLimit = False,
    json: Json = False,
) -> None:
    """Bring a file or folder back as it was. This makes a new commit. Uncommitted edits and files that
    were never committed stay as they are; files of the folder that came later leave memory, and stay in its
    history."""
    from letta_code.memory.git import undo as git_undo

    state, repository = opened(ctx, agent)
    was = repository.snapshot(source)
    name = file_named(repository, was, path, folders=True)
    plan = git_undo.restoring(repository, name, was.revision)
    made = None
    if not dry_run:
        refuse_held(ctx.obj.environment, ctx.obj.paths)
        made = git_undo.restore(
            repository,
            name,
            was.revision,
            message or f"Restore {name or 'memory'} from {was.revision[:10]}",
            person(ctx.obj, state),
            provenance(ctx.obj, state),
            overrides(ctx.obj, allow_secret, over_limit),
        )
    if json:
        effects = [asdict(effect) for effect in plan.effects]
        revision = made.revision if made is not None else None
        as_json({"from": was.revision, "path": name, "revision": revision, "effects": effects})
        return
    if made is not None:
        first = made.reason.splitlines()[0]
        sys.stdout.write(f"{made.revision[:10]}  {label(first)}\n")
    for effect in plan.effects:
        sys.stdout.write(f"  {_EFFECTS[effect.what]:12} {label(effect.path)}\n")
    if dry_run:
        _tell_plan(plan)


@app.command()
def status(ctx: typer.Context, agent: Agent = None, json: Json = False) -> None:
    """What is not committed, not reviewed, not synced. Edits of the work tree that are not committed are not
    seen by the agent."""
    from letta_code.memory.git.review import count_pending

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
    if drafts:
        sys.stderr.write("letta memory diff shows them, letta memory commit -m WHY makes them memory\n")
    else:
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
    """Commit your edits, so that the agent sees them. All of the work tree, or nothing."""
    state, repository = opened(ctx, agent)
    refuse_held(ctx.obj.environment, ctx.obj.paths)
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


def _tell_plan(plan: Restoring) -> None:
    if plan.blocked:
        words = "nothing would be restored: commit or undo the uncommitted edits in the way first"
    elif not plan.changes:
        words = f"nothing would change: it is as it was in {plan.revision[:10]}"
    else:
        words = "nothing was changed; without --dry-run this becomes a commit"
    sys.stderr.write(words + "\n")
