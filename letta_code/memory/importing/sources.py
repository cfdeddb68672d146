"""Reading what is to be imported: a folder, an archive, one file. Nothing is unpacked to a disk, no link is
followed, and sizes are bounded, so that a hostile archive costs little. What the files mean is in `kinds`.
"""

from __future__ import annotations

import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from letta_code.errors import UsageError

FILE_LIMIT = 64 * 2**20
"""Bytes of one file."""

TOTAL_LIMIT = 512 * 2**20
"""Bytes of all files of a source."""

COUNT_LIMIT = 100_000
"""Files of a source."""

_BUNDLE = (b"# v2 git bundle", b"# v3 git bundle")
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    NotImplementedError,  # zipfile's word for a compression that it does not know
    UnicodeError,
)
# Folders whose name says something, so that it is kept where an archive has no other at its top.
_MEANING = frozenset({"system", "reference", "projects", "skills", ".cursor", ".github", ".claude"})
_NOT_SEARCHED = frozenset({"node_modules", "__pycache__", ".venv", "venv", "site-packages"})


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is not imported, and why."""

    path: str
    why: str


@dataclass(slots=True)
class Gathered:
    """What a source holds: content by path relative to it (`/` between parts)."""

    files: dict[str, bytes] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    size: int = 0

    def take(self, path: str, data: bytes) -> None:
        """Add one file.

        Raises:
            UsageError: all files together are too many or too large.
        """
        self.size += len(data)
        self.files[path] = data
        if self.size > TOTAL_LIMIT or len(self.files) > COUNT_LIMIT:
            raise UsageError(
                f"too much for one import: more than {TOTAL_LIMIT >> 20} MB or {COUNT_LIMIT:,} files",
                "is it the right folder? Import its parts one by one",
            )

    def skip(self, path: str, why: str) -> None:
        """Note a file that is left out."""
        self.skipped.append(Skipped(path, why))


def is_bundle(path: Path) -> bool:
    """Whether the file is a whole Git history."""
    return path.is_file() and _head(path).startswith(_BUNDLE)


def is_archive(path: Path) -> bool:
    """Whether the file is an archive that can be read."""
    if not path.is_file():
        return False
    head = _head(path)
    return (
        head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"BZh", b"\xfd7zXZ"))
        or head[257:262] == b"ustar"
    )


def read_folder(root: Path, wanted: Callable[[str], str | None]) -> Gathered:
    """The files below `root`. `wanted` says of a path (a folder's ends with `/`) why it is left out, None
    when it is not. Links are not followed."""
    gathered = Gathered()
    for path in _walk(root, "", wanted, gathered):
        _read_into(gathered, root / path, path)
    return gathered


def read_file(root: Path, path: str, gathered: Gathered) -> bool:
    """Take in one file below `root` when it is there and lies in `root`; whether it is there."""
    file = root / path
    if not os.path.lexists(file):
        return False
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root)):
        gathered.skip(path, "lies outside the folder that is imported")
    else:
        _read_into(gathered, Path(os.path.realpath(file)), path)
    return True


def read_archive(path: Path) -> Gathered:
    """The files in an archive. A folder that holds all of them is left out of their paths.

    Raises:
        UsageError: it is damaged, or too large when unpacked.
    """
    gathered = Gathered()
    try:
        members = _zip_members(path, gathered) if zipfile.is_zipfile(path) else _tar_members(path, gathered)
        for name, data in members:
            safe = _safe_name(name)
            if safe is None:
                gathered.skip(name, "refused: its name leads out of the archive")
            elif safe in gathered.files:
                gathered.skip(name, "is in the archive twice; the first was taken")
            else:
                gathered.take(safe, data)
    except _DAMAGED as error:
        raise UsageError(f"{path} cannot be read: {error}", "is it whole? Nothing was imported") from error
    tops = {name.split("/", 1)[0] for name in gathered.files}
    if len(tops) == 1 and not tops & _MEANING and all("/" in name for name in gathered.files):
        cut = len(tops.pop()) + 1
        gathered.files = {name[cut:]: data for name, data in gathered.files.items()}
    return gathered


def _head(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(300)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _walk(root: Path, prefix: str, wanted: Callable[[str], str | None], gathered: Gathered) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(root / prefix), key=lambda entry: entry.name)
    except OSError as error:
        gathered.skip(prefix or ".", f"cannot be read: {error.strerror}")
        return
    for entry in entries:
        path = prefix + entry.name
        folder = entry.is_dir(follow_symlinks=False)
        if entry.is_symlink():
            gathered.skip(path, "is a symbolic link")
        elif folder and entry.name in _NOT_SEARCHED:
            gathered.skip(f"{path}/", "is a folder of programs")
        elif (why := wanted(f"{path}/" if folder else path)) is not None:
            if why:
                gathered.skip(f"{path}/" if folder else path, why)
        elif folder:
            yield from _walk(root, f"{path}/", wanted, gathered)
        else:
            yield path


def _read_into(gathered: Gathered, file: Path, path: str) -> None:
    try:
        # Not blocking: a named pipe would wait for a writer.
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as opened:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                gathered.skip(path, "is not a regular file")
                return
            data = opened.read(FILE_LIMIT + 1)
    except OSError as error:
        gathered.skip(path, f"cannot be read: {error.strerror}")
        return
    if len(data) > FILE_LIMIT:
        gathered.skip(path, _TOO_LARGE)
    else:
        gathered.take(path, data)


_TOO_LARGE = f"is larger than {FILE_LIMIT >> 20} MB"


def _tar_members(path: Path, gathered: Gathered) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path, "r|*", encoding="utf-8", errors="surrogateescape") as archive:
        for count, member in enumerate(archive):
            _bound(count)
            if member.isdir():
                continue
            if not member.isreg():
                kind = "link" if member.issym() or member.islnk() else "device"
                gathered.skip(member.name, f"refused: is a {kind}")
                continue
            if member.size > FILE_LIMIT:
                gathered.skip(member.name, _TOO_LARGE)
                gathered.size += member.size  # it is decompressed all the same
                _bound(size=gathered.size)
                continue
            content = archive.extractfile(member)
            assert content is not None
            with content:
                yield member.name, _bounded(content, gathered)


def _zip_members(path: Path, gathered: Gathered) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for count, member in enumerate(archive.infolist()):
            _bound(count)
            mode = member.external_attr >> 16
            if member.is_dir():
                continue
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                gathered.skip(member.filename, "refused: is a link")
            elif member.flag_bits & 1:
                gathered.skip(member.filename, "is encrypted")
            elif member.file_size > FILE_LIMIT:
                gathered.skip(member.filename, _TOO_LARGE)
            else:
                with archive.open(member) as content:
                    yield member.filename, _bounded(content, gathered)


def _bounded(content: IO[bytes], gathered: Gathered) -> bytes:
    data = content.read(FILE_LIMIT + 1)
    _bound(size=gathered.size + len(data))
    return data


def _bound(count: int = 0, size: int = 0) -> None:
    if count > COUNT_LIMIT or size > TOTAL_LIMIT:
        raise UsageError(
            f"refused: unpacked, the archive has more than {TOTAL_LIMIT >> 20} MB or {COUNT_LIMIT:,} files"
        )


def _safe_name(name: str) -> str | None:
    parts = [part for part in name.split("/") if part != "."]
    if not parts or any(part in ("", "..") for part in parts) or "\0" in name:
        return None
    return "/".join(parts)
