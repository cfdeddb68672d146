"""`letta memory`: the history of an agent's memory, for people and scripts."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from letta_code.cli.place import Place, complete_agents
from letta_code.cli.show import as_json, label, local_time, visible
from letta_code.errors import MemoryStoreError

if TYPE_CHECKING:
    from letta_code.agent.state import AgentState
    from letta_code.memory.repository import Author, MemoryCommit, MemoryRepository

app = typer.Typer(
    help="Look at an agent's memory, and change it.", no_args_is_help=True, rich_markup_mode=None
)

Agent: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--agent",
        "-a",
        metavar="ID|NAME",
        autocompletion=complete_agents,
        help="Whose memory. Without it: the agent this folder used last, else the default one.",
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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
    _, repository = _open(ctx, agent)
    commits = repository.log(limit, path)
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
    _, repository = _open(ctx, agent)
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
    _, repository = _open(ctx, agent)
    before = repository.resolve(old) if old else repository.head()
    after = repository.resolve(new) if new else None
    patch = repository.diff(before, after)
    if json:
        as_json({"from": before, "to": after, "diff": patch})
    else:
        sys.stdout.write(visible(patch))


@app.command()
def revert(
    ctx: typer.Context,
    revision: Annotated[str, typer.Argument(metavar="REV", help="The commit to undo.")],
    agent: Agent = None,
) -> None:
    """Undo one commit by a new one. Nothing changes when later commits touched the same text."""
    state, repository = _open(ctx, agent)
    commit = repository.revert(repository.resolve(revision), _person(ctx.obj, state))
    _tell(commit)


@app.command()
def status(ctx: typer.Context, agent: Agent = None, json: Json = False) -> None:
    """Edits in the work tree that are not committed, and so not seen by the agent."""
    _, repository = _open(ctx, agent)
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
) -> None:
    """Commit every edit of the work tree, so that the agent sees it in its next turn."""
    from letta_code.memory.repository import Provenance

    state, repository = _open(ctx, agent)
    made = repository.commit_drafts(
        message, _person(ctx.obj, state), Provenance(agent=state.id, source="user-stated")
    )
    _tell(made)


@app.command()
def path(ctx: typer.Context, agent: Agent = None) -> None:
    """Print the folder with the files. Plain git works there."""
    place: Place = ctx.obj
    sys.stdout.write(f"{place.paths.memory_worktree(place.agent(agent).key)}\n")


def _open(ctx: typer.Context, agent: str | None) -> tuple[AgentState, MemoryRepository]:
    place: Place = ctx.obj
    state = place.agent(agent)
    return state, place.agents().memory(state)


def _person(place: Place, state: AgentState) -> Author:
    """Who commits: the person's Git identity when the environment names one, else "you"."""
    from letta_code.memory.repository import Author

    name = place.environment.get("GIT_AUTHOR_NAME") or place.environment.get("USER") or "person"
    email = place.environment.get("GIT_AUTHOR_EMAIL") or f"person@{state.id}.letta.local"
    return Author(name, email)


def _tell(commit: MemoryCommit) -> None:
    sys.stdout.write(f"{commit.revision[:10]}  {label(commit.reason.splitlines()[0])}\n")
    for changed in commit.paths:
        sys.stdout.write(f"  {label(changed)}\n")


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
