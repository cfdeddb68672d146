"""The work tree of a memory: which of its files are drafts, and changing the others."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pygit2
from pygit2.enums import FileMode, FileStatus

from letta_code.errors import MemoryEditError, MemoryStoreError
from letta_code.memory.history import Draft
from letta_code.memory.snapshot import MemorySnapshot

Change = tuple[str, int] | None
"""Blob id and Git mode; None deletes."""


def drafts(git_dir: Path, worktree: Path, now: MemorySnapshot) -> tuple[Draft, ...]:
    """Files of the work tree that differ from the commit `now`, which is HEAD.

    Raises:
        MemoryStoreError: the work tree cannot be read.
    """
    found: list[Draft] = []
    try:
        fresh = pygit2.Repository(str(git_dir))
        for path, flags in fresh.status(untracked_files="all").items():
            if flags & FileStatus.IGNORED:
                continue
            entry = now.find(path)
            committed = entry.id if entry is not None and entry.kind == "file" else None
            present = blob_at(worktree / path)
            if present is None and committed is not None:
                found.append(Draft(path, "deleted"))
            elif present is not None and committed is None:
                found.append(Draft(path, "new"))
            elif present != committed:
                found.append(Draft(path, "modified"))
    except (OSError, pygit2.GitError) as error:
        raise MemoryStoreError(
            f"the memory folder {worktree} cannot be read: {error}", "check the owner of its files"
        ) from error
    return tuple(sorted(found, key=lambda draft: draft.path))


def draft_bytes(file: Path) -> bytes | None:
    """The content of a draft; None when it is deleted.

    Raises:
        MemoryEditError: it is not a regular file.
        MemoryStoreError: it cannot be read.
    """
    try:
        if not stat.S_ISREG(file.lstat().st_mode):
            raise MemoryEditError("is not a regular file")
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise MemoryStoreError(f"cannot read {file}: {error.strerror}", "check its owner") from error


def blob_at(file: Path) -> str | None:
    """The Git id of a file's content, "other" for what is no regular file, None when there is nothing."""
    try:
        if not stat.S_ISREG(file.lstat().st_mode):
            return "other"
        return str(pygit2.hash(file.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None


def refuse_drafts(
    worktree: Path, now: MemorySnapshot, changes: Mapping[str, Change]
) -> dict[str, str | None]:
    """The files that have to be written for `changes`: path to the blob that is there (None: nothing).

    Raises:
        MemoryEditError: files have drafts, which the change would overwrite; all are named.
        OSError: a file cannot be read.
    """
    found: dict[str, str | None] = {}
    blocked = []
    for path, change in changes.items():
        _refuse_links(worktree, path)
        entry = now.find(path)
        committed = entry.id if entry is not None and entry.kind == "file" else None
        present = blob_at(worktree / path)
        if present == (change[0] if change is not None else None):
            continue  # the draft is the change
        if present != committed:
            blocked.append(path)
        found[path] = present
    if blocked:
        names = ", ".join(blocked[:5]) + (f" and {len(blocked) - 5} more" if len(blocked) > 5 else "")
        raise MemoryEditError(
            f"{names}: has an uncommitted draft in the memory folder; commit or undo it first "
            "(letta memory status)",
            f'`letta memory commit -m "…"` commits all drafts; in {worktree}, `git restore {blocked[0]}` '
            "drops that one",
        )
    return found


def executable(file: Path) -> bool:
    """Whether the owner may run the file."""
    try:
        return bool(file.lstat().st_mode & 0o100)
    except (FileNotFoundError, NotADirectoryError):
        return False


def remove(worktree: Path, path: str) -> None:
    """Delete a file and the folders that it leaves empty.

    Raises:
        OSError: it cannot be deleted.
    """
    file = worktree / path
    file.unlink(missing_ok=True)
    for folder in file.parents:
        if folder == worktree or (folder.exists() and any(folder.iterdir())):
            break
        if folder.exists():
            folder.rmdir()


def mode_of(is_executable: bool) -> int:
    """The Git mode of a file."""
    return int(FileMode.BLOB_EXECUTABLE if is_executable else FileMode.BLOB)


def _refuse_links(worktree: Path, path: str) -> None:
    folder = worktree
    for part in path.split("/")[:-1]:
        folder = folder / part
        if folder.is_symlink() or (os.path.lexists(folder) and not folder.is_dir()):
            raise MemoryEditError(f"{path}: {part!r} is not a plain folder in the memory folder")
