"""Finding words in memory: in all files as they are, and in everything that they ever said."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import cast

import pygit2
from pygit2.enums import FileMode, SortMode

from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.history import Hit, MemoryCommit, Passage

_FILES = (FileMode.BLOB, FileMode.BLOB_EXECUTABLE)

Line = tuple[str, str]
"""Path and text."""


def search(repository: MemoryRepository, text: str, revision: str | None = None) -> tuple[Hit, ...]:
    """Every line, front matter included, and every name that holds `text` at `revision` (HEAD when None),
    by path. Case and Unicode form do not matter. In files that are not text only names are looked at."""
    snapshot = repository.snapshot(revision)
    wanted = _folded(text)
    hits: list[Hit] = []
    for path, blob in snapshot.entries.items():
        if wanted in _folded(path):
            hits.append(Hit(path, 0, path))
        hits += [Hit(path, number, line) for number, line in _matches(repository.objects.blob(blob), wanted)]
    return tuple(hits)


def search_history(repository: MemoryRepository, text: str) -> tuple[Passage, ...]:
    """Every line that ever held `text` in a file up to HEAD, with the commit that brought it and the one
    that took it away (a renamed file takes it along: away there, new here); the latest first."""
    git = repository.git
    wanted = _folded(text)
    found: list[tuple[Line, pygit2.Commit, list[pygit2.Commit]]] = []
    present: dict[Line, list[list[pygit2.Commit]]] = {}

    @lru_cache(maxsize=4096)
    def lines(blob: pygit2.Oid | None) -> Counter[str]:
        data = cast("pygit2.Blob", git[blob]).data if blob is not None else b""
        return Counter(line for _, line in _matches(data, wanted))

    order = SortMode.TOPOLOGICAL | SortMode.TIME | SortMode.REVERSE
    for commit in git.walk(repository.commit_of(repository.head()).id, order):
        for path, before, after in _changed_files(commit):
            olds, new = [lines(blob) for blob in before], lines(after)
            if not new and not any(olds):
                continue
            most, least = Counter(olds[0]), Counter(olds[0])
            for old in olds[1:]:
                most, least = most | old, least & old
            for line in (new - most).elements():
                gone: list[pygit2.Commit] = []
                found.append(((path, line), commit, gone))
                present.setdefault((path, line), []).append(gone)
            for line in (least - new).elements():
                if present.get((path, line)):
                    present[path, line].pop().append(commit)
    told: dict[pygit2.Oid, MemoryCommit] = {}

    def described(commit: pygit2.Commit) -> MemoryCommit:
        if commit.id not in told:
            told[commit.id] = repository.described(commit)
        return told[commit.id]

    return tuple(
        Passage(path, line, described(added), described(gone[0]) if gone else None)
        for (path, line), added, gone in reversed(found)
    )


def _changed_files(
    commit: pygit2.Commit,
) -> Iterator[tuple[str, list[pygit2.Oid | None], pygit2.Oid | None]]:
    """Files of which no parent has the same version: path, the versions of the parents, the new one."""
    parents = commit.parents
    if not parents:
        changes = [commit.tree.diff_to_tree(swap=True)]
    else:
        changes = [parent.tree.diff_to_tree(commit.tree) for parent in parents]
    versions: dict[str, tuple[list[pygit2.Oid | None], pygit2.Oid | None]] = {}
    for change in changes:
        for delta in change.deltas:
            old = delta.old_file.id if delta.old_file.mode in _FILES else None
            new = delta.new_file.id if delta.new_file.mode in _FILES else None
            versions.setdefault(delta.new_file.path, ([], new))[0].append(old)
    for path, (before, after) in versions.items():
        if len(before) == len(changes):
            yield path, before, after


def _matches(data: bytes, wanted: str) -> Iterator[tuple[int, str]]:
    """Number, from 1, and text of the lines that hold `wanted` (folded)."""
    if b"\0" in data:
        return
    text = data.decode("utf-8", "replace")
    if wanted not in _folded(text):
        return
    for number, line in enumerate(text.split("\n"), 1):
        if wanted in _folded(line):
            yield number, line.rstrip("\r")


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return folded.replace("i\u0307", "i")  # a capital I with a dot is an i too
