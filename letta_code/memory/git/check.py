"""What is wrong with a memory as a whole: its files at HEAD, its drafts, what is about to be committed, and
the state of its repository. It changes nothing; the rules are in `memory.rules`.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pygit2
from pygit2.enums import FileMode, RepositoryState

from letta_code.memory.git.layout import open_repository
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.hooks import missing_hooks
from letta_code.memory.rules import AGENT, Overrides, paths_with_problems
from letta_code.memory.secrets import masked
from letta_code.memory.snapshot import MemorySnapshot, Problem, SnapshotFiles

_REGULAR = (FileMode.BLOB, FileMode.BLOB_EXECUTABLE)


def opened_inside_git(git_dir: Path) -> MemoryRepository:
    """The memory at `git_dir` while a Git command holds its index: nothing is put in order first, since that
    would wait for the command that waits for us.

    Raises:
        MemoryStoreError: missing, damaged, or owned by another user.
    """
    git, worktree = open_repository(git_dir)
    return MemoryRepository(git, git_dir, worktree, index_wait=0)


def problems_of_head(snapshot: MemorySnapshot) -> tuple[Problem, ...]:
    """What is wrong with the files of a commit: all that the prompt cannot show as it should be, and all
    that the rules would refuse if it were written now. Secrets are masked."""
    files = {path: snapshot.objects.blob(id) for path, id in snapshot.entries.items()}
    found = [Problem(path, message) for path, message in paths_with_problems({}, files)]
    named = {problem.path for problem in found}
    shown = [Problem(p.path, masked(p.message)) for p in snapshot.problems if _tells_more(p, named)]
    return tuple(sorted([*shown, *found], key=lambda problem: problem.path))


def problems_of_drafts(repository: MemoryRepository, overrides: Overrides = AGENT) -> tuple[Problem, ...]:
    """What keeps the drafts of the work tree from being committed by whoever `overrides` stands for."""
    contents: dict[str, bytes | None] = {}
    found = []
    for draft in repository.status():
        file = repository.worktree / draft.path
        if draft.state == "deleted":
            contents[draft.path] = None
        elif stat.S_ISREG(file.lstat().st_mode):
            contents[draft.path] = file.read_bytes()
        else:
            found.append(Problem(draft.path, "is not a regular file"))
    return (*found, *_wrong(repository, contents, overrides))


def problems_of_index(
    repository: MemoryRepository, index: Path, overrides: Overrides = AGENT
) -> tuple[Problem, ...]:
    """What is wrong with the commit that Git would make of the index file `index`."""
    now = repository.snapshot()
    contents: dict[str, bytes | None] = dict.fromkeys(now.entries)
    found = []
    for entry in pygit2.Index(str(index)):
        id = str(entry.id)
        if now.entries.get(entry.path) == id:
            del contents[entry.path]
        elif entry.mode in _REGULAR:
            contents[entry.path] = repository.objects.blob(id)
        elif now.find(entry.path) is None:
            found.append(Problem(entry.path, "is a symbolic link or a submodule; memory holds files"))
    return (*found, *_wrong(repository, contents, overrides))


def problems_of_repository(repository: MemoryRepository) -> tuple[str, ...]:
    """What is wrong with the repository itself, a line each, with the remedy."""
    return tuple(_state(repository))


def _wrong(
    repository: MemoryRepository, contents: dict[str, bytes | None], overrides: Overrides
) -> tuple[Problem, ...]:
    files = SnapshotFiles(repository.snapshot())
    return tuple(Problem(*item) for item in paths_with_problems(files, contents, overrides))


def _tells_more(problem: Problem, named: set[str]) -> bool:
    """Whether the prompt's own problem is not what the rules say of that file too."""
    return problem.path not in named or "this is its text as of" in problem.message


def _state(repository: MemoryRepository) -> Iterator[str]:
    git = repository.git
    if git.head_is_detached:
        yield "HEAD is detached, so nothing can be committed: `git switch main` in the memory folder"
    if git.state() != RepositoryState.NONE:
        yield "a merge, revert or rebase is unfinished: `git status` in the memory folder says how to end it"
    if missing := missing_hooks(repository.git_dir):
        yield (
            f"plain `git commit` is not checked: {', '.join(missing)} in {repository.git_dir / 'hooks'} "
            "is not letta's; move it away and look again"
        )
    elif not _hooks_are_used(repository):
        yield (
            "plain `git commit` may not be checked: core.hooksPath does not lead to letta's hooks; run "
            f"git --git-dir {repository.git_dir} config core.hooksPath {repository.git_dir / 'hooks'}"
        )


def _hooks_are_used(repository: MemoryRepository) -> bool:
    config = repository.git.config
    if "core.hooksPath" not in config:
        return False  # then what the person set for all repositories would hold
    folder = repository.worktree / str(config["core.hooksPath"])
    return folder.resolve() == (repository.git_dir / "hooks").resolve()
