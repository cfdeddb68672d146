"""Which project a folder belongs to, and the name (slug) under which memory keeps that project's facts.

A project's key is its remote where it has one (all spellings of one address are equal, so that clones
share), else the real path of its main repository (worktrees share; a submodule is its own project), else
the folder's real path. The slug is a readable name and a hash of the key. A register on disk remembers
the slugs by folder and by remote, so that a project that was moved, renamed or given a remote keeps its
own, and refuses one to two projects.

A remote is a claim: whoever unpacks a foreign `.git` folder that names another project's remote works in
that project's scope, as with a second clone of it. Nothing in a work tree alone can do that.
"""

from __future__ import annotations

import hashlib
import json
import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from letta_code.agent.file_birth import birth
from letta_code.agent.project_key import Found, find_project
from letta_code.errors import StorageError
from letta_code.paths import Paths
from letta_code.storage import locked, write_atomically

_NAME_BYTES = 60
_HASH = 12  # hex digits
_FOLDERS = 50  # of one project that are remembered


@dataclass(frozen=True, slots=True)
class Project:
    """A project: `slug` names its folder in memory and is empty where a folder is nobody's project (home,
    the file system's root); `root` is its folder, `remote` its normalised address or ""."""

    slug: str
    root: Path
    remote: str = ""


def project_of(folder: Path, register: ProjectRegister, remember: bool = True) -> Project:
    """The project that `folder` is in. Never fails: a register that cannot be read or written costs only
    that a moved project is not found again. Without `remember` nothing is written."""
    found = find_project(folder)
    if found is None:
        return Project("", Path(os.path.realpath(folder)))
    return Project(register.slug(found, remember), found.root, found.remote)


@dataclass(slots=True)
class _Known:
    """What is remembered of one project. `folders`: real path to (inode, time of birth or None)."""

    slug: str
    remotes: list[str]
    folders: dict[str, tuple[int, int | None]]


class ProjectRegister:
    """The slugs that were given, in one file of ours. A damaged file is kept aside, which `moved` tells, and
    counts as empty."""

    def __init__(self, paths: Paths) -> None:
        self._path = paths.known_projects()
        self.moved: Path | None = None

    def slug(self, found: Found, remember: bool = True) -> str:
        """The slug of a project: the one it had, else a new one, which is remembered if wanted."""
        here = _identity(found.place)
        known, _ = self._read()
        item = _match(known, found, here)
        if item is not None and not _note(known, item, found, here):
            return item.slug
        if not remember:
            return (item or _new(known, found)).slug
        try:
            busy = f"{self._path} is in use by another process"
            with locked(self._path.with_suffix(".lock"), 5, busy):
                known, damaged = self._read()
                item = _match(known, found, here) or _new(known, found)
                _note(known, item, found, here)
                if damaged:
                    os.replace(self._path, self._path.with_suffix(".damaged"))
                    self.moved = self._path.with_suffix(".damaged")
                write_atomically(self._path, _encoded(known))
        except (StorageError, OSError):
            item = item or _new(known, found)
        return item.slug

    def _read(self) -> tuple[list[_Known], bool]:
        """What is known, and whether the file is there and says nothing that we understand."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return [], False
        try:
            return [_decoded(slug, item) for slug, item in json.loads(data).items()], False
        except (ValueError, TypeError, KeyError, AttributeError):
            return [], True


def _match(known: list[_Known], found: Found, here: tuple[int, int | None]) -> _Known | None:
    """The project that `found` is: the same folder wherever it lies now, else the same remote, else the
    same path where neither has a remote."""
    path = str(found.place)
    for item in known:
        if path in item.folders and _same(item.folders[path], here):
            return item
    for item in known:
        if here[1] is not None and here in item.folders.values():
            return item
    for item in known:
        if found.remote and found.remote in item.remotes:
            return item
    for item in known:
        if path in item.folders and not found.remote and not item.remotes:
            return item  # made anew at its old place
    return None


def _same(one: tuple[int, int | None], other: tuple[int, int | None]) -> bool:
    if one[1] is None or other[1] is None:
        return one[0] == other[0]
    return one == other


def _note(known: list[_Known], item: _Known, found: Found, here: tuple[int, int | None]) -> bool:
    """Remember in `item` where and what the project is now; returns whether that is news."""
    path = str(found.place)
    before = (list(item.remotes), dict(item.folders))
    for old in [old for old, identity in item.folders.items() if identity == here and old != path]:
        if here[1] is not None:
            del item.folders[old]  # moved
    item.folders[path] = here
    for old in list(item.folders)[:-_FOLDERS]:
        del item.folders[old]
    if found.remote and not any(found.remote in other.remotes for other in known):
        # A folder that was given another remote takes its memory along; other clones keep theirs.
        item.remotes = [*item.remotes, found.remote] if len(item.folders) > 1 else [found.remote]
    for other in known:
        if other is not item:
            other.folders.pop(path, None)
    return before != (item.remotes, item.folders)


def _new(known: list[_Known], found: Found) -> _Known:
    key = f"remote {found.remote}" if found.remote else f"path {found.place}"
    name = _readable((found.remote or str(found.place)).rstrip("/").rpartition("/")[2])
    taken = {item.slug for item in known}
    slug = next(slug for slug in _slugs(name, key) if slug not in taken)
    item = _Known(slug, [], {})
    known.append(item)
    return item


def _slugs(name: str, key: str) -> Iterator[str]:
    number = 1
    while True:
        text = key if number == 1 else f"{key} {number}"
        yield f"{name}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:_HASH]}"
        number += 1


def _readable(name: str) -> str:
    """`name` as part of a memory file's name: letters and digits of any script, dots, dashes."""
    text = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode("utf-8"))
    text = unicodedata.normalize("NFC", text.casefold())
    kept = "".join(
        c if c.isalnum() or c in "._-" or unicodedata.category(c) in ("Mn", "Mc") else "-" for c in text
    )
    short = kept.encode("utf-8")[:_NAME_BYTES].decode("utf-8", "ignore").strip("-._")
    return short or "project"


def _identity(place: Path) -> tuple[int, int | None]:
    """Inode and time of birth (nanoseconds) of a folder: what stays when it is moved. Device numbers do
    not stay over a restart, so they are left out."""
    try:
        return os.stat(place).st_ino, birth(place)
    except OSError:
        return 0, None


def _encoded(known: list[_Known]) -> bytes:
    data: dict[str, Any] = {
        item.slug: {"remotes": item.remotes, "folders": {k: list(v) for k, v in item.folders.items()}}
        for item in known
    }
    return (json.dumps(data, indent=2, ensure_ascii=True) + "\n").encode("ascii")


def _decoded(slug: str, item: Any) -> _Known:
    remotes, folders = item["remotes"], item["folders"]
    if not slug or "/" in slug or slug.startswith("."):
        raise ValueError("a slug is one plain name")
    if not isinstance(remotes, list) or not all(isinstance(remote, str) for remote in remotes):
        raise ValueError("remotes are not a list of strings")
    return _Known(slug, remotes, {str(path): (int(at[0]), at[1]) for path, at in folders.items()})
