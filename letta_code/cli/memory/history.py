"""`letta memory log | show | diff`: what memory learned, when and why."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.memory.common import Agent, Json, opened
from letta_code.cli.memory.naming import (
    candidates,
    complete_paths,
    complete_revisions,
    file_at,
    moment,
    unknown_path,
)
from letta_code.cli.pager import NoPager, Page
from letta_code.cli.show import as_json, label, local_time, visible
from letta_code.errors import MemoryStoreError, UsageError

if TYPE_CHECKING:
    from letta_code.memory.git.repository import MemoryCommit, MemoryRepository

app = typer.Typer()

_INDENT = "    "
_CONVERSATION = len("conv-12345678")


@app.command()
def log(
    ctx: typer.Context,
    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", autocompletion=complete_paths, help="Only commits that changed it."),
    ] = None,
    path_option: Annotated[
        str | None,
        typer.Option("--path", metavar="PATH", autocompletion=complete_paths, help="The same, by name."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="2026-11-01, '2 weeks ago', 3d")
    ] = None,
    author: Annotated[
        str | None, typer.Option("--author", metavar="TEXT", help="Only commits by whom it names.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="How many commits at most.")
    ] = 50,
    agent: Agent = None,
    json: Json = False,
    no_pager: NoPager = False,
) -> None:
    """What memory learned, when and why. The commits, newest first, with their source; a file is followed
    through its earlier names."""
    from letta_code.memory.git import log as git_log

    if path is not None and path_option is not None:
        raise UsageError("two paths", "give PATH or --path PATH")
    start = moment(since, datetime.now().astimezone()) if since is not None else None
    _, repository = opened(ctx, agent)
    given = path if path is not None else path_option
    commits: tuple[MemoryCommit, ...] = ()
    for name in candidates(repository, given) if given is not None else [""]:
        commits = git_log.log(repository, limit, name or None, since=start, author=author)
        if commits:
            break
    else:
        if given is not None and not _ever(repository, given):
            raise unknown_path(repository.snapshot(), given, ", now or in the past")
    if json:
        as_json([commit_as_dict(commit) for commit in commits])
        return
    page = Page(ctx.obj.environment)
    for commit in commits:
        write_commit(page, commit)
    if not commits:
        sys.stderr.write("no such commits\n")
    page.show(no_pager)


@app.command()
def show(
    ctx: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="REV | [REV:]PATH",
            autocompletion=complete_paths,
            help="system/human.md, HEAD~1:system/human.md, HEAD~1",
        ),
    ],
    agent: Agent = None,
    json: Json = False,
    no_pager: NoPager = False,
) -> None:
    """Print a file, now or in the past, or a commit. A file as it was committed, without REV as it is now;
    for a revision the commit: reason, origin and what it changed."""
    _, repository = opened(ctx, agent)
    try:
        revision, path = file_at(repository, what)
    except MemoryStoreError as no_file:
        if ":" in what:
            raise
        try:
            commit = repository.describe(what)
        except MemoryStoreError:
            raise no_file from None
        _show_commit(ctx, repository, commit, json, no_pager)
        return
    data = repository.read(revision, path)
    if json:
        as_json({"revision": revision, "path": path, "text": data.decode("utf-8", "replace")})
    elif sys.stdout.isatty():
        page = Page(ctx.obj.environment)
        page.write(visible(data.decode("utf-8", "replace")))
        page.show(no_pager)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@app.command()
def diff(
    ctx: typer.Context,
    old: Annotated[
        str | None,
        typer.Argument(
            metavar="A | A..B", autocompletion=complete_revisions, help="A revision; without it: HEAD."
        ),
    ] = None,
    new: Annotated[
        str | None,
        typer.Argument(
            metavar="B", autocompletion=complete_revisions, help="Another; without it: the work tree."
        ),
    ] = None,
    agent: Agent = None,
    json: Json = False,
    no_pager: NoPager = False,
) -> None:
    """Uncommitted edits, or what changed between two commits."""
    from letta_code.memory.git import log as git_log

    _, repository = opened(ctx, agent)
    if old is not None and ".." in old:
        if new is not None or "..." in old:
            raise UsageError(f"two revisions, please, not {label(old)}", "letta memory diff A..B")
        old, _, new = (part or "HEAD" for part in old.partition(".."))
    before = repository.resolve(old) if old else repository.head()
    after = repository.resolve(new) if new else None
    patch = git_log.diff(repository, before, after)
    if json:
        as_json({"from": before, "to": after, "diff": patch})
        return
    page = Page(ctx.obj.environment)
    page.write_diff(patch)
    page.show(no_pager)
    if not patch:
        sys.stderr.write("no difference\n" if old else "nothing is uncommitted\n")


def commit_as_dict(commit: MemoryCommit) -> dict[str, object]:
    """A commit as the listings print it in JSON."""
    return {
        "revision": commit.revision,
        "parent": commit.parent,
        "when": commit.when,
        "author": {"name": commit.author_name, "email": commit.author_email},
        "reason": commit.reason,
        "source": commit.trailers.get("Letta-Source", ""),
        "conversation": commit.trailers.get("Letta-Conversation", ""),
        "paths": list(commit.paths),
        "trailers": dict(commit.trailers),
    }


def headline(page: Page, commit: MemoryCommit) -> str:
    """A commit in one line: id, time, author, and where the knowledge came from."""
    origin = (commit.trailers.get("Letta-Source", ""), short_conversation(commit))
    known = ", ".join(label(part) for part in origin if part)
    who = f"{local_time(commit.when)}  {label(commit.author_name)}"
    return f"{page.paint(commit.revision[:10], 'yellow')}  {who}{f' ({known})' if known else ''}"


def short_conversation(commit: MemoryCommit) -> str:
    """The beginning of the conversation's id, which is enough to name it; "" when there was none."""
    return commit.trailers.get("Letta-Conversation", "")[:_CONVERSATION]


def write_commit(page: Page, commit: MemoryCommit) -> None:
    """A commit with the first line of its reason and its paths."""
    page.write(f"{headline(page, commit)}\n")
    page.write(f"{_INDENT}{page.paint(label(first_line(commit)), 'bold')}\n")
    for changed in commit.paths:
        page.write(f"{_INDENT}  {label(changed)}\n")


def first_line(commit: MemoryCommit) -> str:
    """The reason in one line; a person's commit may have none."""
    return commit.reason.splitlines()[0] if commit.reason else ""


def _show_commit(
    ctx: typer.Context, repository: MemoryRepository, commit: MemoryCommit, json: bool, no_pager: bool
) -> None:
    from letta_code.memory.git.log import diff_of

    patch = diff_of(repository, commit.revision)
    if json:
        as_json({**commit_as_dict(commit), "diff": patch})
        return
    page = Page(ctx.obj.environment)
    facts = [
        ("commit", commit.revision),
        ("author", f"{commit.author_name} <{commit.author_email}>"),
        ("when", commit.when),
        *((key.removeprefix("Letta-").lower(), value) for key, value in commit.trailers.items()),
    ]
    for key, value in facts:
        shown = local_time(value) if key == "when" else label(value)
        page.write(f"{key:13} {page.paint(shown, 'yellow') if key == 'commit' else shown}\n")
    page.write("\n")
    for line in visible(commit.reason).splitlines():
        page.write(f"{_INDENT}{line}\n")
    page.write("\n")
    page.write_diff(patch)
    page.show(no_pager)


def _ever(repository: MemoryRepository, given: str) -> bool:
    from letta_code.memory.git.log import log

    return any(log(repository, 1, name or None) for name in candidates(repository, given))
