"""Who may write now: Git's own locks, as a person's Git commands see and respect them, and the states of a
repository in which nobody should.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pygit2
from pygit2.enums import RepositoryState

from letta_code.errors import MemoryStoreError

NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""What a file system says that has no hard links, or no more of them."""

_LEAST = 1.0
"""Seconds that even an old lock is waited for."""

_OURS = b"letta-code\n"
_UNFINISHED = {
    RepositoryState.MERGE: ("merge", "git merge --abort", "git commit"),
    RepositoryState.REVERT: ("revert", "git revert --abort", "git revert --continue"),
    RepositoryState.REVERT_SEQUENCE: ("revert", "git revert --abort", "git revert --continue"),
    RepositoryState.CHERRYPICK: ("cherry-pick", "git cherry-pick --abort", "git cherry-pick --continue"),
    RepositoryState.CHERRYPICK_SEQUENCE: (
        "cherry-pick",
        "git cherry-pick --abort",
        "git cherry-pick --continue",
    ),
    RepositoryState.BISECT: ("bisect", "git bisect reset", ""),
    RepositoryState.APPLY_MAILBOX: ("git am", "git am --abort", "git am --continue"),
}
_REBASE = ("rebase", "git rebase --abort", "git rebase --continue")


def refuse_unfinished(git: pygit2.Repository, worktree: Path) -> None:
    """Refuse to write into the middle of a person's work, or to no branch.

    Raises:
        MemoryStoreError: with the commands that end it.
    """
    if (found := unfinished_work(git, worktree)) is not None:
        raise found


def unfinished_work(git: pygit2.Repository, worktree: Path) -> MemoryStoreError | None:
    """What to say of it; None when nothing is in the way of a commit."""
    state = git.state()
    if state != RepositoryState.NONE:
        what, abort, go_on = _UNFINISHED.get(RepositoryState(state), _REBASE)
        finish = f", or finish it with `{go_on}`" if go_on else ""
        return MemoryStoreError(
            f"a {what} is unfinished in the memory folder; memory stays at its last commit",
            f"in {worktree}: end it with `{abort}`{finish}",
        )
    if git.head_is_detached:
        return MemoryStoreError(
            "memory's HEAD is detached: a commit would be on no branch",
            f"in {worktree}: `git switch main` goes back; to keep the commits that you made since, "
            "`git switch -c NAME` first",
        )
    return None


@contextmanager
def index_lock(git_dir: Path, wait: float) -> Iterator[None]:
    """Hold `index.lock`, which Git commands take too; the caller holds `letta.lock`. Waits until
    a lock of others is `wait` seconds old: each of their commands has that long.

    Raises:
        MemoryStoreError: another program's lock stays (it is named, with its age, and left alone).
        MemoryStoreError: the disk refuses it.
    """
    lock, seen, until = git_dir / "index.lock", (0, 0), time.monotonic() + wait
    ready = git_dir / "letta.index-lock"
    try:
        try:
            ready.write_bytes(_OURS)
            while not _taken(ready, lock):
                if is_ours(git_dir):
                    _release(git_dir)  # we hold `letta.lock`, so whoever made it is dead
                elif (found := _made(lock)) is None:
                    continue
                elif found != seen:
                    seen, until = found, time.monotonic() + _patience(found[1], wait)
                elif time.monotonic() > until:
                    raise lock_stays(lock)
                else:
                    time.sleep(0.005)
            ready.unlink()
        except OSError as error:
            raise cannot_write(error) from error
        yield
    finally:
        try:
            _release(git_dir)
        except KeyboardInterrupt:  # the person's own git would stand before our lock until we come again
            _release(git_dir)
            raise
        finally:
            ready.unlink(missing_ok=True)


def _made(lock: Path) -> tuple[int, int] | None:
    """Which lock it is: inode and time (nanoseconds); None when it is gone."""
    try:
        found = lock.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _patience(made: int, wait: float) -> float:
    """How long to wait for a lock that was made then: what is left of `wait`, and a second at least."""
    age = max(0.0, time.time() - made / 1e9)
    return max(wait - age, min(wait, _LEAST))


def _taken(ready: Path, lock: Path) -> bool:
    """Make `lock`, in one step with what says that it is ours; in two where there are no hard links."""
    try:
        os.link(ready, lock)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        try:
            with open(lock, "xb") as file:
                file.write(_OURS)
        except FileExistsError:
            return False
    return True


def _release(git_dir: Path) -> None:
    if is_ours(git_dir):
        (git_dir / "index.lock").unlink(missing_ok=True)


def is_ours(git_dir: Path) -> bool:
    """Whether there is an `index.lock` that a process of ours made."""
    try:
        return (git_dir / "index.lock").read_bytes() == _OURS
    except OSError:
        return False


def lock_stays(file: Path) -> MemoryStoreError:
    """What to say of a lock file that nobody takes away."""
    try:
        age = f", made {_span(time.time() - file.stat().st_mtime)} ago"
    except FileNotFoundError:
        age = ""
    return MemoryStoreError(
        f"memory is locked by {file}{age}",
        "if no git command runs in the memory folder, it is left over: delete that file and try again",
    )


@contextmanager
def disk_may_refuse() -> Iterator[None]:
    """What libgit2 and the system say of a disk that is full or read-only becomes one line.

    Raises:
        MemoryStoreError: the disk refuses.
    """
    try:
        yield
    except (OSError, pygit2.GitError) as error:
        raise cannot_write(error) from error


def cannot_write(error: Exception) -> MemoryStoreError:
    """What to say when the disk refuses."""
    return MemoryStoreError(
        f"cannot write to memory: {error}", "check the disk's free space and the owner of the folder"
    )


def _span(seconds: float) -> str:
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{max(0, int(seconds))} seconds"
