"""Tool output within bounds: head and tail are kept, the full text goes to a private file that the
model can read.

`bound` is for a text that is already in memory; `Spool` takes a stream of any length in constant memory.
Neither raises when the file cannot be written: the note says so instead.
"""

from __future__ import annotations

import codecs
import os
import re
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING

from letta_code.core.text import well_formed
from letta_code.errors import StorageError, ToolError
from letta_code.storage import private_folder

if TYPE_CHECKING:  # the argument classes load pydantic
    from letta_code.tools.base import Workspace

LIMIT = 30_000
"""Characters of one output that reach the model, unless a tool says otherwise."""

FILE_CAP = 64_000_000
"""Bytes of one output that are kept in a file."""

_KEPT_FILES = 100
_KEPT_BYTES = 512_000_000
_NOTE_ROOM = 400  # characters of the limit that are set aside for the note between head and tail

_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # two-character sequences
)
_OPEN_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)?\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTROL_BYTES = bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")
_HELD_BACK = 4096  # an escape sequence longer than this is not one


def clean(text: str) -> str:
    """`text` without terminal escape sequences and control characters (tab and line ends stay)."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    return _CONTROL.sub(lambda match: "\ufffd" if match[0] == "\0" else "", text)


def bound(text: str, workspace: Workspace, name: str, limit: int = LIMIT) -> str:
    """`text` unchanged when it has at most `limit` characters; else its head and tail, with a note of
    its size and of the file below `workspace.overflow` that holds all of it.

    `name` is the start of that file's name. The result has at most `limit` characters for limits over
    1,000. Files are private, and the oldest go when there are too many.
    """
    if len(text) <= limit:
        return text
    spool = Spool(workspace, name, limit)
    step = 1 << 20
    for start in range(0, len(text), step):
        spool.add(text[start : start + step])
    spool.close()
    return spool.finish()


class Spool:
    """A text that arrives in pieces: counted, its head and tail remembered, the whole of it in a file
    once it is over `limit` characters (at most `FILE_CAP` bytes of it). Memory use is a small multiple
    of `limit`.
    """

    def __init__(self, workspace: Workspace, name: str, limit: int = LIMIT) -> None:
        self._workspace = workspace
        self._name = name
        self._limit = limit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._file: BufferedWriter | None = None
        self._path: Path | None = None
        self._written = 0
        self._trouble = ""
        self.characters = 0
        self.lines = 0

    def feed(self, data: bytes, *, last: bool = False) -> str:
        """Take bytes as a program wrote them: UTF-8 whatever the locale, broken bytes replaced, escape
        sequences removed, also when they are split between pieces. Returns the readable text."""
        text = self._held + self._decoder.decode(data, final=last)
        if not self._held and len(data.translate(None, _CONTROL_BYTES)) == len(data):
            self.add(text)
            return text
        self._held = ""
        if "\x1b" in text and not last:
            start = max(0, len(text) - _HELD_BACK)
            if match := _OPEN_ESCAPE.search(text, start):
                self._held = text[match.start() :]
                text = text[: match.start()]
        text = clean(text)
        self.add(text)
        return text

    def add(self, text: str) -> None:
        """Take a piece of text as it is."""
        if not text:
            return
        self.characters += len(text)
        self.lines += text.count("\n")
        if self._head_size < self._limit:
            taken = text[: self._limit - self._head_size]
            self._head.append(taken)
            self._head_size += len(taken)
        self._tail.append(text if len(text) <= self._limit else text[-self._limit :])
        self._tail_size += len(self._tail[-1])
        while self._tail_size - len(self._tail[0]) >= self._limit:
            self._tail_size -= len(self._tail.popleft())
        if len(self._tail) > 1000:
            self._tail = deque(["".join(self._tail)])
        self._keep(text)

    def _keep(self, text: str) -> None:
        if self.characters <= self._limit or self._trouble or self._written >= FILE_CAP:
            return
        try:
            if self._file is None:
                self._file, self._path = _new_file(self._workspace.overflow, self._name)
                text = "".join(self._head) + text[len(text) - (self.characters - self._head_size) :]
            data = well_formed(text).encode("utf-8")[: FILE_CAP - self._written]
            self._file.write(data)
            self._written += len(data)
            self._file.flush()
        except (OSError, StorageError) as error:
            self._trouble = str(error)

    def finish(self) -> str:
        """The bounded text so far. More may be added afterwards."""
        if self.characters <= self._limit:
            return well_formed("".join(self._head))
        room = max(self._limit - _NOTE_ROOM, self._limit // 2)
        head = _whole_lines("".join(self._head)[: room // 2], at_end=True)
        tail = _whole_lines("".join(self._tail)[-(room - room // 2) :], at_end=False)
        lead = "" if head.endswith("\n") else "\n"
        return well_formed(f"{head}{lead}[{self._note(self.characters - len(head) - len(tail))}]\n{tail}")

    @contextmanager
    def in_file(self) -> Iterator[Path]:
        """A file with all of it (at most `FILE_CAP` bytes), for this long at least.

        Raises:
            ToolError: it cannot be written.
        """
        if self.characters > self._limit and self._path is not None:
            yield self._path
            return
        try:
            file, path = _new_file(self._workspace.overflow, self._name)
            with file:
                file.write(well_formed("".join(self._head)).encode("utf-8"))
        except (OSError, StorageError) as error:
            raise ToolError(f"the output could not be kept to be searched: {error}") from error
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _note(self, left_out: int) -> str:
        size = (
            f"{self.characters:,} characters, {self.lines:,} lines in all; {left_out:,} characters cut here"
        )
        if self._trouble:
            return f"{size}; the full text could not be kept: {self._trouble[:100]}"
        part = f"the first {FILE_CAP // 1_000_000} MB" if self._written >= FILE_CAP else "the full text"
        return f"{size}; {part}, to Read or Grep: {self._path}"

    def close(self) -> None:
        """Close the file, which stays on disk; nothing may be added any more."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._trouble = self._trouble or str(error)


def _whole_lines(piece: str, *, at_end: bool) -> str:
    """`piece` without its broken last (or first) line, unless that would cost more than half of it."""
    cut = piece.rfind("\n") + 1 if at_end else piece.find("\n") + 1
    if at_end:
        return piece[:cut] if cut >= len(piece) // 2 else piece
    return piece[cut:] if 0 < cut <= len(piece) // 2 else piece


def _new_file(folder: Path, name: str) -> tuple[BufferedWriter, Path]:
    private_folder(folder)
    _prune(folder)
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:40] or "output"
    handle, path = tempfile.mkstemp(prefix=f"{safe}-", suffix=".txt", dir=folder)  # made 0600
    return os.fdopen(handle, "wb"), Path(path)


def _prune(folder: Path) -> None:
    """Delete the oldest files, so that one more fits into the bounds."""
    found = []
    for entry in os.scandir(folder):
        if entry.is_file(follow_symlinks=False):
            status = entry.stat(follow_symlinks=False)
            found.append((status.st_mtime_ns, status.st_size, entry.path))
    found.sort(reverse=True)
    total = FILE_CAP
    for index, (_, size, path) in enumerate(found):
        total += size
        if index >= _KEPT_FILES - 1 or total > _KEPT_BYTES:
            Path(path).unlink(missing_ok=True)
