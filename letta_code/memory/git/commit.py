"""Writing commits: lock, compare-and-swap, objects; `git.landing` makes them what memory is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import pygit2

from letta_code.errors import MemoryConflict, MemoryEditError, MemoryStoreError, StorageError
from letta_code.memory.edits import Edit
from letta_code.memory.git.landing import HeadMoved, Landing
from letta_code.memory.git.locks import disk_may_refuse, index_lock, is_ours, refuse_unfinished
from letta_code.memory.git.objects import GitObjects, signature, tree_with, written_together
from letta_code.memory.git.reapply import reapplied
from letta_code.memory.git.worktree import (
    Change,
    draft_bytes,
    drafts,
    executable,
    mode_of,
    refuse_drafts,
)
from letta_code.memory.history import Author, Draft, Provenance, commit_message
from letta_code.memory.rules import Overrides, check
from letta_code.memory.secrets import refuse_secret
from letta_code.memory.snapshot import MemorySnapshot, SnapshotFiles, changed_paths
from letta_code.storage import locked

_TRIES = 5
"""How often a commit is made again because a plain Git command moved HEAD under it."""

_WAITS = 10
"""How often the wait for other writers of ours starts anew when they did commit meanwhile."""

_BUSY = ("memory is busy: another process is writing to it", "try again")


class CommitEngine:
    """All writing to one repository."""

    def __init__(
        self,
        git: pygit2.Repository,
        objects: GitObjects,
        git_dir: Path,
        worktree: Path,
        lock_wait: float,
        index_wait: float,
    ) -> None:
        self._git = git
        self._objects = objects
        self._git_dir = git_dir
        self._worktree = worktree
        self._lock_wait = lock_wait
        self._index_wait = index_wait
        self._landing = Landing(git, objects, git_dir, worktree)

    def head(self) -> pygit2.Oid:
        """The commit HEAD is at.

        Raises:
            MemoryStoreError: it names none.
        """
        try:
            return cast(pygit2.Oid, self._git.head.target)
        except (KeyError, pygit2.GitError) as error:
            raise MemoryStoreError(
                f"memory has no commit: HEAD of {self._git_dir} names none",
                f"look with `git status` in {self._worktree}; `git switch main` brings the branch back, "
                "`git commit` makes a first commit there",
            ) from error

    def snapshot(self, revision: pygit2.Oid) -> MemorySnapshot:
        """The files of a commit.

        Raises:
            MemoryStoreError: the commit cannot be read.
        """
        try:
            return MemorySnapshot(
                str(revision), str(cast("pygit2.Commit", self._git[revision]).tree_id), self._objects
            )
        except (KeyError, pygit2.GitError) as error:
            raise MemoryStoreError(
                f"memory is damaged: commit {str(revision)[:12]} cannot be read",
                "run `git fsck` in the memory folder; restore repo.git from a copy or a remote",
            ) from error

    def commit_edit(
        self,
        edit: Edit,
        reason: str,
        author: Author,
        provenance: Provenance | None,
        expected: str | None,
        overrides: Overrides,
    ) -> str:
        """Apply an edit on HEAD and commit it; the new commit's id."""
        refuse_secret("the reason", reason, overrides)
        message = commit_message(reason, provenance)

        def attempt(head: pygit2.Oid) -> str:
            now = self.snapshot(head)
            contents = self._rebased(edit, now, expected)
            files = SnapshotFiles(now)
            contents = {p: d for p, d in contents.items() if files.get(p) != d}
            if not contents:
                raise MemoryEditError("nothing would change: memory already says this")
            check(files, contents, overrides)
            return self._commit(now, contents, message, author)

        return self._tried(attempt)

    def commit_drafts(
        self, reason: str, author: Author, provenance: Provenance | None, overrides: Overrides
    ) -> str:
        """Commit all drafts; the new commit's id."""
        refuse_secret("the reason", reason, overrides)
        message = commit_message(reason, provenance)

        def attempt(head: pygit2.Oid) -> str:
            now = self.snapshot(head)
            found = self.drafts()
            if not found:
                raise MemoryEditError("there are no drafts to commit")
            contents: dict[str, bytes | None] = {}
            wrong = []
            for draft in found:
                try:
                    contents[draft.path] = draft_bytes(self._worktree / draft.path)
                except MemoryEditError as error:
                    wrong.append(f"{draft.path}: {error.message}")
            if wrong:
                raise MemoryEditError("; ".join(wrong))
            check(SnapshotFiles(now), contents, overrides)
            return self._commit(now, contents, message, author, as_drafts=True)

        return self._tried(attempt)

    def drafts(self) -> tuple[Draft, ...]:
        """Files of the work tree that differ from HEAD."""
        return drafts(self._git_dir, self._worktree, self.snapshot(self.head()))

    def land(
        self, now: MemorySnapshot, tree: str, message: str, author: Author, merged: str | None = None
    ) -> str:
        """Commit `tree` (id) on `now`, which is HEAD, with `merged` as second parent; the caller is inside
        `writing`. Files that have a draft are refused when the commit would change them.

        Raises:
            MemoryEditError: a draft is in the way.
            MemoryStoreError: the disk refuses, or HEAD moved. In every case nothing was changed.
        """
        made = self._make(now, tree, message, author, merged)
        self._move(now, made, self._changes_to(now, tree), message)
        return made

    def fast_forward(self, now: MemorySnapshot, target: str) -> None:
        """Move HEAD from `now` to its descendant `target` as `land` does, without a new commit."""
        after = self.snapshot(pygit2.Oid(hex=target))
        self._move(now, target, self._changes_to(now, after.root), "fast-forward")

    @contextmanager
    def writing(self) -> Iterator[pygit2.Oid]:
        """Hold both locks; gives HEAD as it is under them.

        Raises:
            MemoryStoreError: others hold them for too long, a person's merge or rebase is unfinished, HEAD
                is on no branch, or the disk refuses.
        """
        with self._locked(self._lock_wait):
            refuse_unfinished(self._git, self._worktree)
            with disk_may_refuse():
                yield self.head()

    def heal(self) -> None:
        """Clear away what a process of ours left that died while it wrote; not when one writes just now."""
        if self._landing.unfinished or is_ours(self._git_dir):
            try:
                with self._locked(0):
                    pass
            except (MemoryStoreError, StorageError):
                return  # the next commit tries again, and says what is in the way

    @contextmanager
    def _locked(self, wait: float) -> Iterator[None]:
        with self._turn(wait), index_lock(self._git_dir, self._index_wait):
            if self._landing.unfinished:
                self._landing.heal()
            yield

    @contextmanager
    def _turn(self, wait: float) -> Iterator[None]:
        """Hold `letta.lock`. Who waits longest is not served first, so that among many writers somebody may
        have bad luck for long: the wait starts anew while others get on."""
        with ExitStack() as held:
            for left in reversed(range(_WAITS)):
                before = self.head()
                try:
                    held.enter_context(locked(self._git_dir / "letta.lock", wait, *_BUSY))
                    break
                except StorageError:
                    if left == 0 or self.head() == before:
                        raise
            yield

    def _tried(self, attempt: Callable[[pygit2.Oid], str]) -> str:
        for number in range(_TRIES):
            try:
                with self.writing() as head:
                    return attempt(head)
            except HeadMoved:
                if number == _TRIES - 1:
                    raise
        raise AssertionError("the last try returns or raises")

    def _rebased(self, edit: Edit, now: MemorySnapshot, expected: str | None) -> Mapping[str, bytes | None]:
        """The edit's result on HEAD, when it means the same there as on `expected`."""
        if expected is None or expected == now.revision:
            return edit.apply(SnapshotFiles(now))
        try:
            before = self.snapshot(pygit2.Oid(hex=expected))
        except MemoryStoreError as error:
            raise MemoryConflict(
                f"the revision {expected[:7]} that this edit was made from is no longer in memory's history",
                "view it again as it is now and repeat the edit there",
            ) from error
        return reapplied(self._git, self._objects, edit, before, now)

    def _blobs(
        self, now: MemorySnapshot, contents: Mapping[str, bytes | None], from_drafts: bool
    ) -> dict[str, Change]:
        changes: dict[str, Change] = {}
        for path, data in contents.items():
            if data is None:
                changes[path] = None
                continue
            entry = now.find(path)
            runs = (entry is not None and entry.executable) or (
                from_drafts and executable(self._worktree / path)
            )
            changes[path] = (str(self._git.create_blob(data)), mode_of(runs))
        return changes

    def _changes_to(self, now: MemorySnapshot, tree: str) -> dict[str, Change]:
        after = MemorySnapshot("", tree, self._objects)
        changes: dict[str, Change] = {}
        for path in changed_paths(self._objects, now.root, tree):
            entry = after.find(path)
            changes[path] = (entry.id, mode_of(entry.executable)) if entry is not None else None
        return changes

    def _commit(
        self,
        now: MemorySnapshot,
        contents: Mapping[str, bytes | None],
        message: str,
        author: Author,
        as_drafts: bool = False,
    ) -> str:
        with written_together(len(contents)):
            changes = self._blobs(now, contents, as_drafts)
            tree = tree_with(self._git, now.root, changes)
            made = self._make(now, tree, message, author, None)
        self._move(now, made, changes, message, as_drafts)
        return made

    def _make(self, now: MemorySnapshot, tree: str, message: str, author: Author, merged: str | None) -> str:
        """The commit as an object that nothing names yet."""
        who = signature(author)
        parents = [pygit2.Oid(hex=parent) for parent in (now.revision, merged) if parent is not None]
        return str(self._git.create_commit(None, who, who, message, pygit2.Oid(hex=tree), parents))

    def _move(
        self,
        now: MemorySnapshot,
        made: str,
        changes: Mapping[str, Change],
        message: str,
        as_drafts: bool = False,
    ) -> None:
        files = {} if as_drafts else refuse_drafts(self._worktree, now, changes)
        words = "commit: " + message.split("\n", 1)[0]
        self._landing.land(now.revision, made, changes, files, words, self._index_wait)
