"""`letta memory blame | search`: why something is believed, and where it is said."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.memory.common import Agent, Json, opened
from letta_code.cli.memory.history import first_line, headline
from letta_code.cli.memory.naming import complete_paths, file_at
from letta_code.cli.pager import NoPager, Page
from letta_code.cli.show import as_json, label, visible
from letta_code.errors import EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from letta_code.memory.git.repository import MemoryRepository
    from letta_code.memory.history import BlamedLine, MemoryCommit

app = typer.Typer()


@app.command()
def blame(
    ctx: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="[REV:]PATH",
            autocompletion=complete_paths,
            help="system/human.md, HEAD~1:system/human.md",
        ),
    ],
    agent: Agent = None,
    json: Json = False,
    no_pager: NoPager = False,
) -> None:
    """Why do you believe this? Each line of a file with its commit. When, by whom, from which source and
    conversation, and the reason."""
    from letta_code.memory.git import blame as git_blame

    _, repository = opened(ctx, agent)
    revision, path = file_at(repository, what)
    lines = git_blame.blame(repository, path, revision)
    if json:
        as_json([_line_as_dict(line) for line in lines])
        return
    page = Page(ctx.obj.environment)
    width = len(str(len(lines)))
    for _, run in groupby(lines, key=lambda line: (line.commit.revision, line.path)):
        together = list(run)
        commit, was = together[0].commit, together[0].path
        page.write(f"{headline(page, commit)}\n")
        page.write(f"    {page.paint(label(first_line(commit)), 'bold')}\n")
        if was != path:
            page.write(f"    in {label(was)}\n")
        for line in together:
            page.write(f"{page.paint(f'{line.number:{width}} │', 'dim')} {visible(line.text)}\n")
    page.show(no_pager)


@app.command()
def search(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Words as they stand there; case is ignored.")],
    history: Annotated[
        bool, typer.Option("--history", help="Past versions too: which commit added it, which removed it.")
    ] = False,
    agent: Agent = None,
    json: Json = False,
    no_pager: NoPager = False,
) -> int:
    """Find a text in memory, or in all its past. Names, descriptions and bodies are searched; exit code 1
    when nothing is found."""
    if not text.strip() or "\n" in text:
        raise UsageError("search for what?", "give words that stand on one line")
    _, repository = opened(ctx, agent)
    page = Page(ctx.obj.environment)
    found = (_past if history else _present)(repository, text, page, json)
    page.show(no_pager)
    if not found and not json:
        drafts = "; there are uncommitted edits (letta memory status)" if repository.status() else ""
        where = " or its past says that" if history else " says that; --history looks in its past"
        sys.stderr.write(f"nothing in memory{where}{drafts}\n")
    return 0 if found else EXIT_FAILED


def _present(repository: MemoryRepository, text: str, page: Page, json: bool) -> bool:
    from letta_code.memory.git.search import search

    snapshot = repository.snapshot()
    hits = search(repository, text, snapshot.revision)
    if json:
        found = [{"path": hit.path, "line": hit.line or None, "text": hit.text} for hit in hits]
        as_json({"revision": snapshot.revision, "hits": found})
        return bool(hits)
    for path, group in groupby(hits, key=lambda hit: hit.path):
        page.write(f"{page.paint(label(path), 'bold')}\n")
        for hit in group:
            if hit.line:
                page.write(f"{page.paint(f'{hit.line:5}:', 'dim')} {visible(hit.text)}\n")
    return bool(hits)


def _past(repository: MemoryRepository, text: str, page: Page, json: bool) -> bool:
    from letta_code.memory.git.search import search_history

    passages = search_history(repository, text)
    if json:
        as_json(
            [
                {
                    "path": passage.path,
                    "text": passage.text,
                    "added": _in_short(passage.added),
                    "removed": _in_short(passage.removed) if passage.removed is not None else None,
                }
                for passage in passages
            ]
        )
        return bool(passages)
    for passage in passages:
        page.write(f"{page.paint(label(passage.path), 'bold')}: {visible(passage.text)}\n")
        page.write(f"    added    {headline(page, passage.added)}: {label(first_line(passage.added))}\n")
        if passage.removed is not None:
            gone = passage.removed
            page.write(f"    removed  {headline(page, gone)}: {label(first_line(gone))}\n")
    return bool(passages)


def _in_short(commit: MemoryCommit) -> dict[str, object]:
    return {
        "revision": commit.revision,
        "when": commit.when,
        "author": {"name": commit.author_name, "email": commit.author_email},
        "source": commit.trailers.get("Letta-Source", ""),
        "conversation": commit.trailers.get("Letta-Conversation", ""),
        "reason": commit.reason,
    }


def _line_as_dict(line: BlamedLine) -> dict[str, object]:
    return {
        "line": line.number,
        "text": line.text,
        **_in_short(line.commit),
        "path": line.path,
        "original_line": line.original,
    }
