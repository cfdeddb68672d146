"""One transcript file: JSON objects, one a line, only ever appended.

This module knows lines and damage; what the records mean is in `conversations.history`. A torn last line
(a crash, a full disk) is cut off before anything is appended, and what was cut is kept in a `repair`
record. Damaged lines in the middle are left in place, skipped and reported.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from letta_code.errors import ConversationError, StorageError
from letta_code.storage import private_folder

Record = dict[str, Any]

_KEPT_OF_TORN_LINE = 2000  # characters


@dataclass(slots=True)
class Lines:
    """What a transcript file holds. `sound` is the byte offset where the `torn` last line begins (the
    file's size when there is none); `problems` has one sentence for each damage that `records` met."""

    data: bytes
    sound: int
    torn: bytes
    problems: list[str] = field(default_factory=list)

    def records(self) -> Iterator[Record]:
        """The good records, one at a time: a long conversation is not held twice."""
        self.problems.clear()
        for number, line in enumerate(self.data[: self.sound].split(b"\n"), 1):
            record = parse_line(line)
            if record is not None:
                yield record
            elif line.strip(b"\0 \t\r"):
                self.problems.append(f"line {number} of the transcript is damaged and was left out")


def parse_line(line: bytes) -> Record | None:
    """The record of one line, or None when it is not one. Blocks of NULs that a power failure left in
    front of or behind a record are ignored."""
    text = line.strip(b"\0")
    try:
        record = from_json(text)  # several times as fast as `json`, which takes a little more
    except ValueError:
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return record if isinstance(record, dict) and isinstance(record.get("kind"), str) else None


def encoded(record: Mapping[str, Any]) -> bytes:
    """The line of a record: ASCII, so that no character in it can end a line."""
    return json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


def read_lines(path: Path) -> Lines:
    """Read the file.

    Raises:
        ConversationError: there is no such file, or it cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ConversationError(f"there is no conversation at {path}") from error
    except OSError as error:
        raise ConversationError(
            f"cannot read the conversation {path}: {error.strerror}",
            "restore that file from a backup, or start a new conversation: letta --new",
        ) from error
    sound = data.rfind(b"\n") + 1
    torn = data[sound:]
    if parse_line(torn) is not None:  # only its newline is missing
        sound, torn = len(data), b""
    return Lines(data, sound, torn)


class Transcript:
    """A transcript open for appending. One process at a time may have it open; the store sees to that."""

    def __init__(self, path: Path, lines: Lines | None) -> None:
        """Open `path`; with `lines` as just read, a torn end is repaired, with None the file is new.

        Raises:
            StorageError: it cannot be opened or repaired.
        """
        self._path = path
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        if lines is None:
            private_folder(path.parent)
            flags |= os.O_CREAT | os.O_EXCL
        try:
            self._file = os.open(path, flags, 0o600)
        except OSError as error:
            raise StorageError(f"cannot write the conversation {path}: {error.strerror}") from error
        self._size = os.fstat(self._file).st_size
        if lines is not None:
            self._repair(lines)

    def _repair(self, lines: Lines) -> None:
        if lines.torn:
            os.ftruncate(self._file, lines.sound)
            self._size = lines.sound
            cut = lines.torn.strip(b"\0").decode("utf-8", "replace")[:_KEPT_OF_TORN_LINE]
            self.append({"kind": "repair", "cut": cut}, sync=True)
        elif self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            self._write(b"\n")

    def append(self, record: Mapping[str, Any], *, sync: bool = False) -> None:
        """Write one record, all of it or nothing; with `sync` it is on the disk when this returns.

        Raises:
            StorageError: the disk is full or gone, or the file was deleted; the record does not count.
        """
        before = self._size
        self._write(encoded(record))
        if sync:
            self._sync(before)

    def _write(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            with contextlib.suppress(OSError):  # a torn end that stays is repaired when it is next opened
                os.ftruncate(self._file, self._size)
            raise self._error(error) from error
        self._size += written

    def _sync(self, before: int) -> None:
        try:
            os.fsync(self._file)
            if os.fstat(self._file).st_nlink:
                return
        except OSError as error:
            self._size = before
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            raise self._error(error) from error
        raise StorageError(
            f"the conversation {self._path} was deleted while it was open", "start a new one: letta --new"
        )

    def _error(self, error: OSError) -> StorageError:
        return StorageError(
            f"cannot write the conversation {self._path}: {error.strerror}",
            "what was recorded before is safe; free some space and go on",
        )

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
