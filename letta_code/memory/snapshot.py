"""One commit's files, read by object id: what the prompt is made of.

A snapshot never changes and never mixes commits. Folders are listed and files are read when they are
needed, so that a large memory costs nothing until it is looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

from letta_code.errors import MemoryEditError, MemoryStoreError
from letta_code.memory.blocks import Block
from letta_code.memory.rules import MARKERS, Folders, clashes, has_markers, is_over_limit, repeated_keys


class Entry(NamedTuple):
    """One name in a folder. `kind` "other" is a symbolic link or a submodule: listed, never followed.
    `name` of bytes that are not UTF-8 holds surrogates."""

    name: str
    kind: Literal["file", "folder", "other"]
    id: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """A memory file that the model cannot be shown as it should be."""

    path: str
    message: str


class Objects(Protocol):
    """Reads objects by id; folders, counts and blocks are remembered."""

    def folder(self, id: str) -> tuple[Entry, ...]:
        """The entries of a tree, by code point of their names."""
        ...

    def names(self, id: str) -> int:
        """How many entries a tree has."""
        ...

    def files_below(self, id: str) -> int:
        """How many files a tree holds, all levels."""
        ...

    def blob(self, id: str) -> bytes:
        """The content of a file."""
        ...

    def block(self, path: str, id: str) -> Block:
        """The parsed file.

        Raises:
            MemoryEditError: it cannot be read as a memory file.
        """
        ...


class Ancestors(Protocol):
    """Reads history backwards from a commit."""

    def versions(self, revision: str, path: str) -> Iterator[tuple[str, str]]:
        """Earlier contents of a file, newest first: the commit that held it last and the blob's id."""
        ...


class MemorySnapshot:
    """The files of the commit `revision`. With `ancestors`, a block that cannot be read has the text of the
    last version that could; that is a function of the commit too, which names its history."""

    def __init__(
        self, revision: str, root: str, objects: Objects, ancestors: Ancestors | None = None
    ) -> None:
        self.revision = revision
        self.root = root
        self.objects = objects
        self._ancestors = ancestors

    @cached_property
    def entries(self) -> Mapping[str, str]:
        """Blob id (hex) of every file, by path in code point order."""
        return dict(sorted((path, entry.id) for path, entry in self.walk(self.root) if entry.kind == "file"))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of `system/`, hidden ones included, by path: as they are, or as they last could be read
        (then `problems` says so)."""
        return self._system[0]

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the files of `system/`."""
        return self._system[1]

    @cached_property
    def _system(self) -> tuple[tuple[Block, ...], tuple[Problem, ...]]:
        blocks: list[Block] = []
        problems: list[Problem] = []
        root = self.find("system")
        listed = self.walk(root.id, "system/") if root is not None and root.kind == "folder" else ()
        for path, entry in sorted(listed, key=lambda item: item[0]):
            if not path.endswith(".md"):
                continue
            problem = _unreadable(path, entry)
            if problem is None:
                block, wrong = self._block(path, entry.id)
                if wrong:
                    block, wrong = self._last_good(path, wrong)
                    problems.append(Problem(path, wrong))
                if block is not None:
                    blocks.append(block)
                    problems += (Problem(path, message) for message in _flaws(block))
            else:
                problems.append(Problem(path, problem))
        problems += (Problem(path, message) for path, message in clashes([b.path for b in blocks]))
        return tuple(blocks), tuple(problems)

    def _block(self, path: str, id: str) -> tuple[Block | None, str]:
        """The block, or why it cannot be used."""
        try:
            block = self.objects.block(path, id)
        except MemoryEditError as error:
            return None, error.message.removeprefix(f"{path}: ")
        return (None, MARKERS) if has_markers(block.text) else (block, "")

    def _last_good(self, path: str, wrong: str) -> tuple[Block | None, str]:
        for revision, blob in self._ancestors.versions(self.revision, path) if self._ancestors else ():
            block, _ = self._block(path, blob)
            if block is not None:
                return block, f"{wrong}; this is its text as of {revision[:7]}"
        return None, wrong

    def find(self, path: str) -> Entry | None:
        """The entry at `path`, None when there is none."""
        entry = Entry("", "folder", self.root)
        for part in path.split("/"):
            if entry.kind != "folder":
                return None
            names = self.objects.folder(entry.id)
            at = bisect_left(names, part, key=_name)
            if at == len(names) or names[at].name != part:
                return None
            entry = names[at]
        return entry

    def read(self, path: str) -> bytes:
        """The content of one file.

        Raises:
            MemoryStoreError: there is no such file in this commit.
        """
        entry = self.find(path)
        if entry is None or entry.kind != "file":
            raise MemoryStoreError(f"no file {path!r} in memory at {self.revision[:7]}")
        return self.objects.blob(entry.id)

    def walk(self, tree: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        """Every file and other entry below a folder, with its path."""
        for entry in self.objects.folder(tree):
            if entry.kind == "folder":
                yield from self.walk(entry.id, f"{prefix}{entry.name}/")
            else:
                yield prefix + entry.name, entry


class SnapshotFiles(Folders):
    """The files of a snapshot; each is read when asked for."""

    def __init__(self, snapshot: MemorySnapshot) -> None:
        self._snapshot = snapshot

    def __getitem__(self, path: str) -> bytes:
        entry = self._snapshot.find(path)
        if entry is None or entry.kind != "file":
            raise KeyError(path)
        return self._snapshot.objects.blob(entry.id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._snapshot.entries)

    def __len__(self) -> int:
        return len(self._snapshot.entries)

    def __contains__(self, path: object) -> bool:
        entry = self._snapshot.find(path) if isinstance(path, str) else None
        return entry is not None and entry.kind == "file"

    def inside(self, folder: str) -> Iterator[str]:
        """The names in `folder`; a folder's ends with `/`."""
        snapshot = self._snapshot
        entry = snapshot.find(folder.rstrip("/")) if folder else Entry("", "folder", snapshot.root)
        if entry is not None and entry.kind == "folder":
            for one in snapshot.objects.folder(entry.id):
                if one.kind != "other":
                    yield one.name + "/" if one.kind == "folder" else one.name


def changed_paths(objects: Objects, old: str | None, new: str | None, prefix: str = "") -> list[str]:
    """Paths whose content differs between two trees (ids; None is empty); equal folders are not opened."""
    before = {entry.name: entry for entry in objects.folder(old)} if old else {}
    after = {entry.name: entry for entry in objects.folder(new)} if new else {}
    changed: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        trees = [e.id if e is not None and e.kind == "folder" else None for e in (was, now)]
        if any(trees):
            changed += changed_paths(objects, trees[0], trees[1], f"{prefix}{name}/")
        if any(e is not None and e.kind != "folder" for e in (was, now)):
            changed.append(prefix + name)
    return changed


def _name(entry: Entry) -> str:
    return entry.name


def _unreadable(path: str, entry: Entry) -> str | None:
    if entry.kind == "other":
        return "is a symbolic link or a submodule; only its target's own file can be a block"
    if any("\ud800" <= char <= "\udfff" for char in path):
        return "its name is not UTF-8"
    return None


def _flaws(block: Block) -> Iterator[str]:
    if is_over_limit(block):
        yield f"is over its limit: {len(block.body):,} of {block.limit or 0:,} characters"
    if block.repeated:
        yield f"{repeated_keys(block.repeated)}; the last one counts"
