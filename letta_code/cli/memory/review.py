"""`letta memory review`: what the agent remembers that the person did not state, to confirm or to drop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.memory.common import Agent, Json, in_agents_shell, opened, person, tell
from letta_code.cli.memory.history import short_conversation
from letta_code.cli.place import Place
from letta_code.cli.show import as_json, label, local_time, visible
from letta_code.errors import LettaError, UsageError

if TYPE_CHECKING:
    from letta_code.memory.git.repository import Author, MemoryRepository
    from letta_code.memory.git.review import Pending

review = typer.Typer(rich_markup_mode=None)
app = typer.Typer()
app.add_typer(review, name="review")

Revisions = Annotated[
    list[str] | None,
    typer.Argument(metavar="[REV]...", help="Which memories; the beginning of an id will do."),
]
All = Annotated[bool, typer.Option("--all", help="All that wait.")]


def waiting(held: int, committed: int) -> str:
    """How many memories wait for review, in words."""
    count = held + committed
    words = f"{count} {'memory' if count == 1 else 'memories'} not stated by you"
    return words + (f", {held} held back until you confirm" if held else "")


@review.callback(invoke_without_command=True)
def review_command(ctx: typer.Context, agent: Agent = None, json: Json = False) -> None:
    """Confirm or drop what you did not state yourself. What was inferred, came from tool output or by
    reflection, or was imported: on a terminal one by one, else as a list."""
    from letta_code.memory.git.review import pending

    if ctx.invoked_subcommand is not None:
        if agent or json:
            raise UsageError(
                "options of `letta memory review` go behind the command", "review confirm --agent …"
            )
        return
    state, repository = opened(ctx, agent)
    items = pending(repository)
    if json:
        as_json([_as_dict(item) for item in items])
        return
    if not items:
        sys.stderr.write("nothing waits for review\n")
    elif sys.stdin.isatty() and sys.stdout.isatty() and not in_agents_shell(ctx.obj):
        _one_by_one(repository, items, person(ctx.obj, state))
    else:
        for item in items:
            _line(item)


@review.command()
def confirm(
    ctx: typer.Context, revisions: Revisions = None, everything: All = False, agent: Agent = None
) -> None:
    """These are right. What was held becomes memory; the rest is no longer listed here."""
    from letta_code.memory.git import review as git_review

    repository, items, who = _chosen(ctx, agent, revisions, everything)
    for made in git_review.confirm(repository, items, who):
        tell(made)


@review.command()
def drop(
    ctx: typer.Context, revisions: Revisions = None, everything: All = False, agent: Agent = None
) -> None:
    """These are wrong. What was held is forgotten; the rest is undone by a new commit."""
    repository, items, who = _chosen(ctx, agent, revisions, everything)
    for item in items:
        _drop(repository, item, who)


def _chosen(
    ctx: typer.Context, agent: str | None, revisions: list[str] | None, everything: bool
) -> tuple[MemoryRepository, tuple[Pending, ...], Author]:
    from letta_code.memory.git.review import pending

    place: Place = ctx.obj
    if in_agents_shell(place):
        raise UsageError("only a person reviews memories", "ask the person: letta memory review")
    if bool(revisions) == everything:
        raise UsageError("which memories?", "name revisions (letta memory review lists them), or say --all")
    state, repository = opened(ctx, agent)
    items = pending(repository)
    if revisions:
        ids = [repository.resolve(revision) for revision in dict.fromkeys(revisions)]
        waiting = {item.commit.revision: item for item in items}
        unknown = [given for given, id in zip(revisions, ids, strict=False) if id not in waiting]
        if unknown:
            raise UsageError(f"{unknown[0]} does not wait for review", "letta memory review lists what does")
        items = tuple(waiting[id] for id in ids)
    return repository, items, person(place, state)


def _one_by_one(repository: MemoryRepository, items: tuple[Pending, ...], who: Author) -> None:
    from letta_code.memory.git import review as git_review
    from letta_code.memory.git.log import diff

    for number, item in enumerate(items, 1):
        sys.stdout.write(f"\n{number} of {len(items)}\n")
        _line(item)
        sys.stdout.write(visible(diff(repository, item.commit.parent, item.commit.revision)))
        answer = ""
        while answer not in ("c", "d", "s", "q"):
            try:
                answer = input("c confirm · d drop · s skip · q quit › ").strip().lower()[:1]
            except EOFError:
                answer = "q"
        try:
            if answer == "c":
                for made in git_review.confirm(repository, [item], who):
                    tell(made)
            elif answer == "d":
                _drop(repository, item, who)
        except LettaError as error:
            sys.stdout.write(f"{label(error.message)}\n{label(error.hint)}\n")
        if answer == "q":
            return


def _drop(repository: MemoryRepository, item: Pending, who: Author) -> None:
    from letta_code.memory.git import review as git_review

    made = git_review.drop(repository, item, who)
    if item.held:
        sys.stdout.write(
            f"{made.revision[:10]}  dropped; `git show {made.revision[:10]}` in the memory folder shows it "
            "until Git cleans up\n"
        )
    else:
        tell(made)


def _line(item: Pending) -> None:
    commit = item.commit
    conversation = short_conversation(commit)
    facts = [item.source, *(["held"] if item.held else []), *([conversation] if conversation else [])]
    sys.stdout.write(
        f"{commit.revision[:10]}  {local_time(commit.when)}  {label(commit.author_name)} "
        f"({label(', '.join(facts))})\n    {label(commit.reason.splitlines()[0])}\n"
    )
    for changed in commit.paths:
        sys.stdout.write(f"      {label(changed)}\n")


def _as_dict(item: Pending) -> dict[str, object]:
    commit = item.commit
    return {
        "revision": commit.revision,
        "held": item.held,
        "source": item.source,
        "when": commit.when,
        "author": {"name": commit.author_name, "email": commit.author_email},
        "reason": commit.reason,
        "paths": list(commit.paths),
        "trailers": dict(commit.trailers),
    }
