"""Making and opening the two folders of a memory: `repo.git` and its work tree."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

import pygit2
from pygit2.enums import CheckoutStrategy, RepositoryInitFlag, RepositoryOpenFlag

from letta_code.errors import MemoryStoreError
from letta_code.memory.git.objects import MANY, signature, written_together
from letta_code.memory.history import Author, commit_message
from letta_code.memory.rules import check
from letta_code.storage import locked, private_folder

_BRANCH = "refs/heads/main"
_RESTORE_WAIT = 30.0


def create_repository(
    git_dir: Path, worktree: Path, files: Mapping[str, str], author: Author, reason: str
) -> None:
    """Make both folders and the first commit. `repo.git` appears by one rename, complete or not at all."""
    if git_dir.exists():
        raise MemoryStoreError(f"a memory repository exists already: {git_dir}")
    if worktree.exists() and any(worktree.iterdir()):
        raise MemoryStoreError(f"the memory folder {worktree} is not empty", "move it away first")
    contents = {path: text.encode("utf-8") for path, text in files.items()}
    check({}, contents)
    message = commit_message(reason, None)
    private_folder(git_dir.parent)
    private_folder(worktree)
    made = git_dir.with_name(f".{git_dir.name}.{uuid.uuid4().hex[:8]}")
    try:
        _initialise(made, git_dir, worktree)
        for path, data in contents.items():
            target = worktree / path
            private_folder(target.parent)
            target.write_bytes(data)
            target.chmod(0o600)
        git = pygit2.Repository(str(made), RepositoryOpenFlag.NO_SEARCH)
        with written_together(len(contents)):
            git.index.add_all()
            git.index.write()
            tree = git.index.write_tree()
        if len(contents) >= MANY:
            os.sync()
        who = signature(author)
        git.create_commit(_BRANCH, who, who, message, tree, [])
        os.rename(made, git_dir)
    except (OSError, pygit2.GitError) as error:
        shutil.rmtree(made, ignore_errors=True)
        raise MemoryStoreError(f"cannot make the memory repository {git_dir}: {error}") from error


def open_repository(git_dir: Path) -> tuple[pygit2.Repository, Path]:
    """The repository and its work tree."""
    try:
        if not git_dir.is_dir():
            raise MemoryStoreError(
                f"there is no memory repository at {git_dir}",
                "create an agent, or restore the folder from a copy",
            )
        worktree = _worktree_of(git_dir)
        if _is_missing(worktree):
            _restore(git_dir, worktree)
        git = pygit2.Repository(str(git_dir), RepositoryOpenFlag.NO_SEARCH)
    except PermissionError as error:
        raise MemoryStoreError(
            f"the memory repository {git_dir} cannot be read: {error.strerror}",
            "check the owner of the folder and of those above it",
        ) from error
    except (KeyError, OSError, pygit2.GitError) as error:
        if "not owned" in str(error) or git_dir.stat().st_uid != os.geteuid():
            raise MemoryStoreError(
                f"the memory repository {git_dir} belongs to another user",
                f"give it back: chown -R {os.geteuid()} {git_dir.parent}",
            ) from error
        raise MemoryStoreError(
            f"the memory repository {git_dir} is damaged: {error}",
            f"look with: git --git-dir {git_dir} fsck; or restore the folder from a copy",
        ) from error
    return git, worktree


def _is_missing(worktree: Path) -> bool:
    """Whether the work tree is gone as a whole; an empty folder without our link is none."""
    if (worktree / ".git").exists():
        return False
    return not worktree.exists() or not any(worktree.iterdir())


def _restore(git_dir: Path, worktree: Path) -> None:
    """Check out a work tree that is missing as a whole; others who open memory now wait with their writes.
    It appears by one rename: half of it would look as if the rest had been deleted."""
    with locked(
        git_dir / "letta.lock", _RESTORE_WAIT, "memory is busy: its folder is being restored", "try again"
    ):
        if not _is_missing(worktree):
            return
        made = worktree.with_name(f".{worktree.name}.restored")
        shutil.rmtree(made, ignore_errors=True)
        private_folder(made)
        _write_link(git_dir, made)
        # As a bare one, since libgit2 opens no repository whose work tree is not there.
        git = pygit2.Repository(str(git_dir), RepositoryOpenFlag.NO_SEARCH | RepositoryOpenFlag.BARE)
        strategy = CheckoutStrategy.FORCE | CheckoutStrategy.DONT_UPDATE_INDEX
        git.checkout("HEAD", strategy=strategy, directory=str(made))
        os.rename(made, worktree)


def _initialise(made: Path, git_dir: Path, worktree: Path) -> None:
    relative = os.path.relpath(worktree, git_dir)
    made.mkdir(mode=0o700)  # first, since libgit2 resolves the relative work tree through it
    pygit2.init_repository(
        str(made),
        flags=RepositoryInitFlag.NO_DOTGIT_DIR | RepositoryInitFlag.NO_REINIT,
        mode=0o700,
        workdir_path=relative,
        initial_head="main",
    )
    config = pygit2.Repository(str(made), RepositoryOpenFlag.NO_SEARCH).config
    config["core.worktree"] = relative
    # For the Git commands a person runs here: what they set globally for code must not bend memory.
    config["core.autocrlf"] = "false"
    config["core.safecrlf"] = "false"
    config["core.quotepath"] = "false"
    config["core.hooksPath"] = os.path.join(os.path.relpath(git_dir, worktree), "hooks")
    config["commit.gpgsign"] = "false"
    config["tag.gpgsign"] = "false"
    _write_link(git_dir, worktree)


def _worktree_of(git_dir: Path) -> Path:
    config = pygit2.Config(str(git_dir / "config"))
    if "core.worktree" not in config:
        raise MemoryStoreError(
            f"the memory repository {git_dir} has no work tree",
            f"run: git --git-dir {git_dir} config core.worktree ../memory",
        )
    return Path(os.path.normpath(git_dir / str(config["core.worktree"])))


def _write_link(git_dir: Path, worktree: Path) -> None:
    (worktree / ".git").write_text(f"gitdir: {os.path.relpath(git_dir, worktree)}\n", encoding="utf-8")
