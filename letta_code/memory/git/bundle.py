"""A whole history as one file, in Git's own bundle format: `git bundle verify` and `git clone` read it.
Writing needs no git program; reading has git check what came, in a repository of its own, before memory
sees it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pygit2
from pygit2.enums import FileMode, RepositoryOpenFlag, SortMode

from letta_code.errors import MemoryEditError, MemoryStoreError, UsageError
from letta_code.memory.git.beginning import is_fresh
from letta_code.memory.git.objects import GitObjects
from letta_code.memory.git.remote import branch
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.importing.plan import holds_secrets
from letta_code.memory.importing.sources import TOTAL_LIMIT, Gathered, Skipped, is_bundle
from letta_code.memory.rules import checked_path
from letta_code.memory.secrets import found, masked
from letta_code.memory.snapshot import MemorySnapshot
from letta_code.storage import write_atomically

_FETCHED = "refs/letta/imported"
_FILES = (FileMode.BLOB, FileMode.BLOB_EXECUTABLE)
_SECONDS = 300.0
_ID = re.compile(r"[0-9a-f]{40}\Z")


def write_bundle(repository: MemoryRepository, target: Path) -> str:
    """Write the history of memory's branch as the file `target`; the commit it ends with. A bundle that is
    there is replaced.

    Raises:
        UsageError: another file is there.
        MemoryStoreError: the history is not whole.
        StorageError: it cannot be written.
    """
    if os.path.lexists(target) and not is_bundle(target):
        raise UsageError(f"{target} exists and is no bundle", "name a new file")
    git, head = repository.git, repository.head()
    if git.is_shallow:
        raise MemoryStoreError(
            "memory is a shallow clone, without its earlier history",
            "run `git fetch --unshallow` in its folder",
        )

    def add(builder: pygit2.PackBuilder) -> None:
        for commit in git.walk(pygit2.Oid(hex=head), SortMode.TOPOLOGICAL):
            builder.add_recur(commit.id)

    with tempfile.TemporaryDirectory() as folder:
        try:
            git.pack(folder, add)
        except (KeyError, pygit2.GitError) as error:
            raise MemoryStoreError(
                f"memory's history cannot be packed: {error}", "look with `git fsck` in the memory folder"
            ) from error
        [pack] = Path(folder).glob("*.pack")
        header = f"# v2 git bundle\n{head} refs/heads/{branch(repository)}\n{head} HEAD\n\n"
        write_atomically(target, header.encode("utf-8", "surrogateescape") + pack.read_bytes())
    return head


@dataclass(frozen=True, slots=True)
class History:
    """A history that is not memory's: the commit it ends with, the files there, where it is from, and the Git
    directory that has it while it is open."""

    revision: str
    files: Gathered
    source: Path
    copy: Path


@contextmanager
def opened_history(path: Path, environment: Mapping[str, str]) -> Iterator[History]:
    """The history in a bundle or a Git directory, checked. Raises when the block begins.

    Raises:
        MemoryStoreError: git is missing, the history is damaged or has no branch.
        UsageError: it is too large.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.git"
        pygit2.init_repository(str(copy), bare=True)
        _fetch(copy, path, environment)
        git = pygit2.Repository(str(copy), RepositoryOpenFlag.NO_SEARCH)
        commit = git[git.references[_FETCHED].target].peel(pygit2.Commit)
        gathered = Gathered()
        objects = GitObjects(git)
        for name, entry in MemorySnapshot(str(commit.id), str(commit.tree_id), objects).walk(
            str(commit.tree_id)
        ):
            if entry.kind != "file":
                gathered.skip(name, "is a symbolic link or a submodule")
                continue
            if gathered.size + _size(git, entry.id) > TOTAL_LIMIT:
                raise UsageError(f"{path}: its files have more than {TOTAL_LIMIT >> 20} MB")
            gathered.take(name, objects.blob(entry.id))
        yield History(str(commit.id), gathered, path, copy)
        git.free()


def past_secrets(history: History) -> tuple[Skipped, ...]:
    """What looks like a secret in the reasons of an open history, and in files that its last commit no longer
    has so. The secrets are masked."""
    git = pygit2.Repository(str(history.copy), RepositoryOpenFlag.NO_SEARCH)
    last = git[history.revision].peel(pygit2.Commit)
    seen = set(MemorySnapshot(str(last.id), str(last.tree_id), GitObjects(git)).entries.values())
    past: list[Skipped] = []

    def look(where: str, text: str) -> None:
        if secrets := found(text):
            past.append(Skipped(masked(where), holds_secrets(secrets)))

    for commit in git.walk(last.id):
        name = str(commit.id)[:10]
        look(f"the reason of {name}", commit.message)
        trees = [parent.tree for parent in commit.parents]
        diffs = [tree.diff_to_tree(commit.tree) for tree in trees] or [commit.tree.diff_to_tree(swap=True)]
        for delta in (delta for diff in diffs for delta in diff.deltas):
            id = str(delta.new_file.id)
            if id not in seen and delta.new_file.mode in _FILES:
                seen.add(id)
                data = git[id].peel(pygit2.Blob).data
                look(f"{delta.new_file.path} in {name}", data.decode("utf-8", "replace"))
    git.free()
    return tuple(past)


def take_history(repository: MemoryRepository, history: History, environment: Mapping[str, str]) -> None:
    """Give a fresh memory this history: the same commits.

    Raises:
        MemoryStoreError: memory is not fresh any more, cannot hold the files, or cannot be written.
    """
    _refuse_unsafe(history)
    _fetch(repository.git_dir, history.source, environment)
    try:
        with repository.engine.writing() as head:
            if not is_fresh(repository):
                raise MemoryStoreError(
                    "memory has learned something meanwhile", "import again: files are merged"
                )
            repository.engine.fast_forward(repository.engine.snapshot(head), history.revision)
    finally:
        if repository.git.references.get(_FETCHED) is not None:
            repository.git.references.delete(_FETCHED)


def _refuse_unsafe(history: History) -> None:
    wrong = [f"{one.path!r}: {one.why}" for one in history.files.skipped]
    for path in history.files.files:
        try:
            checked_path(path)
        except MemoryEditError as error:
            wrong.append(error.message)
    if wrong:
        raise MemoryEditError(
            "the history holds what memory cannot: " + "; ".join(wrong[:5]),
            "--as export imports its files without the history",
        )


def _size(git: pygit2.Repository, id: str) -> int:
    return int(git.odb.read_header(pygit2.Oid(hex=id))[1])


def _fetch(git_dir: Path, path: Path, environment: Mapping[str, str]) -> None:
    """Have the branch of the history in `path` as `_FETCHED`."""
    heads: dict[str, str] = {}
    for line in _git(git_dir, environment, "ls-remote", "--", str(path)).splitlines():
        revision, _, name = line.partition("\t")
        if _ID.match(revision):
            heads[name] = revision
    names = [name for name in heads if name.startswith("refs/heads/")]
    preferred = [name for name in ("HEAD", "refs/heads/main", "refs/heads/master") if name in heads]
    chosen = preferred[0] if preferred else names[0] if len(names) == 1 else None
    if chosen is None:
        raise MemoryStoreError(f"{path} holds no history: it has {len(names)} branches and no HEAD")
    words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--refmap=", "--", str(path))
    _git(git_dir, environment, *words, f"+{chosen}:{_FETCHED}")


def _git(git_dir: Path, environment: Mapping[str, str], *words: str) -> str:
    program = shutil.which("git", path=environment.get("PATH"))
    if program is None:
        raise MemoryStoreError("git is not installed, and reading a history needs it", "install git")
    options = [f"--git-dir={git_dir}", "-c", "fetch.fsckObjects=true", "-c", "core.hooksPath=/dev/null"]
    options += ["-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "fetch.recurseSubmodules=no"]
    clean = {
        "PATH": environment.get("PATH", os.defpath),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ALLOW_PROTOCOL": "file",
        "GIT_TERMINAL_PROMPT": "0",
    }
    try:
        done = subprocess.run(
            [program, *options, *words],
            cwd=git_dir,
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MemoryStoreError(f"git {words[0]} failed: {error}") from error
    errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
    if done.returncode != 0:
        raise MemoryStoreError(
            f"the history cannot be read: {'; '.join(errors[:3])}", "is the file whole? Memory is as it was"
        )
    return done.stdout.decode("utf-8", "surrogateescape")
