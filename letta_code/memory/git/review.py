"""Memories that the person did not state, and what the person said about them.

A committed one is confirmed by an empty commit that names it (`Letta-Confirms`) and dropped by a commit
that undoes it (`Letta-Drops`): commits, since they travel with memory where notes would stay behind. One
that is held lies as a commit on a branch of its own, `review/<id>`, on the revision that the agent knew;
confirmed, it is applied to memory as Git merges; dropped, its branch is deleted. `Letta-Reviewed` marks what
a person accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pygit2
from pygit2.enums import SortMode

from letta_code.errors import MemoryConflict, MemoryEditError, MemoryStoreError
from letta_code.memory.edits import Edit
from letta_code.memory.git.locks import disk_may_refuse
from letta_code.memory.git.objects import signature, tree_with
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.git.worktree import mode_of
from letta_code.memory.history import Author, MemoryCommit, Provenance, commit_message, read_message
from letta_code.memory.rules import AGENT, PERSON, check
from letta_code.memory.snapshot import MemorySnapshot, SnapshotFiles, changed_paths

BRANCHES = "refs/heads/review/"
"""Where commits that wait lie. `git branch --list 'review/*'` shows them."""

_STATED = frozenset({"", "user-stated"})
_VERDICT = re.compile(r"^(?:Letta-(?:Confirms|Drops): |This reverts commit )([0-9a-f]{40})\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pending:
    """A memory that waits for the person's word. `held`: it is on a branch of its own, not in memory."""

    commit: MemoryCommit
    held: bool

    @property
    def source(self) -> str:
        """Where the agent says it comes from."""
        return self.commit.trailers.get("Letta-Source", "")


def changes_of(
    repository: MemoryRepository, edit: Edit, revision: str | None = None
) -> Mapping[str, bytes | None]:
    """What `edit` would make of memory (as it is at `revision`): new content by path.

    Raises:
        MemoryEditError: it does not fit, or would change nothing.
    """
    files = SnapshotFiles(repository.snapshot(revision))
    changes = {path: data for path, data in edit.apply(files).items() if files.get(path) != data}
    if not changes:
        raise MemoryEditError("nothing would change: memory already says this")
    return changes


def hold(
    repository: MemoryRepository,
    edit: Edit,
    reason: str,
    author: Author,
    provenance: Provenance,
    expected: str | None = None,
) -> MemoryCommit:
    """Commit an edit to a branch of its own, on the revision it was made from; memory does not change.

    Raises:
        MemoryEditError: it does not fit, breaks a rule or would change nothing.
        MemoryStoreError: the disk refuses.
    """
    base = repository.snapshot(expected)
    changes = changes_of(repository, edit, base.revision)
    check(SnapshotFiles(base), changes, AGENT)
    git, who, message = repository.git, signature(author), commit_message(reason, provenance)
    with disk_may_refuse():
        blobs = {
            path: None if data is None else (str(git.create_blob(data)), _mode(base, path))
            for path, data in changes.items()
        }
        tree = pygit2.Oid(hex=tree_with(git, base.root, blobs))
        made = git.create_commit(None, who, who, message, tree, [pygit2.Oid(hex=base.revision)])
        git.references.create(f"{BRANCHES}{str(made)[:10]}", made, force=True)
    return repository.describe(str(made))


def pending(repository: MemoryRepository, limit: int | None = None) -> tuple[Pending, ...]:
    """What waits: held memories first, then committed ones, newest first; at most `limit` committed ones."""
    waiting = [Pending(repository.describe(revision), True) for revision in _held(repository)]
    for revision in _undecided(repository):
        if limit is not None and limit <= sum(not item.held for item in waiting):
            break
        waiting.append(Pending(repository.describe(revision), False))
    return tuple(waiting)


def count_pending(repository: MemoryRepository) -> tuple[int, int]:
    """How many memories are held, and how many committed ones wait."""
    return len(_held(repository)), sum(1 for _ in _undecided(repository))


def count_held(repository: MemoryRepository) -> int:
    """How many memories are held; a look at the branches only."""
    return len(_held(repository))


def confirm(
    repository: MemoryRepository, items: Sequence[Pending], author: Author
) -> tuple[MemoryCommit, ...]:
    """The person accepts `items`: held ones come into memory, each by its own commit; the others are named
    in one commit.

    Raises:
        MemoryConflict: a held one and memory changed the same text (the paths are named). Those before it
            are confirmed.
        MemoryEditError: a held one breaks a rule by now.
    """
    made = [_apply(repository, item.commit) for item in items if item.held]
    committed = [item.commit for item in items if not item.held]
    if committed:
        marks = "".join(f"Letta-Confirms: {commit.revision}\n" for commit in committed)
        what = committed[0].reason.splitlines()[0] if len(committed) == 1 else f"{len(committed)} memories"
        with repository.engine.writing() as head:
            now = repository.engine.snapshot(head)
            message = f"{commit_message(f'Confirm: {what}', None)}\n{marks}"
            made.append(repository.describe(repository.engine.land(now, now.root, message, author)))
    return tuple(made)


def drop(repository: MemoryRepository, item: Pending, author: Author) -> MemoryCommit:
    """The person rejects `item`: a held one loses its branch (its commit, which is returned, stays readable
    by its id until Git collects garbage), a committed one is undone by a new commit, which is returned.

    Raises:
        MemoryStoreError: later commits changed the same text (the paths are named). Nothing was changed.
    """
    if item.held:
        _delete_branch(repository, item.commit)
        return item.commit
    git = repository.git
    commit = cast("pygit2.Commit", git[item.commit.revision])
    title = item.commit.reason.splitlines()[0]
    with repository.engine.writing() as head:
        now = repository.engine.snapshot(head)
        if len(commit.parents) != 1:
            raise MemoryStoreError(f"{item.commit.revision[:7]} is not one change", "edit the files instead")
        index = git.revert_commit(commit, cast("pygit2.Commit", git[head]))
        tree = _merged(git, index, f"cannot drop {item.commit.revision[:7]}")
        message = f"{commit_message(f'Drop: {title}', None)}\nLetta-Drops: {item.commit.revision}\n"
        made = repository.engine.land(now, tree, message, author)
    return repository.describe(made)


def _apply(repository: MemoryRepository, held: MemoryCommit) -> MemoryCommit:
    """A held commit on memory as it is now, by its own author and with its own trailers."""
    git = repository.git
    with repository.engine.writing() as head:
        now = repository.engine.snapshot(head)
        base, theirs = repository.snapshot(held.parent), repository.snapshot(held.revision)
        sides = [pygit2.Oid(hex=side.root) for side in (base, now, theirs)]
        index = git.merge_trees(sides[0], sides[1], sides[2])
        tree = _merged(git, index, f"cannot confirm {held.revision[:7]}")
        merged = MemorySnapshot("", tree, repository.objects)
        changes = {
            path: merged.objects.blob(entry.id) if (entry := merged.find(path)) is not None else None
            for path in changed_paths(repository.objects, now.root, tree)
        }
        check(SnapshotFiles(now), changes, PERSON)
        reason, trailers = read_message(cast("pygit2.Commit", git[held.revision]).message)
        lines = "".join(f"{name}: {value}\n" for name, value in trailers.items())
        message = f"{commit_message(reason, None)}\n{lines}Letta-Reviewed: person\n"
        author = Author(held.author_name, held.author_email)
        made = repository.engine.land(now, tree, message, author)
    _delete_branch(repository, held)
    return repository.describe(made)


def _merged(git: pygit2.Repository, index: pygit2.Index, what: str) -> str:
    if index.conflicts is not None:
        paths = sorted({side.path for sides in index.conflicts for side in sides if side is not None})
        raise MemoryConflict(
            f"{what}: later commits changed the same text of {', '.join(paths)}",
            "look at both with letta memory show, and edit the file instead (letta memory edit)",
        )
    return str(index.write_tree(git))


def _held(repository: MemoryRepository) -> list[str]:
    """Ids of the commits on review branches, by branch name."""
    names = sorted(name for name in repository.git.references if name.startswith(BRANCHES))
    return [str(repository.git.references[name].target) for name in names]


def _undecided(repository: MemoryRepository) -> Iterator[str]:
    """Ids of commits in memory that the person neither stated nor judged, newest first."""
    decided: set[str] = set()
    start = pygit2.Oid(hex=repository.head())
    for commit in repository.git.walk(start, SortMode.TOPOLOGICAL | SortMode.TIME):
        message = commit.message
        source, reviewed = "", False
        if "\nLetta-Source: " in message:
            trailers = read_message(message)[1]
            source, reviewed = trailers.get("Letta-Source", ""), "Letta-Reviewed" in trailers
        if source in _STATED:
            decided.update(_VERDICT.findall(message))
        elif not reviewed and str(commit.id) not in decided:
            yield str(commit.id)


def _delete_branch(repository: MemoryRepository, held: MemoryCommit) -> None:
    for name in [name for name in repository.git.references if name.startswith(BRANCHES)]:
        if str(repository.git.references[name].target) == held.revision:
            repository.git.references.delete(name)


def _mode(snapshot: MemorySnapshot, path: str) -> int:
    entry = snapshot.find(path)
    return mode_of(entry is not None and entry.executable)
