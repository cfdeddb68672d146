"""Writing commits: lock, compare-and-swap, index and work tree.

The order makes every interruption harmless: objects first (unreferenced), then the touched files of the
work tree (a crash leaves a draft with the new text), then HEAD (refused when someone else moved it), then
the index. `index.lock` is held throughout, so a person's `git commit` and ours exclude each other.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pygit2
from pygit2.enums import FileMode, FileStatus, RepositoryState

from letta_code.errors import MemoryConflict, MemoryEditError, MemoryStoreError, StorageError
from letta_code.memory.edits import Edit
from letta_code.memory.history import Author, Draft, Provenance, commit_message
from letta_code.memory.repository_objects import GitObjects, signature, tree_with
from letta_code.memory.rules import Overrides, check
from letta_code.memory.secrets import refuse_secret
from letta_code.memory.snapshot import Entry, MemorySnapshot, changed_paths
from letta_code.storage import locked, write_atomically

_NEXT = "index.next"
_OURS = b"letta-code\n"

Change = tuple[str, int] | None
"""Blob id and Git mode; None deletes."""


class SnapshotFiles(Mapping[str, bytes]):
    """The files of a snapshot; each is read when asked for."""

    def __init__(self, snapshot: MemorySnapshot) -> None:
        self._snapshot = snapshot

    def __getitem__(self, path: str) -> bytes:
        return self._snapshot.objects.blob(self._snapshot.entries[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._snapshot.entries)

    def __len__(self) -> int:
        return len(self._snapshot.entries)

    def __contains__(self, path: object) -> bool:
        return path in self._snapshot.entries


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

    def head(self) -> pygit2.Oid:
        """The commit HEAD is at."""
        try:
            return self._git.head.target if isinstance(self._git.head.target, pygit2.Oid) else self._gone()
        except (KeyError, pygit2.GitError):
            return self._gone()

    def _gone(self) -> pygit2.Oid:
        raise MemoryStoreError(
            f"memory has no commit: HEAD of {self._git_dir} names none",
            "look with `git status` in the memory folder; `git switch main` brings the branch back",
        )

    def snapshot(self, revision: pygit2.Oid) -> MemorySnapshot:
        """The files of a commit."""
        commit = cast("pygit2.Commit", self._git[revision])
        return MemorySnapshot(str(revision), str(commit.tree_id), self._objects)

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
        with self.writing() as head:
            now = self.snapshot(head)
            contents = self._rebased(edit, now, expected)
            files = SnapshotFiles(now)
            contents = {p: d for p, d in contents.items() if files.get(p) != d}
            if not contents:
                raise MemoryEditError("nothing would change: memory already says this")
            check(files, contents, overrides)
            return self._write(now, self._blobs(now, contents), message, author)

    def commit_drafts(
        self, reason: str, author: Author, provenance: Provenance | None, overrides: Overrides
    ) -> str:
        """Commit all drafts; the new commit's id."""
        refuse_secret("the reason", reason, overrides)
        message = commit_message(reason, provenance)
        with self.writing() as head:
            now = self.snapshot(head)
            drafts = self.drafts()
            if not drafts:
                raise MemoryEditError("there are no drafts to commit")
            contents: dict[str, bytes | None] = {}
            wrong = []
            for draft in drafts:
                if draft.state == "deleted":
                    contents[draft.path] = None
                elif stat.S_ISREG((self._worktree / draft.path).lstat().st_mode):
                    contents[draft.path] = (self._worktree / draft.path).read_bytes()
                else:
                    wrong.append(f"{draft.path}: is not a regular file")
            if wrong:
                raise MemoryEditError("; ".join(wrong))
            check(SnapshotFiles(now), contents, overrides)
            return self._write(now, self._blobs(now, contents, drafts=True), message, author, drafts=True)

    def drafts(self) -> tuple[Draft, ...]:
        """Files of the work tree that differ from HEAD."""
        fresh = pygit2.Repository(str(self._git_dir))
        now = self.snapshot(self.head())
        found: list[Draft] = []
        for path, flags in fresh.status(untracked_files="all").items():
            if flags & FileStatus.IGNORED:
                continue
            committed, present = path in now.entries, os.path.lexists(self._worktree / path)
            if committed and not present:
                found.append(Draft(path, "deleted"))
            elif present and not committed:
                found.append(Draft(path, "new"))
            elif present and self._differs(path, now.find(path)):
                found.append(Draft(path, "modified"))
        return tuple(sorted(found, key=lambda draft: draft.path))

    def _rebased(self, edit: Edit, now: MemorySnapshot, expected: str | None) -> Mapping[str, bytes | None]:
        """The edit's result on HEAD, when it means the same there as on `expected`."""
        if expected is None or expected == now.revision:
            return edit.apply(SnapshotFiles(now))
        before = self.snapshot(pygit2.Oid(hex=expected))
        intended = edit.apply(SnapshotFiles(before))
        moved = [p for p in intended if before.entries.get(p) != now.entries.get(p)]
        try:
            if moved and not edit.reapplies:
                raise MemoryEditError("the edit depends on what the text was")
            return edit.apply(SnapshotFiles(now))
        except MemoryEditError as error:
            raise MemoryConflict(
                f"memory moved from {expected[:7]} to {now.revision[:7]} and changed "
                f"{', '.join(moved) or 'other files'}: {error.message}",
                "look at the file as it is now and make the edit again",
            ) from error

    def _blobs(
        self, now: MemorySnapshot, contents: Mapping[str, bytes | None], drafts: bool = False
    ) -> dict[str, Change]:
        changes: dict[str, Change] = {}
        for path, data in contents.items():
            if data is None:
                changes[path] = None
                continue
            mode = _mode(now.find(path))
            if drafts and (self._worktree / path).lstat().st_mode & 0o100:
                mode = int(FileMode.BLOB_EXECUTABLE)
            changes[path] = (str(self._git.create_blob(data)), mode)
        return changes

    def land(
        self, now: MemorySnapshot, tree: str, message: str, author: Author, merged: str | None = None
    ) -> str:
        """Commit `tree` (id) on `now`, which is HEAD, with `merged` as second parent; the caller is inside
        `writing`. Files that have a draft are refused when the commit would change them."""
        return self._write(now, self._changes_to(now, tree), message, author, merged=merged)

    def fast_forward(self, now: MemorySnapshot, target: str) -> None:
        """Move HEAD from `now` to its descendant `target` as `land` does, without a new commit."""
        after = self.snapshot(pygit2.Oid(hex=target))
        self._write(now, self._changes_to(now, after.root), "", None, target=target)

    def _changes_to(self, now: MemorySnapshot, tree: str) -> dict[str, Change]:
        after = MemorySnapshot("", tree, self._objects)
        changes: dict[str, Change] = {}
        for path in changed_paths(self._objects, now.root, tree):
            entry = after.find(path)
            changes[path] = (entry.id, _mode(entry)) if entry is not None else None
        return changes

    def _write(
        self,
        now: MemorySnapshot,
        changes: Mapping[str, Change],
        message: str,
        author: Author | None,
        drafts: bool = False,
        merged: str | None = None,
        target: str | None = None,
    ) -> str:
        """Everything from objects to index; the caller holds the locks."""
        if not drafts:
            self._refuse_drafts(now, changes)
        index = self._next_index(changes)
        undo: dict[str, bytes | None] = {}
        try:
            if not drafts:
                for path, change in changes.items():
                    undo[path] = self._draft_bytes(path)
                    self._put(path, self._objects.blob(change[0]) if change else None, change)
            if target is not None:
                self._git.references[self._git.head.name].set_target(target, "fast-forward")
                made = target
            else:
                made = self._create(now, changes, message, author, merged)
        except (OSError, StorageError, pygit2.GitError) as error:
            for path, data in undo.items():
                self._put(path, data, None)
            index.unlink(missing_ok=True)
            if self.head() != pygit2.Oid(hex=now.revision):
                raise MemoryConflict("HEAD moved while the edit was written", "make it again") from error
            raise MemoryStoreError(
                f"cannot write to memory: {error}", "check the disk's free space and owner"
            ) from error
        os.replace(index, self._git_dir / "index")
        return made

    def _create(
        self,
        now: MemorySnapshot,
        changes: Mapping[str, Change],
        message: str,
        author: Author | None,
        merged: str | None,
    ) -> str:
        assert author is not None
        who = signature(author)
        tree = pygit2.Oid(hex=tree_with(self._git, now.root, changes))
        parents = [pygit2.Oid(hex=parent) for parent in (now.revision, merged) if parent is not None]
        return str(self._git.create_commit("HEAD", who, who, message, tree, parents))

    def _next_index(self, changes: Mapping[str, Change]) -> Path:
        """The index after the commit, as a file beside the present one."""
        current, target = self._git_dir / "index", self._git_dir / _NEXT
        for left in (target, target.with_name(f"{_NEXT}.lock")):
            left.unlink(missing_ok=True)
        if current.exists():
            target.write_bytes(current.read_bytes())
        index = pygit2.Index(str(target))
        for path, change in changes.items():
            if change is None:
                if path in index:
                    index.remove(path)
            else:
                index.add(pygit2.IndexEntry(path, pygit2.Oid(hex=change[0]), FileMode(change[1])))
        index.write()
        return target

    def _refuse_drafts(self, now: MemorySnapshot, changes: Mapping[str, Change]) -> None:
        for path, change in changes.items():
            self._refuse_links(path)
            entry = now.find(path)
            if not os.path.lexists(self._worktree / path):
                if entry is not None and change is not None:
                    raise MemoryEditError(_DRAFT.format(path=path))
                continue
            if not self._differs(path, entry) or (
                change is not None and not self._differs_from(path, change[0])
            ):
                continue
            raise MemoryEditError(_DRAFT.format(path=path))

    def _refuse_links(self, path: str) -> None:
        folder = self._worktree
        for part in path.split("/")[:-1]:
            folder = folder / part
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                raise MemoryEditError(f"{path}: {part!r} is not a plain folder in the memory folder")

    def _differs(self, path: str, entry: Entry | None) -> bool:
        return entry is None or self._differs_from(path, entry.id)

    def _differs_from(self, path: str, blob: str) -> bool:
        file = self._worktree / path
        if not stat.S_ISREG(file.lstat().st_mode):
            return True
        return str(pygit2.hash(file.read_bytes())) != blob

    def _draft_bytes(self, path: str) -> bytes | None:
        file = self._worktree / path
        return file.read_bytes() if os.path.lexists(file) else None

    def _put(self, path: str, data: bytes | None, change: Change) -> None:
        file = self._worktree / path
        if data is not None:
            executable = change is not None and change[1] == FileMode.BLOB_EXECUTABLE
            write_atomically(file, data, 0o700 if executable else 0o600)
            return
        file.unlink(missing_ok=True)
        for folder in file.parents:
            if folder == self._worktree or not folder.is_dir() or any(folder.iterdir()):
                break
            folder.rmdir()

    @contextmanager
    def writing(self) -> Iterator[pygit2.Oid]:
        """Hold both locks; gives HEAD as it is under them."""
        with (
            locked(
                self._git_dir / "letta.lock",
                self._lock_wait,
                "memory is busy: another process is writing to it",
                "try again",
            ),
            self._index_lock(),
        ):
            if self._git.head_is_detached:
                raise MemoryStoreError(
                    "memory's HEAD is detached", "run `git switch main` in the memory folder"
                )
            if self._git.state() != RepositoryState.NONE:
                raise MemoryStoreError(
                    "a merge, revert or rebase is unfinished in the memory folder",
                    "finish or abort it there with git (`git status` says how)",
                )
            head = self.head()
            if (self._git_dir / _NEXT).exists():
                self._heal(head)
            yield head

    def heal(self) -> None:
        """Bring the index up to date when a process of ours died between moving HEAD and the index."""
        if (self._git_dir / _NEXT).exists():
            try:
                with self.writing():
                    pass
            except (MemoryStoreError, StorageError):
                return  # the next commit tries again, and says what is in the way

    def _heal(self, head: pygit2.Oid) -> None:
        """Repair what a dead process of ours left. We hold the other locks, so nobody alive has these; the
        sign that there is something to repair goes last."""
        made = self._git_dir / "index.healed"
        for name in (made.name, f"{made.name}.lock", f"{self._git.head.name}.lock"):
            (self._git_dir / name).unlink(missing_ok=True)
        index = pygit2.Index(str(made))
        index.read_tree(cast("pygit2.Tree", self._git[self.snapshot(head).root]))
        index.write()
        os.replace(made, self._git_dir / "index")
        (self._git_dir / _NEXT).unlink()

    @contextmanager
    def _index_lock(self) -> Iterator[None]:
        file = self._git_dir / "index.lock"
        until = time.monotonic() + self._index_wait
        while True:
            try:
                handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                os.write(handle, _OURS)
                os.close(handle)
                break
            except FileExistsError:
                if _is_ours(file):
                    file.unlink(missing_ok=True)  # we hold `letta.lock`, so whoever made it is dead
                    continue
                if time.monotonic() > until:
                    raise MemoryStoreError(
                        f"memory is locked by {file}", "if no git command is running there, delete that file"
                    ) from None
                time.sleep(0.01)
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


_DRAFT = (
    "{path}: has an uncommitted draft in the memory folder; commit or undo it first (letta memory status)"
)


def _is_ours(file: Path) -> bool:
    try:
        return file.read_bytes() == _OURS
    except FileNotFoundError:
        return False


def _mode(entry: Entry | None) -> int:
    return int(FileMode.BLOB_EXECUTABLE if entry is not None and entry.executable else FileMode.BLOB)
