"""Copies of a project's files, so that what a shell command destroys can be brought back.

One folder for each project, in the cache: `GENERATION.pack` holds contents, `GENERATION.jsonl` is an
append-only index of what each file was when it was last looked at. A file whose status (size, times, inode,
mode) is as in the index is not read again, so that only the first copy costs more than a look at each file.
A moment of the index (`Mark`) says what the project was then, also after a crash. A generation that has
grown too large is given up for a new one.

Which files there are is told by the caller (Git's ignore rules are not known here); symlinks beside them
are found here. The copies are for minutes: what a command did change is kept elsewhere for good.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import from_json

from letta_code.storage import locked
from letta_code.undo.states import State
from letta_code.undo.store import Mark

COPIED = 4_000_000
"""Bytes of the largest file that is copied."""

COPIED_IN_ALL = 128_000_000
"""Bytes of copies of a project; files beyond are not copied, the largest first."""

SECONDS = 3.0
"""The longest that copying may hold a command up; the next command goes on with it."""

_INDEX = 32_000_000  # bytes of an index that is given up
_TICK = 20_000_000  # nanoseconds: most file systems stamp times no coarser than that
_COARSE_TICK = 2_000_000_000  # of FAT; ext3 and HFS+ have whole seconds
_UNUSED = 30 * 86_400  # seconds after which copies of another project are removed

Key = tuple[int, int, int, int, int]
"""Size, mtime and ctime in nanoseconds, inode, mode: as long as it is the same, so is the file."""


@dataclass(frozen=True, slots=True)
class Found:
    """A look at the project: files and symlinks by relative path, the folders seen, what was there beside
    them without being listed (files, and folders that were not looked into), and when it began (nanoseconds
    since 1970)."""

    files: dict[str, Key]
    links: dict[str, str]
    folders: frozenset[str]
    hidden: frozenset[str]
    at: int

    def held(self, path: str) -> bool:
        """Whether something was at `path`, listed or not, or may have been."""
        if path in self.files or path in self.links:
            return True
        while path:
            if path in self.hidden:
                return True
            path = os.path.dirname(path)
        return False


@dataclass(frozen=True, slots=True)
class Copy:
    """What the index knows of a file. `offset` is -1 where the content was not copied. `young`: the file
    had been changed so shortly before that its key may not tell a further change."""

    key: Key
    sha256: str
    offset: int
    young: bool

    @property
    def state(self) -> State:
        """The file as a state."""
        problem = "" if self.offset >= 0 else f"larger than {COPIED // 1_000_000} MB, or no room was left"
        return State("file", self.sha256, stat.S_IMODE(self.key[4]), self.key[0], problem=problem)


def survey(project: Path, listing: Iterable[str]) -> Found:
    """Look at the files of `listing` (relative paths), and at the symlinks beside them."""
    at = time.time_ns()
    names: dict[str, set[str]] = {"": set()}
    for path in listing:
        folder, _, name = path.rpartition("/")
        if folder not in names:
            for parent in _with_parents(folder):
                names.setdefault(parent, set())
        names[folder].add(name)
    files: dict[str, Key] = {}
    links: dict[str, str] = {}
    hidden: set[str] = set()
    folders = set(names)
    for folder, wanted in names.items():
        try:
            entries = list(os.scandir(os.path.join(project, folder)))
        except OSError:
            hidden.add(folder)  # it vanished meanwhile, or may not be looked at
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            try:
                if entry.name in wanted:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        files[path] = key_of(status)
                elif entry.is_symlink():
                    links[path] = os.readlink(entry.path)
                elif not entry.is_dir(follow_symlinks=False):
                    hidden.add(path)
                elif path not in names:
                    folders.add(path)
                    hidden |= _unlisted(path, entry.path)
            except FileNotFoundError:
                continue  # it vanished meanwhile
    return Found(files, links, frozenset(folders), frozenset(hidden), at)


def _with_parents(folder: str) -> Iterable[str]:
    while folder:
        yield folder
        folder = os.path.dirname(folder)


def _unlisted(folder: str, place: str) -> set[str]:
    """What a folder without listed files holds; not what is deeper, which may be very much."""
    try:
        return {f"{folder}/{name}" for name in os.listdir(place)}
    except OSError:
        return {folder}


def latest(stamp: int) -> int:
    """The latest moment that a file system may have noted as `stamp` (nanoseconds): whole seconds are the
    sign of one that knows no finer."""
    return stamp + (_TICK if stamp % 1_000_000_000 else _COARSE_TICK)


def key_of(status: os.stat_result) -> Key:
    """What tells whether a file is still the same."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode


class ProjectCopies:
    """The copies of one project, shared by all conversations and processes that work there."""

    def __init__(self, folder: Path, project: Path) -> None:
        self._folder = folder
        self._project = project
        self._generation = ""
        self._read = 0
        self._copies: dict[str, Copy] = {}
        self._links: dict[str, str] = {}
        self._packed = 0

    def update(self, found: Found) -> Mark:
        """Copy what changed since the last time, and note what the project is now.

        Raises:
            StorageError: our folder cannot be written, or is in use for long. OSError: likewise.
        """
        with locked(self._folder / "copies.lock", 10, f"{self._folder} is in use by another process"):
            self._catch_up()
            if not self._generation or self._read > _INDEX or self._packed > 2 * COPIED_IN_ALL:
                self._begin()
            try:
                self._add(found)
            except OSError:
                self._generation = ""  # what was noted here is not on the disk
                raise
            return Mark(self._generation, self._read)

    def before(self, path: str) -> Copy | None:
        """What the index knows of a file, as of the last `update`."""
        return self._copies.get(path)

    def content(self, copy: Copy, generation: str = "") -> bytes | None:
        """The content of a copy, None when there is none."""
        if copy.offset < 0:
            return None
        try:
            with (self._folder / f"{generation or self._generation}.pack").open("rb") as pack:
                pack.seek(copy.offset)
                raw = pack.read(copy.key[0])
        except OSError:
            return None
        return raw if hashlib.sha256(raw).hexdigest() == copy.sha256 else None

    def at(self, mark: Mark) -> tuple[dict[str, Copy], dict[str, str]] | None:
        """Files and symlinks at that moment; None when the copies of that time are gone."""
        try:
            with (self._folder / f"{mark.generation}.jsonl").open("rb") as file:
                data = file.read(mark.length)
        except OSError:
            return None
        copies: dict[str, Copy] = {}
        links: dict[str, str] = {}
        _fold(data, copies, links)
        return (copies, links) if len(data) == mark.length else None

    # The index ------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Read what other processes have added."""
        newest = ""
        if self._folder.is_dir():
            newest = max((path.stem for path in self._folder.glob("*.jsonl")), default="")
        if newest != self._generation:
            self._generation, self._read, self._packed = newest, 0, 0
            self._copies, self._links = {}, {}
        if not newest:
            return
        with self._index().open("rb") as file:
            file.seek(self._read)
            data = file.read()
        sound = data.rfind(b"\n") + 1
        _fold(data[:sound], self._copies, self._links)
        self._read += sound
        if sound < len(data):  # a process died while it wrote
            os.truncate(self._index(), self._read)
        try:
            self._packed = self._pack().stat().st_size
        except FileNotFoundError:
            self._generation = ""

    def _begin(self) -> None:
        """A new generation; the one before stays until the next, for a command that may still run."""
        old = self._generation
        for path in self._folder.glob("*.*"):
            if path.suffix in (".jsonl", ".pack") and path.stem != old:
                path.unlink(missing_ok=True)
        self._generation = f"{time.time_ns():020x}"  # the latest sorts last
        self._read, self._packed, self._copies, self._links = 0, 0, {}, {}
        for path in (self._pack(), self._index()):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _forget_others(self._folder)

    def _add(self, found: Found) -> None:
        lines: list[dict[str, object]] = []
        for path in self._copies.keys() - found.files.keys():
            del self._copies[path]
            lines.append({"p": path, "gone": 1})
        if found.links != self._links:
            self._links = found.links
            lines.append({"links": found.links})
        with self._pack().open("ab") as pack:
            for path, copy in self._copied(found, pack):
                self._copies[path] = copy
                lines.append({"p": path, "k": copy.key, "h": copy.sha256, "o": copy.offset, "y": copy.young})
        if lines:
            data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
            with self._index().open("ab") as index:
                index.write(data)
            self._read += len(data)

    def _copied(self, found: Found, pack: BinaryIO) -> Sequence[tuple[str, Copy]]:
        """New copies of the files that are not as the index has them, small ones first."""
        until = time.monotonic() + SECONDS
        room = COPIED_IN_ALL - sum(copy.key[0] for copy in self._copies.values() if copy.offset >= 0)
        changed = []
        for path, key in found.files.items():
            copy = self._copies.get(path)
            if copy is None or copy.key != key or copy.young or copy.offset < 0:
                changed.append((key[0], path, key))
        done = []
        for size, path, key in sorted(changed):
            before = self._copies.get(path)
            if size > COPIED or size > room or time.monotonic() > until:
                if before is None or before.key != key:
                    done.append((path, Copy(key, "", -1, False)))
                continue
            raw = self._content_of(path, size)
            if raw is None:
                continue
            digest = hashlib.sha256(raw).hexdigest()
            offset = before.offset if before is not None and before.sha256 == digest else self._packed
            if offset == self._packed:
                pack.write(raw)
                self._packed += size
            room -= size
            copy = Copy(key, digest, offset, latest(max(key[1], key[2])) > found.at)
            if copy != before:
                done.append((path, copy))
        return done

    def _content_of(self, path: str, size: int) -> bytes | None:
        try:
            handle = os.open(self._project / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                raw = os.read(handle, size + 1)
            finally:
                os.close(handle)
        except OSError:
            return None
        return raw if len(raw) == size else None  # else it is being written just now

    def _index(self) -> Path:
        return self._folder / f"{self._generation}.jsonl"

    def _pack(self) -> Path:
        return self._folder / f"{self._generation}.pack"


def _fold(data: bytes, copies: dict[str, Copy], links: dict[str, str]) -> None:
    for line in data.split(b"\n"):
        try:
            item = _parsed(line)
            if "links" in item:
                links.clear()
                links.update(item["links"])
            elif "gone" in item:
                copies.pop(item["p"], None)
            else:
                size, mtime, ctime, inode, mode = item["k"]
                key = (size, mtime, ctime, inode, mode)
                copies[item["p"]] = Copy(key, item["h"], item["o"], item["y"])
        except (ValueError, KeyError, TypeError):
            continue


def _parsed(line: bytes) -> Any:
    try:
        return from_json(line)  # several times as fast, but refuses bytes of names that are not UTF-8
    except ValueError:
        return json.loads(line)


def _forget_others(folder: Path) -> None:
    """Remove copies of projects that nobody has worked in for a month."""
    old = time.time() - _UNUSED
    for other in folder.parent.iterdir():
        if other == folder:
            continue
        try:
            files = list(other.iterdir())
            if files and max(file.stat().st_mtime for file in files) < old:
                for file in files:
                    file.unlink()
                other.rmdir()
        except OSError:
            continue
