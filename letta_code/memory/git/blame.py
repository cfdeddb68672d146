"""Which commit each line of a memory file comes from.

Only commits that changed the file are compared line by line; in all others the ids of the folders on its
way say that it is the same. The result is that of `git blame`, whole-file renames followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import cast

import pygit2
from pygit2.enums import DiffOption

from letta_code.errors import MemoryStoreError
from letta_code.memory.git.log import id_at, name_before
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.history import BlamedLine, MemoryCommit


@dataclass(frozen=True, slots=True)
class _Run:
    """Lines `here` … of a commit's version that are the lines `final` … asked for; both from 0."""

    here: int
    final: int
    count: int


@dataclass(frozen=True, slots=True)
class _Origin:
    """A parent's version of a file."""

    commit: pygit2.Commit
    path: str
    blob: pygit2.Oid


Runs = list[_Run]


def blame(repository: MemoryRepository, path: str, revision: str | None = None) -> tuple[BlamedLine, ...]:
    """Every line of a file at `revision` (HEAD when None), with the commit that wrote it.

    Raises:
        MemoryStoreError: no such revision, or no such file there.
    """
    start = repository.commit_of(revision or repository.head())
    data = repository.read(str(start.id), path)
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    found: list[tuple[pygit2.Commit, str, int] | None] = [None] * len(lines)
    for commit, name, runs in _guilty(repository.git, start, path, len(lines)):
        for run in runs:
            for n in range(run.count):
                found[run.final + n] = (commit, name, run.here + n)
    described: dict[pygit2.Oid, MemoryCommit] = {}
    blamed: list[BlamedLine] = []
    for number, (line, origin) in enumerate(zip(lines, found, strict=True), 1):
        if origin is None:
            raise MemoryStoreError(f"memory is damaged: the history of {path} has an end too early")
        commit, name, at = origin
        made = described.get(commit.id) or repository.described(commit)
        described[commit.id] = made
        blamed.append(BlamedLine(number, line.decode("utf-8", "replace"), made, name, at + 1))
    return tuple(blamed)


def _guilty(
    git: pygit2.Repository, start: pygit2.Commit, path: str, lines: int
) -> Iterator[tuple[pygit2.Commit, str, Runs]]:
    """Commits, newest first, with the name of the file there and the lines that they wrote."""
    commits = {start.id: start}
    pending: dict[pygit2.Oid, dict[str, Runs]] = {start.id: {path: [_Run(0, 0, lines)] if lines else []}}
    heap = [(-start.commit_time, 0, start.id)]
    count = 0
    while heap:
        commit = commits[heappop(heap)[2]]
        for name, runs in pending.pop(commit.id, {}).items():
            for origin, passed in _passed_on(git, commit, name, runs):
                names = pending.get(origin.commit.id)
                if names is None:
                    names = pending[origin.commit.id] = {}
                    commits[origin.commit.id] = origin.commit
                    count += 1
                    heappush(heap, (-origin.commit.commit_time, count, origin.commit.id))
                if origin.path in names:  # through another child
                    passed = sorted([*names[origin.path], *passed], key=lambda run: run.here)
                names[origin.path] = passed
            if runs:
                yield commit, name, runs


def _passed_on(
    git: pygit2.Repository, commit: pygit2.Commit, name: str, runs: Runs
) -> Iterator[tuple[_Origin, Runs]]:
    """What parents are answerable for; `runs` keeps the rest."""
    blob = id_at(commit, name)
    assert blob is not None
    origins = _origins(commit, name, blob)
    for origin in origins:
        if not runs:
            return
        if origin.blob == blob:
            passed, runs[:] = list(runs), []
        else:
            passed, kept = _split(runs, _unchanged(git, origin.blob, blob))
            runs[:] = kept
        if passed:
            yield origin, passed


def _origins(commit: pygit2.Commit, name: str, blob: pygit2.Oid) -> list[_Origin]:
    """The versions of the parents; one that is the same answers for everything."""
    origins: list[_Origin] = []
    parents = commit.parents
    missing = []
    for parent in parents:
        there = id_at(parent, name)
        if there == blob:
            return [_Origin(parent, name, blob)]
        if there is None:
            missing.append(parent)
        else:
            origins.append(_Origin(parent, name, there))
    for parent in missing:
        before = name_before(commit, parent, name)
        there = id_at(parent, before) if before is not None else None
        if before is not None and there is not None:
            if there == blob:
                return [_Origin(parent, before, blob)]
            origins.append(_Origin(parent, before, there))
    return sorted(origins, key=lambda origin: parents.index(origin.commit))


def _unchanged(git: pygit2.Repository, old: pygit2.Oid, new: pygit2.Oid) -> Iterator[tuple[int, int, int]]:
    """Passages that two versions share: start and end in the new one, start in the old one; from 0. The
    last has no end (-1)."""
    patch = pygit2.Patch.create_from(
        cast("pygit2.Blob", git[old]),
        cast("pygit2.Blob", git[new]),
        flag=DiffOption.FORCE_TEXT | DiffOption.INDENT_HEURISTIC,
        context_lines=0,
    )
    at_new = at_old = 0
    for hunk in patch.hunks:
        # An empty side names the line before it.
        new_start = hunk.new_start - 1 if hunk.new_lines else hunk.new_start
        old_start = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
        yield at_new, new_start, at_old
        at_new, at_old = new_start + hunk.new_lines, old_start + hunk.old_lines
    yield at_new, -1, at_old


def _split(runs: Runs, shared: Iterator[tuple[int, int, int]]) -> tuple[Runs, Runs]:
    """Of `runs` (by `here`) what lies in shared passages, as lines of the old version; and the rest."""
    passed: Runs = []
    kept: Runs = []
    start, end, old = next(shared)
    for run in runs:
        at, stop = run.here, run.here + run.count
        while at < stop:
            while end != -1 and end <= at:
                start, end, old = next(shared)
            if at < start:
                upto = min(start, stop)
                kept.append(_Run(at, run.final + at - run.here, upto - at))
            else:
                upto = stop if end == -1 else min(end, stop)
                passed.append(_Run(old + at - start, run.final + at - run.here, upto - at))
            at = upto
    return passed, kept
