"""`letta memory log | show | diff`: what memory says and said."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.memory.common import Agent, Json, opened
from letta_code.cli.show import as_json, label, local_time, visible
from letta_code.errors import MemoryStoreError

if TYPE_CHECKING:
    from letta_code.memory.repository import MemoryCommit

app = typer.Typer()


@app.command()
def log(
    ctx: typer.Context,
    path: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="Only commits that changed it.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many commits.")] = 50,
    agent: Agent = None,
    json: Json = False,
) -> None:
    """What was learned, when and why: the commits, newest first."""
    from letta_code.memory import repository_history

    _, repository = opened(ctx, agent)
    commits = repository_history.log(repository, limit, path)
    if json:
        as_json([_commit(commit) for commit in commits])
        return
    for commit in commits:
        first = commit.reason.splitlines()[0] if commit.reason else ""
        source = commit.trailers.get("Letta-Source", "")
        sys.stdout.write(
            f"{commit.revision[:10]}  {local_time(commit.when)}  {label(commit.author_name)}"
            f"{f' ({label(source)})' if source else ''}\n    {label(first)}\n"
        )
        for changed in commit.paths:
            sys.stdout.write(f"      {label(changed)}\n")


@app.command()
def show(
    ctx: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="[REV:]PATH", help="system/human.md, HEAD~1:system/human.md")
    ],
    agent: Agent = None,
) -> None:
    """Print a memory file as it was committed. Without REV: as it is at HEAD."""
    _, repository = opened(ctx, agent)
    revision, path = repository.head(), what
    if ":" in what:
        before, _, after = what.partition(":")
        try:
            revision, path = repository.resolve(before), after
        except MemoryStoreError:
            # A file's name may hold a colon.
            if repository.snapshot(revision).find(what) is None:
                raise
    if repository.snapshot(revision).find(path) is None and not path.endswith(".md"):
        path += ".md"
    data = repository.read(revision, path)
    if sys.stdout.isatty():
        sys.stdout.write(visible(data.decode("utf-8", "replace")))
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@app.command()
def diff(
    ctx: typer.Context,
    old: Annotated[str | None, typer.Argument(metavar="[A]", help="A revision; without it: HEAD.")] = None,
    new: Annotated[
        str | None, typer.Argument(metavar="[B]", help="Another; without it: the work tree.")
    ] = None,
    agent: Agent = None,
    json: Json = False,
) -> None:
    """The uncommitted edits of the work tree, or what changed between two revisions."""
    from letta_code.memory import repository_history

    _, repository = opened(ctx, agent)
    before = repository.resolve(old) if old else repository.head()
    after = repository.resolve(new) if new else None
    patch = repository_history.diff(repository, before, after)
    if json:
        as_json({"from": before, "to": after, "diff": patch})
    else:
        sys.stdout.write(visible(patch))


def _commit(commit: MemoryCommit) -> dict[str, object]:
    return {
        "revision": commit.revision,
        "parent": commit.parent,
        "when": commit.when,
        "author": {"name": commit.author_name, "email": commit.author_email},
        "reason": commit.reason,
        "paths": list(commit.paths),
        "trailers": dict(commit.trailers),
    }
