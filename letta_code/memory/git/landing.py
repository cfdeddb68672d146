"""Making a commit that exists as an object into what HEAD, index and work tree are, or nothing at all.

The order makes every interruption harmless: a journal first, then the touched files of the work tree, then
HEAD (refused when someone else moved it), then the index. Whoever comes next after a crash reads the
journal: when HEAD had not moved, the work tree goes back, else the index catches up. The caller holds
`letta.lock` and `index.lock`.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pygit2
from pygit2.enums import FileMode

from letta_code.errors import MemoryConflict, StorageError
from letta_code.memory.git.locks import NO_LINKS, cannot_write, lock_stays
from letta_code.memory.git.objects import MANY, GitObjects
from letta_code.memory.git.worktree import Change, blob_at, remove
from letta_code.storage import private_folder, write_atomically

_LEFT_LOCK = 1.0
"""Seconds that a branch's lock has to stay before it is taken for a dead process's."""


class HeadMoved(MemoryConflict):
    """A plain Git command moved HEAD under our locks; nothing was changed, and it can be tried again."""


class Landing:
    """One repository's journal and what it says."""

    def __init__(self, git: pygit2.Repository, objects: GitObjects, git_dir: Path, worktree: Path) -> None:
        self._git = git
        self._objects = objects
        self._git_dir = git_dir
        self._worktree = worktree
        self._folder = git_dir / "letta.landing"
        self._journal = self._folder / "journal"

    @property
    def unfinished(self) -> bool:
        """Whether a process died here, or works here."""
        return self._folder.exists()

    def land(
        self,
        head: str,
        made: str,
        changes: Mapping[str, Change],
        files: Mapping[str, str | None],
        words: str,
        wait: float,
    ) -> None:
        """Go from the commit `head` to the commit `made`: `changes` are what differs, `files` what has to be
        written in the work tree with the blob that is there now, `words` go to the reflog. Waits `wait`
        seconds for another program's lock of the branch.

        Raises:
            HeadMoved: HEAD is no longer at `head`.
            MemoryStoreError: the disk refuses, or a lock stays. In every case nothing was changed.
        """
        done = False
        try:
            self._begin(head, made, changes, files)
            for number, (path, present) in enumerate(files.items()):
                self._place(number, path, present, changes[path], durable=len(changes) < MANY)
            self._build_index(changes)
            if len(changes) >= MANY:
                os.sync()
            self._move_head(head, made, words, wait)
            os.replace(self._folder / "index", self._git_dir / "index")
            done = True
        except (OSError, StorageError, pygit2.GitError) as error:
            raise cannot_write(error) from error
        finally:
            if done:
                shutil.rmtree(self._folder, ignore_errors=True)
            else:
                self._recover()

    def heal(self) -> None:
        """Finish or undo what a process that died here had begun. What does not look as that process left
        it is not touched.

        Raises:
            MemoryStoreError: the disk refuses; the journal stays for the next try.
        """
        try:
            journal = self._read_journal()
            if journal is not None:
                self._clear_branch_lock(journal["made"])
        except (OSError, pygit2.GitError) as error:
            raise cannot_write(error) from error
        self._recover()

    def _recover(self) -> None:
        try:
            journal = self._read_journal()
            if journal is not None:
                if self._landed(journal["made"]):
                    self._catch_up(journal["changes"])
                else:
                    self._put_back(journal["files"])
            shutil.rmtree(self._folder, ignore_errors=True)
        except (OSError, StorageError, pygit2.GitError) as error:
            raise cannot_write(error) from error

    def _read_journal(self) -> Any:
        try:
            return json.loads(self._journal.read_bytes())
        except FileNotFoundError:
            return None  # nothing had been changed yet

    def _begin(
        self, head: str, made: str, changes: Mapping[str, Change], files: Mapping[str, str | None]
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700)
        journal = {
            "head": head,
            "made": made,
            "files": [[path, old, _id(changes[path])] for path, old in files.items()],
            "changes": {path: change for path, change in changes.items()},
        }
        half = self._folder / "journal.half"
        half.write_text(json.dumps(journal), encoding="utf-8")
        os.replace(half, self._journal)

    def _place(self, number: int, path: str, present: str | None, change: Change, durable: bool) -> None:
        """Change one file of the work tree; what was there is kept as a link, until all is done."""
        file, kept = self._worktree / path, self._folder / str(number)
        if present is not None:
            try:
                os.link(file, kept)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
        if change is None:
            remove(self._worktree, path)
        else:
            mode = 0o700 if change[1] == FileMode.BLOB_EXECUTABLE else 0o600
            self._write(file, self._objects.blob(change[0]), mode, durable)
        if kept.exists() and blob_at(kept) != present:
            raise HeadMoved(f"{path} was changed in the memory folder at this moment", "try again")

    def _write(self, file: Path, data: bytes, mode: int, durable: bool = True) -> None:
        private_folder(file.parent)
        new = self._folder / "new"  # not beside the file, where a crash would leave it as a draft
        with open(new, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fchmod(opened.fileno(), mode)
            if durable:
                os.fsync(opened.fileno())
        try:
            os.replace(new, file)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            write_atomically(file, data, mode)

    def _build_index(self, changes: Mapping[str, Change]) -> None:
        """The index after the commit, as a file of its own; other files' entries are kept."""
        current, target = self._git_dir / "index", self._folder / "index"
        if current.exists():
            target.write_bytes(current.read_bytes())
        index = pygit2.Index(str(target))
        for path, change in changes.items():
            if change is not None:
                index.add(pygit2.IndexEntry(path, pygit2.Oid(hex=change[0]), FileMode(change[1])))
            elif path in index:
                index.remove(path)
        index.write()

    def _move_head(self, head: str, made: str, words: str, wait: float) -> None:
        until = time.monotonic() + wait
        name = self._git.head.name
        while True:
            branch = self._git.references[name]
            if str(branch.target) != head:
                raise HeadMoved("HEAD moved while the edit was written", "make it again")
            try:
                branch.set_target(made, words)  # compares with what `branch` was read as
                return
            except (OSError, pygit2.GitError, ValueError, KeyError) as error:
                lock = self._git_dir / f"{name}.lock"
                if lock.exists() and time.monotonic() > until:
                    raise lock_stays(lock) from error
                moved = str(self._git.references[name].target) != head
                if not moved and not lock.exists() and time.monotonic() > until:
                    raise
                time.sleep(0.005)

    def _landed(self, made: str) -> bool:
        head, commit = self._git.head.target, pygit2.Oid(hex=made)
        return head == commit or (commit in self._git and self._git.descendant_of(str(head), made))

    def _catch_up(self, changes: Mapping[str, list[object] | None]) -> None:
        """The index, where it is still as before the commit, becomes as HEAD is."""
        shutil.copyfile(self._git_dir / "index", self._folder / "index.healed")
        index = pygit2.Index(str(self._folder / "index.healed"))
        tree = self._git.head.peel(pygit2.Tree)
        for path in changes:
            if path in tree:
                entry = tree[path]
                index.add(pygit2.IndexEntry(path, entry.id, FileMode(entry.filemode)))
            elif path in index:
                index.remove(path)
        index.write()
        os.replace(self._folder / "index.healed", self._git_dir / "index")

    def _put_back(self, files: list[tuple[str, str | None, str | None]]) -> None:
        for number, (path, old, new) in enumerate(files):
            file, kept = self._worktree / path, self._folder / str(number)
            present = blob_at(file)
            if old is None and present in (None, new):
                remove(self._worktree, path)  # or its folder alone
            elif old is None or present != new:
                continue  # not yet changed, or a person's since
            elif kept.exists():
                private_folder(file.parent)
                os.replace(kept, file)  # needs no space, and it is the very file
            else:
                self._write(file, self._objects.blob(old), 0o600)

    def _clear_branch_lock(self, made: str) -> None:
        """Remove the branch's lock when the process of the journal left it."""
        lock = self._git_dir / f"{self._git.head.name}.lock"
        until = time.monotonic() + _LEFT_LOCK
        while lock.exists():
            if time.monotonic() > until:
                if lock.read_bytes().strip() in (b"", made.encode()):
                    lock.unlink(missing_ok=True)
                return
            time.sleep(0.005)


def _id(change: Change) -> str | None:
    return change[0] if change is not None else None
