"""Writing the files of memory as a folder or an archive, and the note in it by which an import knows it
again.

The result depends on the commit alone: files in code point order, times of the commit, plain modes. It
appears by one rename. What a whole history is, is in `git.bundle`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from letta_code.errors import StorageError, UsageError
from letta_code.storage import private_folder, write_atomically

Form = Literal["folder", "tar.gz", "zip", "bundle"]

MARKER = ".letta-export"
"""The name of the note; a number follows where memory has a file of that name."""

_FORMAT = "letta-memory-export"
_TOP = "memory"
# What a zip file can say.
_EARLIEST = datetime(1980, 1, 1, tzinfo=UTC).timestamp()
_LATEST = datetime(2107, 12, 31, tzinfo=UTC).timestamp()
_SUFFIXES: dict[str, Form] = {".tar.gz": "tar.gz", ".tgz": "tar.gz", ".zip": "zip", ".bundle": "bundle"}


@dataclass(frozen=True, slots=True)
class Marker:
    """The note in an export: the commit it was made from, and the SHA-256 (hex) of every file."""

    name: str
    revision: str
    files: Mapping[str, str]


def form_of(target: Path) -> Form:
    """What kind of export a name asks for: by its suffix, else a folder."""
    return next(
        (form for suffix, form in _SUFFIXES.items() if target.name.lower().endswith(suffix)), "folder"
    )


def find_marker(files: Mapping[str, bytes]) -> Marker | None:
    """The note among the files of an export; None when they are none."""
    found: list[tuple[int, Marker]] = []
    for name, data in files.items():
        number = _marker_number(name)
        if number is not None and (marker := _read_marker(name, data)) is not None:
            found.append((number, marker))
    return max(found, key=lambda item: item[0])[1] if found else None


def is_marker_name(name: str) -> bool:
    """Whether a file at the top of a folder can be the note."""
    return _marker_number(name) is not None


def write_folder(target: Path, files: Mapping[str, bytes], revision: str) -> None:
    """Write `files` below `target`, which must be missing, empty, or an export that nobody changed since.

    Raises:
        UsageError: something is there that would be lost.
        StorageError: it cannot be written; what was there is untouched.
    """
    old = _replaceable(target)
    private_folder(target.parent)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for path, data in _with_marker(files, revision):
            file = made / path
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as opened:
                opened.write(data)
        if old:
            aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            os.rename(target, aside)
            try:
                os.rename(made, target)
            except OSError:
                os.rename(aside, target)
                raise
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.rename(made, target)
    except (OSError, ValueError) as error:
        shutil.rmtree(made, ignore_errors=True)
        raise StorageError(
            f"cannot write {target}: {error}",
            "an archive (.tar.gz) holds every name; else check the disk's free space and the folder's owner",
        ) from error


def write_archive(target: Path, files: Mapping[str, bytes], revision: str, seconds: int) -> None:
    """Write `files` as one archive; `seconds` (since 1970) becomes the time of each. An archive that is
    there is replaced when it is an export of ours.

    Raises:
        UsageError: another file is there, or a name does not fit into a zip file.
        StorageError: it cannot be written.
    """
    pack = _tar if form_of(target) == "tar.gz" else _zip
    write_atomically(target, pack(list(_with_marker(files, revision)), seconds))


def _with_marker(files: Mapping[str, bytes], revision: str) -> Iterator[tuple[str, bytes]]:
    tops = {path.split("/", 1)[0].casefold() for path in files}
    number = 1
    while _marker_name(number) in tops or any(
        top.startswith(_marker_name(number)) and (_marker_number(top) or 0) > number for top in tops
    ):
        number += 1
    note = {
        "format": _FORMAT,
        "version": 1,
        "revision": revision,
        "files": {path: _digest(files[path]) for path in sorted(files)},
    }
    yield _marker_name(number), (json.dumps(note, indent=1) + "\n").encode()
    for path in sorted(files):
        yield path, files[path]


def _marker_name(number: int) -> str:
    return MARKER if number == 1 else f"{MARKER}-{number}"


def _marker_number(name: str) -> int | None:
    if name == MARKER:
        return 1
    number = name.removeprefix(f"{MARKER}-")
    return (
        int(number) if number != name and number.isascii() and number.isdigit() and len(number) < 7 else None
    )


def _read_marker(name: str, data: bytes) -> Marker | None:
    try:
        note: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(note, dict) or note.get("format") != _FORMAT or not isinstance(note.get("files"), dict):
        return None
    return Marker(name, str(note.get("revision", "")), {str(k): str(v) for k, v in note["files"].items()})


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _replaceable(target: Path) -> bool:
    """Whether `target` is a folder that has to give way to the new one."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(f"{target} exists and is no folder", "name a new folder")
    if not target.exists():
        return False
    found = {str(file.relative_to(target)): file for file in target.rglob("*") if not file.is_dir()}
    if not found:
        if any(target.iterdir()):
            raise UsageError(f"{target} is not empty", "name a new folder")
        return False
    tops = {
        name: file.read_bytes() for name, file in found.items() if is_marker_name(name) and file.is_file()
    }
    marker = find_marker(tops)
    if marker is None:
        raise UsageError(f"{target} is not empty and no earlier export", "name a new folder")
    for name, file in sorted(found.items()):
        if name != marker.name and (
            file.is_symlink() or marker.files.get(name) != _digest(file.read_bytes())
        ):
            raise UsageError(
                f"{target}: {name} is not as it was exported, and would be lost",
                "letta memory import takes such changes in; or name a new folder",
            )
    return True


def _tar(files: list[tuple[str, bytes]], seconds: int) -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as stream,
        tarfile.open(
            fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
        ) as archive,
    ):
        for path, data in files:
            member = tarfile.TarInfo(f"{_TOP}/{path}")
            member.size, member.mtime, member.mode = len(data), seconds, 0o600
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _zip(files: list[tuple[str, bytes]], seconds: int) -> bytes:
    stamp = datetime.fromtimestamp(min(max(float(seconds), _EARLIEST), _LATEST), UTC)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files:
            member = zipfile.ZipInfo(f"{_TOP}/{path}", stamp.timetuple()[:6])
            member.compress_type, member.create_system = zipfile.ZIP_DEFLATED, 3
            member.external_attr = 0o100600 << 16
            archive.writestr(member, data)
    return packed.getvalue()
