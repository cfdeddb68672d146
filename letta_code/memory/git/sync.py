"""Keeping memory in step with a remote: fetch, merge three-way, push.

Nothing here discards a commit: what cannot be joined is refused, and what HEAD leaves behind stays under
`refs/rescue/`. Fetching and pushing hold no lock; merging and moving HEAD hold the writers' locks. How
the remote is reached is in `transport`, how files are merged in `git.merge`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import pygit2

from letta_code.errors import MemoryConflict, MemoryEditError, MemoryRemoteError, MemoryStoreError
from letta_code.memory.git.beginning import is_fresh, only_begun
from letta_code.memory.git.merge import Change, Conflict, Keep, merge
from letta_code.memory.git.objects import tree_with
from letta_code.memory.git.remote import SYNCED, branch, target
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.history import Author, Provenance, commit_message
from letta_code.memory.rules import PERSON, Overrides, checked_path, problems_of
from letta_code.memory.snapshot import MemorySnapshot, SnapshotFiles, changed_paths
from letta_code.memory.transport import FETCHED, REMOTE, RemoteHeads, Transport

RESCUE = "refs/rescue/"

_ATTEMPTS = 8
_MADE_HERE: Overrides = frozenset({"read-only", "secret"})


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did. `received` and `sent` count commits; `problems` are about files that came from the
    remote; `settled` are the files that `keep` decided; `rescued` names the ref with what HEAD left."""

    outcome: Literal["up-to-date", "synced", "conflict"]
    head: str
    received: int = 0
    sent: int = 0
    merged: bool = False
    problems: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    rescued: str = ""


@dataclass(frozen=True, slots=True)
class _Joined:
    """How HEAD and the remote's commit came together."""

    problems: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    merged: bool = False
    rescued: str = ""


# Syncing -------------------------------------------------------------------------------------------


def sync(
    repository: MemoryRepository,
    transport: Transport,
    author: Author,
    agent: str = "",
    keep: Keep | None = None,
    adopt: bool = False,
) -> SyncReport:
    """Bring the remote's commits here and ours there. One sync at a time per memory: the caller sees to
    that. A conflict without `keep` is reported, and nothing is changed. `adopt` takes the remote's
    history where the two cannot be joined; ours stays under a rescue ref.

    Raises:
        MemoryRemoteError: git or the remote failed.
        MemoryEditError: drafts are in the way, or what came breaks the rules of memory files.
        MemoryStoreError: the histories have nothing in common or the remote's was rewritten (both are
            kept under rescue refs); or memory cannot be written. In every case HEAD is a whole commit.
    """
    _clear_dead_locks(repository)
    before, received, joined = repository.head(), 0, _Joined()
    sent = 0
    for attempt in range(_ATTEMPTS):
        heads = transport.heads()
        there = _branch_there(repository, heads)
        tip = _fetched(repository, transport, heads, there)
        if tip is not None:
            start = repository.head()
            try:
                joined = _added(joined, _join(repository, tip, author, agent, keep, adopt))
            except MemoryConflict:
                continue  # a plain Git command moved HEAD meanwhile
            if joined.conflicts:
                return SyncReport("conflict", repository.head(), conflicts=joined.conflicts)
            received += _count(repository, tip, start)
        head = repository.head()
        if head != tip:
            if not transport.push(head, there):
                time.sleep(random.uniform(0.02, 0.1) * (attempt + 1))
                continue
            sent += _count(repository, head, tip)
        _remember(repository, head, there)
        if repository.head() == head:
            changed = head != before or sent > 0
            return SyncReport(
                "synced" if changed else "up-to-date",
                head,
                received,
                sent,
                joined.merged,
                joined.problems,
                joined.settled,
                (),
                joined.rescued,
            )
    raise MemoryRemoteError(
        "others change memory or its remote all the time", "nothing is lost; sync again", retryable=True
    )


def _added(first: _Joined, then: _Joined) -> _Joined:
    return _Joined(
        first.problems + then.problems,
        first.settled + then.settled,
        then.conflicts,
        first.merged or then.merged,
        then.rescued or first.rescued,
    )


def _branch_there(repository: MemoryRepository, heads: RemoteHeads) -> str:
    """The remote's branch to sync with: the one with our name, else its default, when there are others."""
    ours = branch(repository)
    if ours in heads.branches or not heads.branches:
        return ours
    names = ", ".join(sorted(heads.branches)[:5])
    if heads.default not in heads.branches:
        raise MemoryStoreError(
            f"the remote has no branch {ours} and no default branch, only {names}",
            "is it the right repository? `letta memory remote show` shows the address",
        )
    if target(repository, f"refs/heads/{heads.default}") is not None:
        raise MemoryStoreError(
            f"memory is on the branch {ours}, which the remote has not; it has {names}",
            f"in the memory folder: git switch {heads.default}; or, once: git push origin {ours}",
        )
    return heads.default


def _fetched(
    repository: MemoryRepository, transport: Transport, heads: RemoteHeads, branch: str
) -> str | None:
    """The remote's commit, which is here now; None when the branch does not exist there."""
    tip = heads.branches.get(branch)
    if tip is None:
        return None
    if tip in (repository.head(), target(repository, SYNCED), target(repository, FETCHED)):
        return tip
    transport.fetch(branch)
    return target(repository, FETCHED)


def _remember(repository: MemoryRepository, revision: str, branch: str) -> None:
    references = repository.git.references
    try:
        references.create(SYNCED, pygit2.Oid(hex=revision), force=True)
        references.create(f"refs/remotes/{REMOTE}/{branch}", pygit2.Oid(hex=revision), force=True)
    except (OSError, pygit2.GitError) as error:
        raise MemoryStoreError(
            f"memory is synced, but cannot note it: {error}", "check the disk's free space and owner"
        ) from error


def _clear_dead_locks(repository: MemoryRepository) -> None:
    """Locks of our own refs: whoever made them is dead, since one sync runs at a time."""
    for lock in (repository.git_dir / "refs" / "letta").glob("*.lock"):
        lock.unlink(missing_ok=True)


# Joining two histories -----------------------------------------------------------------------------


def _join(
    repository: MemoryRepository, tip: str, author: Author, agent: str, keep: Keep | None, adopt: bool
) -> _Joined:
    """Make HEAD contain the remote's commit `tip`."""
    git, remote = repository.git, pygit2.Oid(hex=tip)
    with repository.engine.writing() as head:
        if head == remote:
            return _Joined()
        now, synced = repository.engine.snapshot(head), target(repository, SYNCED)
        rewritten = (
            synced is not None and synced != tip and not git.descendant_of(remote, pygit2.Oid(hex=synced))
        )
        base = git.merge_base(head, remote)
        if rewritten or base is None:
            return _unrelated(repository, now, tip, synced if rewritten else None, adopt)
        if base == remote:
            return _Joined()
        if base == head:
            return _Joined(_move(repository, now, tip))
        merged = merge(repository, str(base), now.revision, tip, keep)
        if merged.conflicts:
            return _Joined(conflicts=merged.conflicts)
        theirs = repository.engine.snapshot(remote)
        problems = _checked(repository, now, theirs, merged.changes, merging=True)
        tree = _tree(repository, now, merged.changes)
        words = _words(repository, now.revision, tip, keep, merged.settled)
        repository.engine.land(now, tree, commit_message(words, Provenance(agent=agent)), author, tip)
        return _Joined(problems, merged.settled, (), True)


def _words(
    repository: MemoryRepository, ours: str, theirs: str, keep: Keep | None, settled: tuple[str, ...]
) -> str:
    there, here = _count(repository, theirs, ours), _count(repository, ours, theirs)
    words = f"Sync: merge {_commits(there)} of the remote with {_commits(here)} made here"
    if settled:
        words += f"\n\nWhere both had changed the same text, kept {keep}: {', '.join(settled)}"
    return words


def _commits(count: int) -> str:
    return f"{count} commit{'' if count == 1 else 's'}"


def _unrelated(
    repository: MemoryRepository, now: MemorySnapshot, tip: str, synced: str | None, adopt: bool
) -> _Joined:
    """The remote's history is another one, or lacks what it had (`synced`)."""
    untouched = synced is None and only_begun(repository)
    ours = "" if untouched and is_fresh(repository) else _rescue(repository, now.revision, "local")
    if adopt or untouched:
        return _Joined(_move(repository, now, tip), rescued=ours)
    hint = (
        f"memory is as it was, and safe as {ours} too\n"
        "letta memory sync --adopt  takes the remote's history; yours stays under that name, from where\n"
        "  `letta memory restore PATH --from` that name brings a file back"
    )
    if synced is None:
        raise MemoryStoreError("the remote holds another memory, with no history in common", hint)
    old = _rescue(repository, synced, "remote")
    raise MemoryStoreError(
        f"the remote was rewritten: it no longer has {synced[:10]}, which was there at the last sync",
        f"{hint}\nwhat the remote had is safe as {old}; `git push --force` there puts yours back",
    )


def _rescue(repository: MemoryRepository, revision: str, what: str) -> str:
    """A ref that keeps `revision`; its short name."""
    references = repository.git.references
    for name in references:
        if name.startswith(RESCUE) and target(repository, name) == revision:
            return name.removeprefix("refs/")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{RESCUE}{stamp}-{what}-{revision[:7]}"
    references.create(name, pygit2.Oid(hex=revision), force=True)
    return name.removeprefix("refs/")


def _move(repository: MemoryRepository, now: MemorySnapshot, tip: str) -> tuple[str, ...]:
    """Set HEAD to `tip`; problems with the files that came."""
    theirs = repository.engine.snapshot(pygit2.Oid(hex=tip))
    changes: dict[str, Change] = {}
    for path in changed_paths(repository.objects, now.root, theirs.root):
        entry = theirs.find(path)
        mode = 0 if entry is not None and entry.kind != "file" else 1
        changes[path] = (entry.id, mode) if entry is not None else None
    problems = _checked(repository, now, theirs, changes, merging=False)
    repository.engine.fast_forward(now, tip)
    return problems


def _tree(repository: MemoryRepository, now: MemorySnapshot, changes: Mapping[str, Change]) -> str:
    return tree_with(repository.git, now.root, changes)


# What may come in ----------------------------------------------------------------------------------


def _checked(
    repository: MemoryRepository,
    now: MemorySnapshot,
    theirs: MemorySnapshot,
    changes: Mapping[str, Change],
    merging: bool,
) -> tuple[str, ...]:
    """Refuse what no memory can hold and what merging made wrong; tell what the remote itself has wrong.

    Raises:
        MemoryEditError: all that has to be corrected first.
    """
    wrong = [problem for path, change in changes.items() if change for problem in _unsafe(theirs, path)]
    if wrong:
        raise MemoryEditError("the remote holds what memory cannot: " + "; ".join(wrong), "remove it there")
    files = SnapshotFiles(now)
    contents = {
        path: repository.objects.blob(change[0]) if change is not None else None
        for path, change in changes.items()
    }
    came = {
        path: data
        for path, data in contents.items()
        if data is None or theirs.entries.get(path) == _id(changes[path])
    }
    if merging:
        # Of what came as it is, only the names can be wrong beside ours.
        names = {path: b"" if data is not None else None for path, data in came.items()}
        _refuse(files, contents | names)
    return problems_of(files, came, PERSON)


def _id(change: Change) -> str | None:
    return change[0] if change is not None else None


def _refuse(files: Mapping[str, bytes], changes: Mapping[str, bytes | None]) -> None:
    if problems := problems_of(files, changes, _MADE_HERE):
        raise MemoryEditError(
            "merged, the two sides would break the rules of memory: " + "; ".join(problems),
            "correct it here or on the other machine and sync again; memory is as it was",
        )


def _unsafe(theirs: MemorySnapshot, path: str) -> Iterator[str]:
    entry = theirs.find(path)
    if entry is not None and entry.kind == "other":
        yield f"{path!r}: is a symbolic link or a submodule"
        return
    try:
        checked_path(path)
    except MemoryEditError as error:
        yield error.message


def _count(repository: MemoryRepository, of: str, without: str | None) -> int:
    """How many commits `of` has that `without` has not."""
    git = repository.git
    if without is None:
        return sum(1 for _ in git.walk(pygit2.Oid(hex=of)))
    return git.ahead_behind(pygit2.Oid(hex=of), pygit2.Oid(hex=without))[0]
