"""Reading Git objects by id, and building trees. Where libgit2 is told to ignore the outside world."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from operator import attrgetter
from typing import Literal, cast

import pygit2
from pygit2.enums import ConfigLevel, FileMode, ObjectType, Option

from letta_code.errors import MemoryStoreError
from letta_code.memory.blocks import Block, parse_block
from letta_code.memory.history import Author
from letta_code.memory.snapshot import Entry, MemorySnapshot

# Process-wide, and this package is the only user of libgit2: no global, XDG or system configuration (nor
# the attributes and ignore files next to it), and what is written is on the disk before we say so.
for _level in (ConfigLevel.PROGRAMDATA, ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL):
    pygit2.settings.search_path[_level] = ""
pygit2.option(Option.ENABLE_FSYNC_GITDIR, True)

_FOLDER, _EXECUTABLE = b"40000", b"100755"
_KINDS: dict[bytes, Literal["file", "folder", "other"]] = {
    _FOLDER: "folder",
    b"100644": "file",
    _EXECUTABLE: "file",
}
"""By the mode as a tree object writes it."""

_FIRST = int(datetime(2, 1, 1, tzinfo=UTC).timestamp())
_LAST = int(datetime(9998, 12, 31, tzinfo=UTC).timestamp())

_BACK = 1000
"""Commits that are looked through for the last readable version of a file."""


MANY = 64
"""From this many files on, one flush of the whole disk is cheaper than one for each file."""


@contextmanager
def written_together(count: int) -> Iterator[None]:
    """Write objects without waiting for the disk after each one, when there are many. Whoever then moves a
    ref to them calls `os.sync` before."""
    if count < MANY:
        yield
        return
    pygit2.option(Option.ENABLE_FSYNC_GITDIR, False)
    try:
        yield
    finally:
        pygit2.option(Option.ENABLE_FSYNC_GITDIR, True)


class GitObjects:
    """`snapshot.Objects` over one repository. Objects never change, so what was read is remembered."""

    def __init__(self, git: pygit2.Repository) -> None:
        self._git = git
        self.folder = lru_cache(maxsize=4096)(self._folder)
        self._counted = lru_cache(maxsize=4096)(self._count)
        self._parsed = lru_cache(maxsize=2048)(self._parse)

    def blob(self, id: str) -> bytes:
        """The content of a file."""
        try:
            kind, data = self._git.read(pygit2.Oid(hex=id))
        except (KeyError, pygit2.GitError) as error:
            raise _damaged(f"object {id[:12]}") from error
        if kind != ObjectType.BLOB:
            raise _damaged(f"object {id[:12]}")
        return data

    def block(self, path: str, id: str) -> Block:
        """The parsed file; a damaged object is a problem of that file."""
        return self._parsed(path, id)

    def versions(self, revision: str, path: str) -> Iterator[tuple[str, str]]:
        """Earlier contents of a file along first parents, newest first, at most `_BACK` commits back: the
        commit that held it last and the blob's id. A shallow history ends where it was cut."""
        commit, seen = cast("pygit2.Commit", self._git[revision]), self._at(revision, path)
        for _ in range(_BACK):
            if not commit.parent_ids or commit.parent_ids[0] not in self._git:
                return
            commit = cast("pygit2.Commit", self._git[commit.parent_ids[0]])
            blob = self._at(str(commit.id), path)
            if blob is not None and blob != seen:
                yield str(commit.id), blob
            seen = blob

    def _at(self, revision: str, path: str) -> str | None:
        tree = str(cast("pygit2.Commit", self._git[revision]).tree_id)
        entry = MemorySnapshot(revision, tree, self).find(path)
        return entry.id if entry is not None and entry.kind == "file" else None

    def _parse(self, path: str, id: str) -> Block:
        return parse_block(path, self.blob(id), id)

    def names(self, id: str) -> int:
        """How many entries a tree has."""
        return self._counted(id)[0]

    def files_below(self, id: str) -> int:
        """How many files a tree holds, all levels."""
        files, folders = self._counted(id)[1:]
        return files + sum(map(self.files_below, folders))

    def _folder(self, id: str) -> tuple[Entry, ...]:
        entries = [
            Entry(
                name.decode("utf-8", "surrogateescape"),
                _KINDS.get(mode, "other"),
                blob.hex(),
                mode == _EXECUTABLE,
            )
            for mode, name, blob in _entries(len(id) // 2).findall(self._raw(id))
        ]
        return tuple(sorted(entries, key=_name))

    def _count(self, id: str) -> tuple[int, int, tuple[str, ...]]:
        """How many entries a tree has, how many of them are files or links, and its folders."""
        size = len(id) // 2
        entries = _whole_entries(size).findall(self._raw(id))
        folders = tuple(entry[-size:].hex() for entry in entries if entry.startswith(_FOLDER))
        return len(entries), len(entries) - len(folders), folders

    def _raw(self, id: str) -> bytes:
        """A tree object. Parsed here: a tree of 5,000 names takes libgit2's Python objects four times as
        long."""
        try:
            kind, data = self._git.read(pygit2.Oid(hex=id))
        except (KeyError, pygit2.GitError) as error:
            raise _damaged(f"folder {id[:12]}") from error
        if kind != ObjectType.TREE:
            raise _damaged(f"folder {id[:12]}")
        return data


@lru_cache
def _entries(size: int) -> re.Pattern[bytes]:
    """Matches one entry of a raw tree object whose ids have `size` bytes."""
    return re.compile(rb"([0-7]+) ([^\0]+)\0(.{%d})" % size, re.DOTALL)


@lru_cache
def _whole_entries(size: int) -> re.Pattern[bytes]:
    """Like `_entries`, without parts."""
    return re.compile(rb"[0-7]+ [^\0]+\0.{%d}" % size, re.DOTALL)


_name = attrgetter("name")


def _damaged(what: str) -> MemoryStoreError:
    return MemoryStoreError(
        f"memory is damaged: {what} cannot be read",
        "run `git fsck` in the memory folder; restore repo.git from a copy or a remote",
    )


def tree_with(git: pygit2.Repository, tree: str | None, changes: Mapping[str, tuple[str, int] | None]) -> str:
    """A tree (id) like `tree` in which `changes` (path to blob id and mode, None deletes) are made; only
    folders on the way are rebuilt, empty ones vanish."""
    builder = git.TreeBuilder(tree) if tree is not None else git.TreeBuilder()
    below: dict[str, dict[str, tuple[str, int] | None]] = {}
    # Deletions first: a file may make room for a folder of its name, or the reverse.
    for path, change in sorted(changes.items(), key=lambda item: item[1] is not None):
        name, slash, rest = path.partition("/")
        if slash:
            below.setdefault(name, {})[rest] = change
        elif change is None:
            if builder.get(name) is not None:
                builder.remove(name)
        else:
            builder.insert(name, pygit2.Oid(hex=change[0]), change[1])
    for name, inner in below.items():
        old = builder.get(name)
        folder = str(old.id) if old is not None and old.filemode == FileMode.TREE else None
        made = tree_with(git, folder, inner)
        if len(cast("pygit2.Tree", git[made])):
            builder.insert(name, pygit2.Oid(hex=made), FileMode.TREE)
        elif folder is not None:
            builder.remove(name)
    return str(builder.write())


def signature(author: Author) -> pygit2.Signature:
    """`author` now, in UTC, as Git can store it."""
    name = "".join(char for char in author.name if char.isprintable() and char not in "<>").strip()
    email = "".join(char for char in author.email if char.isprintable() and char not in "<> ")
    clean = name.encode("utf-8", "replace").decode("utf-8")
    return pygit2.Signature(
        clean or "agent", email or "agent@letta.invalid", int(datetime.now().timestamp()), 0
    )


def when(stamp: pygit2.Signature) -> str:
    """The time of a signature in ISO 8601; one outside the years 2 to 9998 is moved there."""
    zone = timezone(timedelta(minutes=stamp.offset))
    return datetime.fromtimestamp(min(max(stamp.time, _FIRST), _LAST), zone).isoformat()
