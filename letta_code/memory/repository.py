"""An agent's memory: an ordinary Git repository, `repo.git`, and its work tree, `memory/`.

What is committed is memory; what lies in the work tree uncommitted is a person's or agent's draft, which
nothing here ever overwrites. Commits are compare-and-swap under a lock. No Git process is run, and no
`GIT_*` variable, global setting, hook, template or signing key has a say (libgit2 is told to look nowhere
but in `repo.git/config`). Writing is in `repository_commit`, objects in `repository_objects`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pygit2
from pygit2.enums import DiffOption, SortMode

from letta_code.errors import MemoryStoreError
from letta_code.memory.edits import Edit
from letta_code.memory.history import Author, Draft, MemoryCommit, Provenance, read_message
from letta_code.memory.repository_commit import CommitEngine
from letta_code.memory.repository_layout import create_repository, open_repository
from letta_code.memory.repository_objects import GitObjects, when
from letta_code.memory.rules import AGENT, Overrides
from letta_code.memory.snapshot import MemorySnapshot, changed_paths

__all__ = ["Author", "Draft", "MemoryCommit", "MemoryRepository", "Provenance"]

_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")

LOCK_WAIT = 30.0
"""Seconds a commit waits for other writers of ours."""

INDEX_WAIT = 5.0
"""Seconds a commit waits for a Git command that holds `index.lock`."""


class MemoryRepository:
    """The door to one agent's memory. Cheap to open; use one per thread at a time.

    `git`, `objects` and `engine` are for the modules `memory/repository_*` alone."""

    def __init__(self, git: pygit2.Repository, git_dir: Path, worktree: Path, index_wait: float) -> None:
        self.git = git
        self.objects = GitObjects(git)
        self.git_dir = git_dir
        self.worktree = worktree
        self.engine = CommitEngine(git, self.objects, git_dir, worktree, LOCK_WAIT, index_wait)

    @classmethod
    def create(
        cls, git_dir: Path, worktree: Path, files: Mapping[str, str], author: Author, reason: str
    ) -> MemoryRepository:
        """Make a repository whose first commit holds `files` (path to text).

        Raises:
            MemoryStoreError: one exists already, or the disk refuses.
            MemoryEditError: a file breaks the rules of memory files.
        """
        create_repository(git_dir, worktree, files, author, reason)
        return cls.open(git_dir)

    @classmethod
    def open(cls, git_dir: Path, index_wait: float = INDEX_WAIT) -> MemoryRepository:
        """Open an existing repository; a work tree that is missing as a whole is checked out again.

        Raises:
            MemoryStoreError: missing, damaged, or owned by another user.
        """
        git, worktree = open_repository(git_dir)
        repository = cls(git, git_dir, worktree, index_wait)
        repository.engine.heal()
        return repository

    def head(self) -> str:
        """The commit that memory is at (hex).

        Raises:
            MemoryStoreError: HEAD names no commit.
        """
        return str(self.engine.head())

    def snapshot(self, revision: str | None = None) -> MemorySnapshot:
        """The files of one commit; of HEAD, resolved once, when `revision` is None."""
        commit = self._commit_of(revision or self.head())
        return MemorySnapshot(str(commit.id), str(commit.tree_id), self.objects)

    def resolve(self, text: str) -> str:
        """The full id of the commit that `text` names: an id, its beginning, `HEAD~1`, a branch, …

        Raises:
            MemoryStoreError: it names none, or several.
        """
        return str(self._commit_of(text).id)

    def read(self, revision: str, path: str) -> bytes:
        """One file as it was in a commit.

        Raises:
            MemoryStoreError: no such revision or no such file in it.
        """
        return self.snapshot(revision).read(path)

    def commit(
        self,
        edit: Edit,
        reason: str,
        author: Author,
        provenance: Provenance | None = None,
        expected: str | None = None,
        overrides: Overrides = AGENT,
    ) -> MemoryCommit:
        """Apply one edit and commit it.

        `expected` is the revision the edit was made from. When HEAD has moved since, the edit is applied
        to the new HEAD if it still means the same there. Drafts of other files are left alone.
        `overrides` are the rules that do not hold for this writer.

        Raises:
            MemoryEditError: the edit does not fit, breaks a rule or changes nothing; or its file has an
                uncommitted draft.
            MemoryConflict: others changed the same text since `expected`.
            MemoryStoreError: locked, damaged or not writable. In every case nothing was changed.
        """
        revision = self.engine.commit_edit(edit, reason, author, provenance, expected, overrides)
        return self._described(self._commit_of(revision))

    def commit_drafts(
        self,
        reason: str,
        author: Author,
        provenance: Provenance | None = None,
        overrides: Overrides = AGENT,
    ) -> MemoryCommit:
        """Commit every draft of the work tree, or none.

        Raises:
            MemoryEditError: there is none, or files break rules (all of them are named).
            MemoryStoreError: locked, damaged or not writable.
        """
        revision = self.engine.commit_drafts(reason, author, provenance, overrides)
        return self._described(self._commit_of(revision))

    def revert(self, revision: str, author: Author) -> MemoryCommit:
        """Undo one commit by a new one. Drafts of other files are kept.

        Raises:
            MemoryStoreError: later commits changed the same text (the paths are named), it is the first
                commit or a merge, or undoing it changes nothing. Nothing was changed.
        """
        made = self.engine.revert(self._commit_of(revision), author)
        return self._described(self._commit_of(made))

    def status(self) -> tuple[Draft, ...]:
        """The drafts: files of the work tree that differ from HEAD, by path."""
        return self.engine.drafts()

    def log(
        self, limit: int = 50, path: str | None = None, revision: str | None = None
    ) -> tuple[MemoryCommit, ...]:
        """Commits from `revision` (HEAD when None) back, newest first; only those that changed the file or
        folder `path`, when given."""
        found: list[MemoryCommit] = []
        start = self._commit_of(revision or self.head())
        for commit in self.git.walk(start.id, SortMode.TOPOLOGICAL | SortMode.TIME):
            if len(found) >= limit:
                break
            if path is None or self._touches(commit, path):
                found.append(self._described(commit))
        return tuple(found)

    def diff(self, old: str, new: str | None = None) -> str:
        """Unified diff between two commits, or from a commit to the work tree (untracked files too).
        Bytes that are not UTF-8 appear as U+FFFD."""
        before = self._commit_of(old).tree
        if new is not None:
            changes = before.diff_to_tree(self._commit_of(new).tree)
            return _patch(changes)
        flags = (
            DiffOption.INCLUDE_UNTRACKED
            | DiffOption.SHOW_UNTRACKED_CONTENT
            | DiffOption.RECURSE_UNTRACKED_DIRS
        )
        return _patch(before.diff_to_workdir(flags))

    def _commit_of(self, text: str) -> pygit2.Commit:
        try:
            return self.git.revparse_single(text).peel(pygit2.Commit)
        except (KeyError, ValueError, pygit2.GitError) as error:
            raise MemoryStoreError(
                f"memory has no revision {text!r}", "`letta memory log` lists them"
            ) from error

    def _touches(self, commit: pygit2.Commit, path: str) -> bool:
        def at(one: pygit2.Commit) -> Any:
            entry = MemorySnapshot(str(one.id), str(one.tree_id), self.objects).find(path)
            return entry.id if entry is not None else None

        parents = commit.parents
        return all(at(commit) != at(parent) for parent in parents) if parents else at(commit) is not None

    def _described(self, commit: pygit2.Commit) -> MemoryCommit:
        parent = commit.parents[0] if commit.parents else None
        reason, trailers = read_message(commit.message)
        return MemoryCommit(
            revision=str(commit.id),
            parent=str(parent.id) if parent is not None else "",
            reason=reason,
            author_name=commit.author.name,
            author_email=commit.author.email,
            when=when(commit.author),
            paths=tuple(
                changed_paths(self.objects, str(parent.tree_id) if parent else None, str(commit.tree_id))
            ),
            trailers=trailers,
        )


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
