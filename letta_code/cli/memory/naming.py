"""What the words of a person mean in memory: files, revisions, times; and what the shell completes."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from letta_code.cli.place import Place
from letta_code.cli.show import label
from letta_code.errors import LettaError, MemoryStoreError, UsageError

if TYPE_CHECKING:
    from letta_code.memory.git.repository import MemoryRepository
    from letta_code.memory.snapshot import MemorySnapshot

_UNITS = {
    "minute": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "h": timedelta(hours=1),
    "day": timedelta(days=1),
    "d": timedelta(days=1),
    "week": timedelta(weeks=1),
    "w": timedelta(weeks=1),
    "month": timedelta(days=30),
    "mo": timedelta(days=30),
    "year": timedelta(days=365),
    "y": timedelta(days=365),
}
_AGO = re.compile(r"(\d{1,6}|an?)\s*([a-z]+?)s?(?:\s+ago)?\Z")
_COMPLETED = 200
"""Revisions and paths that the shell is offered at most."""


def moment(text: str, now: datetime) -> datetime:
    """The time that a person means: `2026-11-01`, `2026-11-01 14:30`, `2 weeks ago`, `3d`, `yesterday`,
    `today`. A month is 30 days, a year 365; a time without zone is in that of `now`.

    Raises:
        UsageError: it is none of these, or before the year 1.
    """
    words = " ".join(text.split()).lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if words in ("today", "yesterday"):
        return midnight - timedelta(days=words == "yesterday")
    match = _AGO.match(words)
    try:
        if match is not None and match[2] in _UNITS:
            return now - _UNITS[match[2]] * (int(match[1]) if match[1].isdigit() else 1)
        given = datetime.fromisoformat(words.upper())
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"no time I can read: {label(text)}",
            "say 2026-11-01, '2026-11-01 14:30', '2 weeks ago', 3d, 12h, yesterday",
        ) from error
    return given if given.tzinfo is not None else given.replace(tzinfo=now.tzinfo)


def file_named(
    repository: MemoryRepository, snapshot: MemorySnapshot, given: str, folders: bool = False
) -> str:
    """The file of `snapshot` that a person means: its path in memory with or without `.md`, or a path of
    the memory folder, absolute or from the current folder. With `folders` a folder too; "" is all.

    Raises:
        MemoryStoreError: there is none; near ones are named.
    """
    for path in candidates(repository, given):
        entry = snapshot.find(path) if path else None
        if folders and (not path or (entry is not None and entry.kind == "folder")):
            return path
        if entry is not None and entry.kind != "folder":
            return path
    raise unknown_path(snapshot, given)


def candidates(repository: MemoryRepository, given: str) -> list[str]:
    """What `given` may mean as a path of memory, the likeliest first."""
    found: list[str] = []
    root = repository.worktree.resolve()
    here = Path(os.path.normpath(Path.cwd() / given))
    inside = here.is_relative_to(root)
    below = here.relative_to(root).as_posix() if inside else ""
    if not os.path.isabs(given):
        plain = given.removeprefix("./").rstrip("/")
        found += [plain, plain + ".md"] if plain not in ("", ".") else [] if inside else [""]
    if inside:
        found += ["" if below == "." else below, below + ".md"]
    return list(dict.fromkeys(found))


def unknown_path(snapshot: MemorySnapshot, given: str, where: str = "") -> MemoryStoreError:
    """There is no such path: the error, with near names."""
    name = given.rstrip("/").rsplit("/", 1)[-1].removesuffix(".md").casefold()
    paths = list(snapshot.entries)
    inside = [path for path in paths if path.startswith(f"{given.rstrip('/')}/")]
    if inside:
        example = label(shlex.quote(inside[0]))
        return MemoryStoreError(
            f"{label(given)!r} is a folder of memory", f"name a file of it, such as {example}"
        )
    near = [path for path in paths if name and name in path.casefold()]
    near += difflib.get_close_matches(given.removesuffix(".md") + ".md", paths, n=3, cutoff=0.6)
    names = ", ".join(label(shlex.quote(path)) for path in list(dict.fromkeys(near))[:3])
    return MemoryStoreError(
        f"no file {label(given)!r} in memory{where or f' at {snapshot.revision[:10]}'}",
        f"did you mean {names}?" if names else "letta memory search TEXT finds files",
    )


def file_at(repository: MemoryRepository, given: str) -> tuple[str, str]:
    """Revision (full) and path that `[REV:]PATH` means; HEAD without REV.

    Raises:
        MemoryStoreError: no such revision, or no such file in it.
    """
    head = repository.snapshot()
    if ":" in given:
        before, _, after = given.partition(":")
        try:
            snapshot = repository.snapshot(before)
        except MemoryStoreError:
            # A file's name may hold a colon.
            if head.find(given) is None:
                raise
        else:
            return snapshot.revision, file_named(repository, snapshot, after)
    return head.revision, file_named(repository, head, given)


def complete_paths(ctx: typer.Context, incomplete: str) -> list[str]:
    """Files of the agent's memory, for the shell; nothing when they cannot be read."""
    repository = _memory(ctx)
    paths = repository.snapshot().entries if repository is not None else ()
    return [path for path in paths if path.startswith(incomplete)][:_COMPLETED]


def complete_revisions(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The latest commits with their reasons, for the shell; nothing when they cannot be read."""
    from letta_code.memory.git.log import log

    repository = _memory(ctx)
    commits = log(repository, _COMPLETED) if repository is not None else ()
    return [
        (commit.revision[:10], label(commit.reason.splitlines()[0] if commit.reason else ""))
        for commit in commits
        if commit.revision.startswith(incomplete)
    ]


def _memory(ctx: typer.Context) -> MemoryRepository | None:
    try:
        place = Place.find()
        return place.agents().memory(place.agent(ctx.params.get("agent")))
    except LettaError:
        return None


Revision: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="REV", autocompletion=complete_revisions, help="A commit: its id or the beginning, HEAD~1"
    ),
]
