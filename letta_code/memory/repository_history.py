"""Looking back: which commits there are, and what they changed. Nothing here writes."""

from __future__ import annotations

import re

import pygit2
from pygit2.enums import DiffOption, SortMode

from letta_code.memory.history import MemoryCommit
from letta_code.memory.repository import MemoryRepository

_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


def log(
    repository: MemoryRepository, limit: int = 50, path: str | None = None, revision: str | None = None
) -> tuple[MemoryCommit, ...]:
    """Commits from `revision` (HEAD when None) back, newest first; only those that changed the file or
    folder `path`, when given."""
    found: list[MemoryCommit] = []
    start = repository.commit_of(revision or repository.head())
    for commit in repository.git.walk(start.id, SortMode.TOPOLOGICAL | SortMode.TIME):
        if len(found) >= limit:
            break
        if path is None or _touches(repository, commit, path):
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


def _touches(repository: MemoryRepository, commit: pygit2.Commit, path: str) -> bool:
    def at(revision: str) -> str | None:
        entry = repository.snapshot(revision).find(path)
        return entry.id if entry is not None else None

    parents = [str(parent) for parent in commit.parent_ids]
    now = at(str(commit.id))
    return all(now != at(parent) for parent in parents) if parents else now is not None


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
