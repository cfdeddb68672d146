"""Going back: undo one commit, or bring files back as they were. Always by a new commit, or not at all."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

import pygit2

from letta_code.errors import MemoryEditError, MemoryStoreError
from letta_code.memory.git.log import log
from letta_code.memory.git.objects import tree_with
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.git.worktree import mode_of
from letta_code.memory.history import Author, Effect, MemoryCommit, Provenance, commit_message
from letta_code.memory.rules import AGENT, Overrides, check
from letta_code.memory.secrets import refuse_secret
from letta_code.memory.snapshot import Entry, MemorySnapshot, SnapshotFiles, changed_paths

_NAMED = 3
"""Later commits that are named for one path."""


def revert(
    repository: MemoryRepository,
    revision: str,
    author: Author,
    provenance: Provenance | None = None,
    overrides: Overrides = AGENT,
) -> MemoryCommit:
    """Undo one commit by a new one. Drafts of other files are kept.

    Raises:
        MemoryStoreError: later commits changed the same text (paths and commits are named), it is the first
            commit or a merge, or undoing it changes nothing.
        MemoryEditError: the result breaks a rule, or a file has a draft. In every case nothing was changed.
    """
    git, commit = repository.git, repository.commit_of(revision)
    short = str(commit.id)[:10]
    if not commit.parents:
        raise MemoryStoreError(
            f"{short} is the first commit: there is nothing before it to go back to",
            "letta memory edit PATH changes a file; plain git in the memory folder removes one",
        )
    if len(commit.parents) > 1:
        raise MemoryStoreError(
            f"{short} is a merge: it cannot be undone as one change",
            f"revert the commits it brought (letta memory log {short}), "
            f"or restore files: letta memory restore PATH --from {short}~1",
        )
    title = commit.message.strip().split("\n", 1)[0]
    message = commit_message(f'Revert "{title}"\n\nThis reverts commit {commit.id}.', provenance)
    with repository.engine.writing() as head:
        now = repository.snapshot(str(head))
        index = git.revert_commit(commit, repository.commit_of(str(head)))
        if index.conflicts is not None:
            paths = sorted({e.path for sides in index.conflicts for e in sides if e is not None})
            raise MemoryStoreError(*_in_the_way(repository, str(commit.id), paths))
        tree = str(index.write_tree(git))
        changed = changed_paths(repository.objects, now.root, tree)
        if not changed:
            raise MemoryStoreError(f"nothing to revert: memory no longer holds what {short} did")
        after = MemorySnapshot("", tree, repository.objects)
        check(SnapshotFiles(now), {path: _bytes(after, path) for path in changed}, overrides)
        made = repository.engine.land(now, tree, message, author)
    return repository.describe(made)


@dataclass(frozen=True, slots=True)
class Restoring:
    """What it would mean to bring `path` back as it was in `revision`: the effect on each file, by path."""

    path: str
    revision: str
    effects: tuple[Effect, ...]

    @property
    def blocked(self) -> tuple[str, ...]:
        """Files whose drafts are in the way."""
        return tuple(effect.path for effect in self.effects if effect.what == "blocked")

    @property
    def changes(self) -> bool:
        """Whether any committed file would change."""
        return any(effect.what != "kept" for effect in self.effects)


def restoring(repository: MemoryRepository, path: str, revision: str) -> Restoring:
    """Look what `restore` would do; nothing is changed. `path` "" is all of memory.

    Raises:
        MemoryStoreError: no such revision, or no such file or folder in it.
    """
    now, was = repository.snapshot(), repository.snapshot(revision)
    changes = _changes(now, was, path)
    drafts = {draft.path for draft in repository.status()}
    effects = []
    for name, entry in changes.items():
        if any(_same_place(name, draft) for draft in drafts):
            effects.append(Effect(name, "blocked"))
        elif entry is None:
            effects.append(Effect(name, "removed"))
        else:
            effects.append(Effect(name, "changed" if now.find(name) is not None else "brought back"))
    inside = [name for name in drafts if not path or name == path or name.startswith(path + "/")]
    effects += [Effect(name, "kept") for name in inside if name not in changes]
    return Restoring(path, was.revision, tuple(sorted(effects, key=lambda effect: effect.path)))


def restore(
    repository: MemoryRepository,
    path: str,
    revision: str,
    reason: str,
    author: Author,
    provenance: Provenance | None = None,
    overrides: Overrides = AGENT,
) -> MemoryCommit:
    """Bring a file or folder back as it was in `revision`, by a new commit: files of the folder that came
    later are removed from memory and stay in its history. Drafts and files that were never committed are
    not touched.

    Raises:
        MemoryStoreError: no such revision, or no such file or folder in it; or nothing would change.
        MemoryEditError: a draft is in the way, or what is brought back breaks a rule. In every case nothing
            was changed.
    """
    git = repository.git
    refuse_secret("the reason", reason, overrides)
    message = commit_message(reason, provenance)
    was = repository.snapshot(revision)
    with repository.engine.writing() as head:
        now = repository.snapshot(str(head))
        changes = _changes(now, was, path)
        if not changes:
            raise MemoryEditError(f"{path or 'memory'} is as it was in {was.revision[:10]}")
        data = {name: None if entry is None else _bytes(was, name) for name, entry in changes.items()}
        check(SnapshotFiles(now), data, overrides)
        tree = tree_with(git, now.root, {name: _change(entry) for name, entry in changes.items()})
        made = repository.engine.land(now, tree, message, author)
    return repository.describe(made)


def has_draft(repository: MemoryRepository, path: str) -> bool:
    """Whether the work tree holds something else at `path` than HEAD."""
    entry = repository.snapshot().find(path)
    file = repository.worktree / path
    if entry is None or not os.path.lexists(file):
        return entry is not None or os.path.lexists(file)
    return not file.is_file() or file.is_symlink() or str(pygit2.hash(file.read_bytes())) != entry.id


def _changes(now: MemorySnapshot, was: MemorySnapshot, path: str) -> dict[str, Entry | None]:
    """What makes `path` of `now` as it is in `was`, by file; None deletes. Links and submodules stay."""
    before, after = _files(now, path), _files(was, path)
    if not after:
        raise MemoryStoreError(
            f"there is no {path!r} in {was.revision[:10]}",
            f"letta memory log {shlex.quote(path)} lists the commits that changed it",
        )
    names = sorted(before.keys() | after.keys())
    return {name: after.get(name) for name in names if before.get(name) != after.get(name)}


def _files(snapshot: MemorySnapshot, path: str) -> Mapping[str, Entry]:
    root = Entry("", "folder", snapshot.root) if not path else snapshot.find(path)
    if root is None or root.kind == "other":
        return {}
    if root.kind == "file":
        return {path: root}
    prefix = f"{path}/" if path else ""
    return {name: entry for name, entry in snapshot.walk(root.id, prefix) if entry.kind == "file"}


def _same_place(one: str, other: str) -> bool:
    """Whether two files cannot both be there: the same name, or a file and what lies in a folder so named."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _change(entry: Entry | None) -> tuple[str, int] | None:
    return (entry.id, mode_of(entry.executable)) if entry is not None else None


def _bytes(snapshot: MemorySnapshot, path: str) -> bytes | None:
    entry = snapshot.find(path)
    return snapshot.objects.blob(entry.id) if entry is not None and entry.kind == "file" else None


def _in_the_way(repository: MemoryRepository, revision: str, paths: list[str]) -> tuple[str, str]:
    """What to say when later commits changed the same text: message and hint."""
    start = repository.git.walk(pygit2.Oid(hex=repository.head()))
    start.hide(pygit2.Oid(hex=revision))
    later = {str(commit.id) for commit in start}
    parts, first = [], ""
    for path in paths:
        commits = [made for made in log(repository, len(later), path) if made.revision in later]
        names = [f'{made.revision[:10]} "{made.reason.splitlines()[0]}"' for made in commits[:_NAMED]]
        more = f" and {len(commits) - _NAMED} more" if len(commits) > _NAMED else ""
        parts.append(f"{path} ({', '.join(names)}{more})" if names else path)
        first = first or (commits[0].revision[:10] if commits else "")
    hint = f"revert {first} first, " if first else ""
    return (
        f"cannot revert {revision[:10]}: later commits changed the same text: " + "; ".join(parts),
        f"{hint}or change the text by hand: letta memory edit {paths[0]}",
    )
