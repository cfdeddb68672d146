"""`letta archive`: the passages of an agent, for people and scripts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from letta_code.cli.memory.common import Agent, AllowSecret, Json, refuse_agents, whose
from letta_code.cli.place import Place
from letta_code.cli.show import as_json, label, local_time, table, visible
from letta_code.core.text import one_line
from letta_code.errors import ModelError, StorageError, UsageError

if TYPE_CHECKING:
    from letta_code.archive.archive import Archive
    from letta_code.archive.passages import Passage, Stored, Wanted
    from letta_code.core.ids import AgentKey
    from letta_code.settings.loading import Settings

app = typer.Typer(
    help="Look at the passages in an agent's archive, and change them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Tags: TypeAlias = Annotated[
    list[str] | None, typer.Option("--tag", "-t", metavar="TAG", help="With this tag. May be repeated.")
]
AllTags: TypeAlias = Annotated[
    bool, typer.Option("--all-tags", help="With all of the tags, not only with any of them.")
]
Since: TypeAlias = Annotated[
    str, typer.Option("--since", metavar="TIME", help="Made then or later: a date, or a date and time.")
]
Until: TypeAlias = Annotated[
    str, typer.Option("--until", metavar="TIME", help="Made before then; a date includes that day.")
]
Ids: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Which ones; the beginning of an id is enough.")
]


def archive_of(place: Place, settings: Settings, key: AgentKey, say: Callable[[str], None]) -> Archive:
    """The archive of an agent. Embeddings that cannot be had are said, and words alone searched."""
    from letta_code.archive.archive import Archive
    from letta_code.archive.store import SqliteArchive
    from letta_code.models.embeddings import open_embedder

    store = SqliteArchive(place.paths.archive())
    try:
        embedder = open_embedder(settings, place.environment)
    except (ModelError, UsageError) as error:
        say(f"warning: the archive is searched by words alone: {error.message} ({error.hint})")
        return Archive(store, key, None, error.message)
    return Archive(store, key, embedder)


def session_archive(
    place: Place, settings: Settings, key: AgentKey, say: Callable[[str], None]
) -> Archive | None:
    """The archive for a session; None, which is said, when its file is of no use."""
    archive = archive_of(place, settings, key, say)
    try:
        archive.counts()
    except StorageError as error:
        say(f"warning: this session has no archive: {error.message} ({error.hint})")
        return None
    return archive


@app.command("list")
def list_command(
    ctx: typer.Context,
    tag: Tags = None,
    all_tags: AllTags = False,
    since: Since = "",
    until: Until = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000_000, help="How many.")] = 50,
    agent: Agent = None,
    json: Json = False,
) -> None:
    """Passages, the newest first."""
    archive = _opened(ctx, agent)
    passages = archive.store.newest(archive.key, _wanted(tag, all_tags, since, until), limit)
    _show(passages, json)
    more = archive.counts().passages - len(passages)
    if len(passages) == limit and more > 0 and not json:
        sys.stderr.write(f"up to {more} more: --limit N, or letta archive search\n")


@app.command()
def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    tag: Tags = None,
    all_tags: AllTags = False,
    since: Since = "",
    until: Until = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many.")] = 10,
    agent: Agent = None,
    json: Json = False,
) -> None:
    """Passages that fit, the best first: by words and, where there are embeddings, by meaning."""
    archive = _opened(ctx, agent)
    found = asyncio.run(archive.search(query, _wanted(tag, all_tags, since, until), limit))
    _show(found.passages, json)
    if found.note:
        sys.stderr.write(f"{label(found.note)}\n")


@app.command()
def show(
    ctx: typer.Context,
    passage_id: Annotated[
        str, typer.Argument(metavar="ID", help="Which one; the beginning of its id is enough.")
    ],
    agent: Agent = None,
    json: Json = False,
) -> None:
    """One passage, whole."""
    from letta_code.archive.transfer import as_plain

    archive = _opened(ctx, agent)
    passage = archive.store.get(archive.key, passage_id)
    if json:
        as_json(as_plain(passage))
        return
    facts = [passage.id, local_time(passage.created_at), passage.source, passage.pointer]
    sys.stdout.write("  ".join(label(fact) for fact in facts if fact) + "\n")
    if passage.tags:
        sys.stdout.write(f"tags: {label(', '.join(passage.tags))}\n")
    sys.stdout.write(f"\n{visible(passage.text)}\n")


@app.command()
def insert(
    ctx: typer.Context,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The passage; without it, standard input.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", "-t", metavar="TAG", help="A tag. May be repeated.")
    ] = None,
    agent: Agent = None,
    allow_secret: AllowSecret = False,
    json: Json = False,
) -> None:
    """Keep a passage. The same text again only adds the tags."""
    from letta_code.archive.passages import new_passage

    refuse_agents(ctx.obj, "archival_memory_insert does it")
    if text is None:
        if sys.stdin.isatty():
            raise UsageError("what is to be kept?", "letta archive insert TEXT, or pipe it in")
        text = sys.stdin.read()
    passage = new_passage(text, tag or (), "user-stated")
    _insert(_opened(ctx, agent), [passage], allow_secret, json)


@app.command()
def delete(
    ctx: typer.Context,
    ids: Ids,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    agent: Agent = None,
) -> None:
    """Delete passages."""
    refuse_agents(ctx.obj, "ask the person to do it")
    archive = _opened(ctx, agent)
    passages = [archive.store.get(archive.key, given) for given in ids]
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"this deletes {len(passages)} passages", "add --yes to do it")
        _show(passages, False)
        typer.confirm("Delete them?", abort=True, err=True)
    for passage in passages:
        archive.store.delete(archive.key, passage.id)
        sys.stderr.write(f"deleted {passage.id}\n")


@app.command()
def export(
    ctx: typer.Context,
    target: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Where to; without it, standard output.")
    ] = None,
    agent: Agent = None,
) -> None:
    """Write all passages as JSON Lines, which import takes."""
    from letta_code.archive.passages import Wanted
    from letta_code.archive.transfer import lines
    from letta_code.storage import write_atomically

    if target is not None and target.exists():
        raise UsageError(f"{target} exists", "name another file, or move it away")
    archive = _opened(ctx, agent)
    passages = archive.store.newest(archive.key, Wanted())[::-1]
    text = "".join(lines(passages))
    if target is None:
        sys.stdout.write(text)
    else:
        write_atomically(target.absolute(), text.encode())
    sys.stderr.write(f"{len(passages)} passages\n")


@app.command("import")
def import_command(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What export wrote; - is standard input.")],
    agent: Agent = None,
    allow_secret: AllowSecret = False,
    json: Json = False,
) -> None:
    """Take passages from JSON Lines: all of them or, when a line is wrong, none. Done again, it adds
    nothing."""
    from letta_code.archive.transfer import read_lines

    refuse_agents(ctx.obj, "ask the person to do it")
    try:
        data = sys.stdin.buffer.read() if str(source) == "-" else source.read_bytes()
        passages = read_lines(data.decode("utf-8-sig").split("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{source} cannot be read: {error}") from error
    _insert(_opened(ctx, agent), passages, allow_secret, json)


@app.command()
def reindex(ctx: typer.Context, agent: Agent = None) -> None:
    """Give every passage a vector of the embedding model that is set now."""
    archive = _opened(ctx, agent)

    def progress(done: int, total: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{done} of {total}")

    made = asyncio.run(archive.embed_all(progress))
    name = "" if archive.embedder is None else archive.embedder.name
    sys.stderr.write(f"{made} passages got a vector of {label(name)}\n")


def _opened(ctx: typer.Context, agent: str | None) -> Archive:
    place: Place = ctx.obj
    state = whose(place, agent)
    return archive_of(place, place.settings(), state.key, lambda line: _complain(line))


def _complain(line: str) -> None:
    sys.stderr.write(f"letta: {label(line)}\n")


def _wanted(tags: list[str] | None, every: bool, since: str, until: str) -> Wanted:
    from letta_code.archive.passages import narrowed

    return narrowed(tags or (), every, since, until)


def _insert(archive: Archive, passages: list[Passage], allow_secret: bool, json: bool) -> None:
    from letta_code.archive.transfer import as_plain

    kept = asyncio.run(archive.insert(passages, allow_secrets=allow_secret))
    if json:
        as_json([as_plain(item.passage) | {"new": item.new} for item in kept.stored])
    else:
        _tell(kept.stored)
    if kept.note:
        _complain(f"search by meaning: {kept.note}")


def _tell(stored: Sequence[Stored]) -> None:
    if len(stored) == 1:
        (item,) = stored
        sys.stdout.write(f"{item.passage.id}\n")
        if not item.new:
            added = f"; added the tags {label(', '.join(item.added))}" if item.added else ""
            sys.stderr.write(f"it was there already{added}\n")
        return
    new = sum(item.new for item in stored)
    sys.stderr.write(f"{new} new, {len(stored) - new} were there already\n")


def _show(passages: Sequence[Passage], json: bool) -> None:
    from letta_code.archive.transfer import as_plain

    if json:
        as_json([as_plain(passage) for passage in passages])
        return
    table(
        [
            [
                passage.id[: len("passage-12345678")],
                local_time(passage.created_at),
                label(", ".join(passage.tags)),
                label(one_line(passage.text, 100)),
            ]
            for passage in passages
        ]
    )
