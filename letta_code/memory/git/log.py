"""Looking back: which commits there are, and what they changed. Nothing here writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

import pygit2
from pygit2.enums import DeltaStatus, DiffOption, SortMode

from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.history import MemoryCommit

_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


def log(
    repository: MemoryRepository,
    limit: int = 50,
    path: str | None = None,
    revision: str | None = None,
    since: datetime | None = None,
    author: str | None = None,
) -> tuple[MemoryCommit, ...]:
    """Commits from `revision` (HEAD when None) back, newest first.

    With `path` only those that changed this file or folder; a file is followed through renames. With
    `since` (aware) only those authored then or later; with `author` only those whose author's name or
    address holds it, in any case.

    Raises:
        MemoryStoreError: no such revision.
    """
    found: list[MemoryCommit] = []
    start = repository.commit_of(revision or repository.head())
    wanted = author.casefold() if author is not None else ""
    for commit in (
        _touching(repository.git, start, path) if path is not None else _walk(repository.git, start)
    ):
        if len(found) >= limit:
            break
        who = commit.author
        if since is not None and who.time < since.timestamp():
            continue
        if wanted in f"{who.name} <{who.email}>".casefold():
            found.append(repository.described(commit))
    return tuple(found)


def diff(repository: MemoryRepository, old: str, new: str | None = None) -> str:
    """Unified diff between two commits, or from a commit to the work tree (untracked files too).
    Bytes that are not UTF-8 appear as U+FFFD."""
    before = repository.commit_of(old).tree
    if new is not None:
        return _patch(before.diff_to_tree(repository.commit_of(new).tree))
    flags = (
        DiffOption.INCLUDE_UNTRACKED | DiffOption.SHOW_UNTRACKED_CONTENT | DiffOption.RECURSE_UNTRACKED_DIRS
    )
    return _patch(before.diff_to_workdir(flags))


def diff_of(repository: MemoryRepository, revision: str) -> str:
    """Unified diff of what one commit changed, against its first parent; all it holds for the first."""
    commit = repository.commit_of(revision)
    if commit.parents:
        return _patch(commit.parents[0].tree.diff_to_tree(commit.tree))
    return _patch(commit.tree.diff_to_tree(swap=True))


def id_at(commit: pygit2.Commit, path: str) -> pygit2.Oid | None:
    """The object at `path` in a commit, for the modules `memory/git/`."""
    try:
        return commit.tree[path].id
    except KeyError:
        return None


def name_before(commit: pygit2.Commit, parent: pygit2.Commit, path: str) -> str | None:
    """The file of `parent` that `commit` renamed to `path`, when its text is the same or alike (half of it
    or more); for the modules `memory/git/`."""
    changes = parent.tree.diff_to_tree(commit.tree)
    changes.find_similar()
    for delta in changes.deltas:
        if delta.status == DeltaStatus.RENAMED and delta.new_file.path == path:
            return delta.old_file.path
    return None


def _walk(git: pygit2.Repository, start: pygit2.Commit) -> Iterator[pygit2.Commit]:
    # libgit2's "none" is the order of `git log`: the latest of the commits whose child was shown. Every other
    # mode reads all commits before the first is known.
    return iter(git.walk(start.id, SortMode.NONE))


def _touching(git: pygit2.Repository, start: pygit2.Commit, path: str) -> Iterator[pygit2.Commit]:
    """The commits that changed `path`; of merges, those whose version no parent has."""
    names = {start.id: path}
    known: dict[tuple[pygit2.Oid, str], pygit2.Oid | None] = {}

    def at(commit: pygit2.Commit, name: str) -> pygit2.Oid | None:
        key = (commit.tree_id, name)
        if key not in known:
            known[key] = id_at(commit, name)
        return known[key]

    for commit in _walk(git, start):
        name = names.pop(commit.id, path)
        parents = commit.parents
        here = at(commit, name)
        before = [at(parent, name) for parent in parents]
        if here not in before if parents else here is not None:
            yield commit
        for parent, was in zip(parents, before, strict=True):
            renamed = name_before(commit, parent, name) if was is None and here is not None else None
            names.setdefault(parent.id, renamed or name)


def _patch(diff: pygit2.Diff) -> str:
    texts = (patch.data.decode("utf-8", "replace") for patch in diff if patch is not None)
    return "".join(_readable_names(text) for text in texts)


def _readable_names(patch: str) -> str:
    """`patch` with the names in its header as they are, where libgit2 wrote them in octal."""
    header, mark, hunks = patch.partition("\n@@ ")
    return _QUOTED.sub(_unquoted, header) + mark + hunks


def _unquoted(match: re.Match[str]) -> str:
    data = _OCTAL.sub(lambda m: bytes([int(m[1], 8)]), match[1].encode("utf-8"))
    name = data.decode("utf-8", "replace")
    return name if name.isprintable() and "\\" not in name else match[0]
