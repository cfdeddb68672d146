"""The remote of a memory: its address in `repo.git/config`, where plain Git finds it too, and what is known
of its commits. No network; syncing is in `git.sync`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pygit2

from letta_code.errors import MemoryStoreError
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.transport import FETCHED, REMOTE
from letta_code.storage import locked

SYNCED = "refs/letta/synced"
"""The remote's commit as of the last sync that succeeded: a remote without it was rewritten."""

_BUSY = ("memory is busy: another process is writing to it", "try again")


def remote_url(repository: MemoryRepository) -> str | None:
    """The address of the remote, with what secrets it holds; None when there is none."""
    config = repository.git.config
    key = f"remote.{REMOTE}.url"
    return str(config[key]) if key in config else None


def set_remote(repository: MemoryRepository, url: str) -> None:
    """Sync with `url` from now on; plain `git pull` and `git push` use it as well.

    Raises:
        MemoryStoreError, StorageError: the repository's configuration is locked or cannot be written.
    """
    with _configuring(repository):
        git, known = repository.git, remote_url(repository)
        if known is None:
            git.remotes.create(REMOTE, url)
        elif known != url:
            git.remotes.set_url(REMOTE, url)
        if known != url:
            _forget_remote(repository)
        name = branch(repository)
        git.config[f"branch.{name}.remote"] = REMOTE
        git.config[f"branch.{name}.merge"] = f"refs/heads/{name}"
        (repository.git_dir / "config").chmod(0o600)


def unset_remote(repository: MemoryRepository) -> None:
    """Have no remote. Raises as `set_remote` does."""
    with _configuring(repository):
        _forget_remote(repository)
        repository.git.remotes.delete(REMOTE)


@contextmanager
def _configuring(repository: MemoryRepository) -> Iterator[None]:
    with locked(repository.git_dir / "letta.lock", 10, *_BUSY):
        try:
            yield
        except (OSError, pygit2.GitError) as error:
            raise MemoryStoreError(
                f"cannot change {repository.git_dir / 'config'}: {error}",
                "if no git command is running there, delete config.lock beside it",
            ) from error


def _forget_remote(repository: MemoryRepository) -> None:
    """What is known about the remote's commits; they stay reachable when they are part of memory."""
    references = repository.git.references
    for name in list(references):
        if name in (SYNCED, FETCHED) or name.startswith(f"refs/remotes/{REMOTE}/"):
            references.delete(name)


def branch(repository: MemoryRepository) -> str:
    """The branch memory is on; "main" when HEAD is detached."""
    name = repository.git.lookup_reference("HEAD").target
    return name.removeprefix("refs/heads/") if isinstance(name, str) else "main"


def distance(repository: MemoryRepository) -> tuple[int, int] | None:
    """Commits of memory that the remote had not at the last sync, and the reverse; None before the first."""
    synced = target(repository, SYNCED)
    if synced is None:
        return None
    return repository.git.ahead_behind(pygit2.Oid(hex=repository.head()), pygit2.Oid(hex=synced))


def target(repository: MemoryRepository, name: str) -> str | None:
    """The commit a ref names, None when there is no such ref."""
    found = repository.git.references.get(name)
    return str(found.target) if found is not None else None
