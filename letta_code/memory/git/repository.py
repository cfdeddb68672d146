"""An agent's memory: an ordinary Git repository, `repo.git`, and its work tree, `memory/`.

What is committed is memory; what lies in the work tree uncommitted is a person's or agent's draft, which
nothing here ever overwrites. Commits are compare-and-swap under a lock. No Git process is run, and no
`GIT_*` variable, global setting, hook, template or signing key has a say (libgit2 is told to look nowhere
but in `repo.git/config`). Writing is in `git.commit`, objects in `git.objects`, looking back
in `git.log`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pygit2

from letta_code.errors import MemoryStoreError
from letta_code.memory.edits import Edit
from letta_code.memory.git.commit import CommitEngine
from letta_code.memory.git.layout import create_repository, open_repository
from letta_code.memory.git.locks import unfinished_work
from letta_code.memory.git.objects import GitObjects, when
from letta_code.memory.history import Author, Draft, MemoryCommit, Provenance, read_message
from letta_code.memory.hooks import install_hooks
from letta_code.memory.rules import AGENT, Overrides
from letta_code.memory.snapshot import MemorySnapshot, changed_paths

__all__ = ["Author", "Draft", "MemoryCommit", "MemoryRepository", "Provenance"]

LOCK_WAIT = 30.0
"""Seconds a commit waits for other writers of ours."""

INDEX_WAIT = 20.0
"""How old in seconds the `index.lock` of a Git command may become while a commit waits for it."""


class MemoryRepository:
    """The door to one agent's memory. Cheap to open; use one per thread at a time.

    `git`, `objects` and `engine` are for the modules `memory/git/` alone."""

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
        install_hooks(git_dir)
        return repository

    def head(self) -> str:
        """The commit that memory is at (hex).

        Raises:
            MemoryStoreError: HEAD names no commit.
        """
        return str(self.engine.head())

    def unfinished(self) -> str:
        """What keeps everybody from writing, in one line with the remedy: a person's merge or rebase that is
        not finished, a detached HEAD. "" when there is nothing. Memory can be read all the same."""
        found = unfinished_work(self.git, self.worktree)
        return f"{found.message} ({found.hint})" if found is not None else ""

    def snapshot(self, revision: str | None = None) -> MemorySnapshot:
        """The files of one commit; of HEAD, resolved once, when `revision` is None."""
        commit = self.commit_of(revision or self.head())
        return MemorySnapshot(str(commit.id), str(commit.tree_id), self.objects, self.objects)

    def resolve(self, text: str) -> str:
        """The full id of the commit that `text` names: an id, its beginning, `HEAD~1`, a branch, …

        Raises:
            MemoryStoreError: it names none, or several.
        """
        return str(self.commit_of(text).id)

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
        return self.described(self.commit_of(revision))

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
        return self.described(self.commit_of(revision))

    def status(self) -> tuple[Draft, ...]:
        """The drafts: files of the work tree that differ from HEAD, by path."""
        return self.engine.drafts()

    def describe(self, revision: str) -> MemoryCommit:
        """One commit.

        Raises:
            MemoryStoreError: there is no such revision.
        """
        return self.described(self.commit_of(revision))

    def commit_of(self, text: str) -> pygit2.Commit:
        """The commit that `text` names, for the modules `memory/git/`."""
        try:
            return self.git.revparse_single(text).peel(pygit2.Commit)
        except (KeyError, ValueError, pygit2.GitError) as error:
            raise MemoryStoreError(
                f"memory has no revision {text!r}", "`letta memory log` lists them"
            ) from error

    def described(self, commit: pygit2.Commit) -> MemoryCommit:
        """`commit` as a value, for the modules `memory/git/`."""
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
