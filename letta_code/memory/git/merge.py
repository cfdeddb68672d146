"""Merging two lines of memory's history, three-way as Git does, and what to do where both changed the same.

A result is a set of changes to our side, not yet committed. Which remote, which refs and whether the
result may be committed is for `git.sync`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

import pygit2
from pygit2.enums import FileMode, MergeFavor

from letta_code.errors import MemoryEditError, MemoryStoreError
from letta_code.memory.blocks import parse_block
from letta_code.memory.git.log import log
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.history import MemoryCommit
from letta_code.memory.snapshot import MemorySnapshot

Keep = Literal["ours", "theirs", "both"]
"""What wins where both sides changed the same text: this machine's, the remote's, or the lines of both."""

Change = tuple[str, int] | None
"""Blob id and Git mode; None deletes."""

_FAVOR = {
    None: MergeFavor.NORMAL,
    "ours": MergeFavor.OURS,
    "theirs": MergeFavor.THEIRS,
    "both": MergeFavor.NORMAL,
}
_Entry = pygit2.IndexEntry | None


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a conflict: its path, the text of the passages in question (None: the file is deleted)
    and the commit that last changed it (None: not known)."""

    path: str
    texts: tuple[str, ...] | None
    commit: MemoryCommit | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A file that both sides changed in the same place; passage n of one side meets passage n of the
    other. A side that has no such file under this name (renamed, or new here) is None."""

    path: str
    ours: Side | None
    theirs: Side | None


@dataclass(frozen=True, slots=True)
class Merged:
    """Changes to our side by path, and what could not be merged; `settled` are paths that `keep` decided."""

    changes: Mapping[str, Change]
    conflicts: tuple[Conflict, ...]
    settled: tuple[str, ...]


def merge(repository: MemoryRepository, base: str, ours: str, theirs: str, keep: Keep | None) -> Merged:
    """Merge the commit `theirs` into `ours`; `base` is their common ancestor.

    Raises:
        MemoryEditError: `keep` is "both" and a file is not text.
        MemoryStoreError: an object is damaged.
    """
    git = repository.git
    try:
        index = git.merge_commits(pygit2.Oid(hex=ours), pygit2.Oid(hex=theirs), favor=_FAVOR[keep])
        triples = list(index.conflicts) if index.conflicts is not None else []
    except (KeyError, pygit2.GitError) as error:
        raise MemoryStoreError(
            f"the two histories cannot be merged: {error}", "look with `git fsck` in the memory folder"
        ) from error
    disputed = {entry.path for triple in triples for entry in triple if entry is not None}
    result: dict[str, Change] = {
        entry.path: (str(entry.id), int(entry.mode)) for entry in index if entry.path not in disputed
    }
    now = repository.snapshot(ours)
    if triples and keep is None:
        return Merged({}, tuple(_described(repository, base, ours, theirs, triples)), ())
    for triple in triples:
        for path, change in _kept(repository, triple, cast(Keep, keep)):
            if path not in result or change is not None:
                result[path] = change
    settled = disputed if keep == "both" else disputed | _contested(repository, ours, theirs)
    return Merged(_changes(now, result), (), tuple(sorted(settled)) if keep is not None else ())


def _contested(repository: MemoryRepository, ours: str, theirs: str) -> set[str]:
    """Files with passages that a favoured merge decided."""
    plain = repository.git.merge_commits(pygit2.Oid(hex=ours), pygit2.Oid(hex=theirs))
    triples = plain.conflicts if plain.conflicts is not None else ()
    return {entry.path for triple in triples for entry in triple if entry is not None}


def _changes(now: MemorySnapshot, result: Mapping[str, Change]) -> dict[str, Change]:
    """What makes our side into `result`, a whole set of files."""
    changes: dict[str, Change] = {}
    present: dict[str, Change] = {}
    for path, entry in now.walk(now.root):
        mode = FileMode.BLOB_EXECUTABLE if entry.executable else FileMode.BLOB
        present[path] = (entry.id, int(mode) if entry.kind == "file" else 0)
    for path in sorted(present.keys() | result.keys()):
        before, after = present.get(path), result.get(path)
        if before is not None and before[1] == 0 and after is not None and after[0] == before[0]:
            continue  # a link or submodule that nobody touched
        if before != after:
            changes[path] = after
    return changes


def _kept(
    repository: MemoryRepository, triple: tuple[_Entry, _Entry, _Entry], keep: Keep
) -> Iterator[tuple[str, Change]]:
    """The files that a conflict becomes: deleted against edited keeps what `keep` says, "both" the edit."""
    before, ours, theirs = triple
    for entry in triple:
        if entry is not None:
            yield str(entry.path), None
    if keep != "both":
        winner = ours if keep == "ours" else theirs
        if winner is not None:
            yield str(winner.path), (str(winner.id), int(winner.mode))
    elif ours is not None and theirs is not None:
        read = repository.objects.blob
        data = lines_of_both(
            repository,
            str(ours.path),
            read(str(before.id)) if before is not None else b"",
            read(str(ours.id)),
            read(str(theirs.id)),
        )
        yield str(ours.path), (str(repository.git.create_blob(data)), int(ours.mode))
    else:
        edited = ours or theirs
        if edited is not None:
            yield str(edited.path), (str(edited.id), int(edited.mode))


def lines_of_both(
    repository: MemoryRepository, path: str, before: bytes, ours: bytes, theirs: bytes
) -> bytes:
    """One text with the lines of both: the body has our lines and then theirs where both changed the same
    place; the front matter is merged, and where both changed the same line, ours holds.

    Raises:
        MemoryEditError: a side is not text.
    """
    for data in (ours, theirs):
        if b"\0" in data:
            raise MemoryEditError(
                f"{path}: is not text, so it cannot hold both", "choose --keep ours or --keep theirs"
            )
    parts = [_parts(path, data) for data in (before, ours, theirs)]
    header = _merged_text(repository.git, [part[0] for part in parts], MergeFavor.OURS)
    body = _merged_text(repository.git, [part[1] for part in parts], MergeFavor.UNION)
    try:
        if path.endswith(".md"):
            parse_block(path, header + body)
    except MemoryEditError:
        header = parts[1][0]  # merged line by line it makes no sense
    return header + body


def _parts(path: str, data: bytes) -> tuple[bytes, bytes]:
    """Front matter and body."""
    if not path.endswith(".md"):
        return b"", data
    try:
        block = parse_block(path, data)
    except MemoryEditError:
        return b"", data
    return block.text[: block.body_start].encode("utf-8"), block.body.encode("utf-8")


def _merged_text(git: pygit2.Repository, texts: list[bytes], favor: MergeFavor) -> bytes:
    """Before, ours and theirs as one."""
    trees = []
    for text in texts:
        builder = git.TreeBuilder()
        builder.insert("text", git.create_blob(text), FileMode.BLOB)
        trees.append(builder.write())
    index = git.merge_trees(trees[0], trees[1], trees[2], favor=favor)
    return cast("pygit2.Blob", git[index["text"].id]).data


# Conflicts, for people -----------------------------------------------------------------------------


def _described(
    repository: MemoryRepository,
    base: str,
    ours: str,
    theirs: str,
    triples: list[tuple[_Entry, _Entry, _Entry]],
) -> Iterator[Conflict]:
    for before, mine, other in triples:
        entry = before or mine or other
        assert entry is not None
        if before is not None and mine is None and other is None:
            continue  # the old name of a file that got two new ones; those are listed
        passages = _passages(repository, before, mine, other)
        sides: list[Side | None] = []
        for side, revision, texts in ((mine, ours, passages[0]), (other, theirs, passages[1])):
            if side is None and before is None:
                sides.append(None)
                continue
            path = str((side or entry).path)
            commit = _last_change(repository, path, revision, base)
            sides.append(Side(path, texts if side is not None else None, commit))
        yield Conflict(str((mine or other or entry).path), sides[0], sides[1])


def _passages(
    repository: MemoryRepository, before: _Entry, ours: _Entry, theirs: _Entry
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The passages in question of both sides; whole texts where there is nothing to compare."""
    if ours is None or theirs is None:
        return _whole(repository, ours), _whole(repository, theirs)
    texts = [repository.objects.blob(str(entry.id)) for entry in (ours, theirs)]
    if any(b"\0" in text for text in texts):
        return ("(not text)",), ("(not text)",)
    marked = repository.git.merge_file_from_index(before, ours, theirs)
    contents = marked if isinstance(marked, str) else marked.contents
    return _between_markers(contents or "")


def _between_markers(marked: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The passages between conflict markers: ours and theirs."""
    found: tuple[list[str], list[str]] = ([], [])
    side: int | None = None
    lines: list[str] = []
    for line in marked.splitlines():
        if side is None and line.startswith("<<<<<<< "):
            side, lines = 0, []
        elif side == 0 and line == "=======":
            found[0].append("\n".join(lines))
            side, lines = 1, []
        elif side == 1 and line.startswith(">>>>>>> "):
            found[1].append("\n".join(lines))
            side = None
        elif side is not None:
            lines.append(line)
    return tuple(found[0]), tuple(found[1])


def _whole(repository: MemoryRepository, entry: _Entry) -> tuple[str, ...]:
    if entry is None:
        return ()
    data = repository.objects.blob(str(entry.id))
    return (data.decode("utf-8", "replace").rstrip("\n") if b"\0" not in data else "(not text)",)


def _last_change(repository: MemoryRepository, path: str, revision: str, base: str) -> MemoryCommit | None:
    found = log(repository, 1, path, revision)
    return found[0] if found and found[0].revision != base else None
