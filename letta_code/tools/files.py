"""Read and Write: whole files for the model to see and to make.

Finding, loading and replacing a file is `diskfile`, its encoding `encoding`; edits inside a file are
`edit`. Whether a path may be touched at all is judged elsewhere, from `accesses`.
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from letta_code.core.messages import Image, Text
from letta_code.core.tooling import Display, ToolKind, ToolOutput
from letta_code.errors import ToolError
from letta_code.tools.base import Access, Arguments, Call, Remembered, Tool, Workspace
from letta_code.tools.diskfile import diff_display, load, locate, located, missing, save, show
from letta_code.tools.encoding import TextFile, decode, printable
from letta_code.tools.matching import View
from letta_code.tools.seen import SeenFiles

MAX_LINES = 2_000
MAX_LINE_CHARACTERS = 2_000
MAX_SLICE_CHARACTERS = 20_000
MAX_CHARACTERS = 30_000
MAX_IMAGE_BYTES = 3_750_000  # 5 MB as base64, the least that providers take
_NOTICE_ROOM = 500


class ReadArguments(Arguments):
    """What to read."""

    file_path: str
    offset: int = Field(1, description="first line, from 1")
    limit: int = Field(MAX_LINES, description="lines")
    char_offset: int | None = Field(None, description="show only line `offset`, from this character")


class Read(Tool[ReadArguments]):
    """Show a text file with line numbers, or a picture."""

    name: ClassVar[str] = "Read"
    kind: ClassVar[ToolKind] = "read"
    arguments = ReadArguments

    def __init__(self, workspace: Workspace, seen: SeenFiles) -> None:
        self._workspace = workspace
        self._seen = seen

    def accesses(self, arguments: ReadArguments) -> tuple[Access, ...]:
        """The file."""
        return (Access("read", str(self._workspace.absolute(arguments.file_path))),)

    def title(self, arguments: ReadArguments) -> str:
        """One line for people."""
        return f"Read {show(self._workspace, self._workspace.absolute(arguments.file_path))}"

    async def run(self, arguments: ReadArguments, call: Call) -> ToolOutput:
        """The lines asked for, numbered; a picture as a picture."""
        return await asyncio.to_thread(self._read, arguments, call)

    def _read(self, arguments: ReadArguments, call: Call) -> ToolOutput:
        if arguments.limit < 1 or arguments.offset < 0 or (arguments.char_offset or 0) < 0:
            raise ToolError("offset counts lines from 1, limit is at least 1, char_offset at least 0")
        path = located(self._workspace, arguments.file_path, call)
        name = show(self._workspace, path)
        raw = load(path, name)
        if raw is None:
            raise missing(path, name)
        if (media_type := _image_type(raw)) is not None:
            return _picture(name, raw, media_type)
        file = _decoded(raw, name)
        self._seen.record(path, raw)
        if not raw:
            return ToolOutput.of("(the file is empty)")
        note = f"[{file.note}]\n" if file.note else ""
        lines = _lines(file.text)
        first = max(arguments.offset, 1)
        if first > len(lines):
            raise ToolError(f"{name} has {len(lines)} lines; there is no line {first}")
        if arguments.char_offset is not None:
            return ToolOutput.of(note + _slice(lines[first - 1], first, arguments.char_offset))
        return ToolOutput.of(note + _page(lines, first, min(arguments.limit, MAX_LINES)))


def _lines(text: str) -> list[str]:
    """Lines as shown: without line breaks, broken bytes as U+FFFD. A last break ends a line."""
    lines = printable(View(text).text).split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines


def _page(lines: list[str], first: int, limit: int) -> str:
    shown: list[str] = []
    room = MAX_CHARACTERS - _NOTICE_ROOM
    number = first
    for line in lines[first - 1 : first - 1 + limit]:
        text = f"{number}\t{line}"
        if len(line) > MAX_LINE_CHARACTERS:
            text = (
                f"{number}\t{line[:MAX_LINE_CHARACTERS]}\n[line {number} goes on: characters 0 to "
                f"{MAX_LINE_CHARACTERS} of {len(line):,} shown; for more: offset={number}, "
                f"char_offset={MAX_LINE_CHARACTERS}]"
            )
        room -= len(text) + 1
        if room < 0:
            break
        shown.append(text)
        number += 1
    if number <= len(lines):
        shown.append(f"[lines {first} to {number - 1} of {len(lines):,} shown; for more: offset={number}]")
    return "\n".join(shown)


def _slice(line: str, number: int, start: int) -> str:
    if start and start >= len(line):
        raise ToolError(f"line {number} has {len(line):,} characters; char_offset counts from 0")
    end = min(start + MAX_SLICE_CHARACTERS, len(line))
    more = f"; for more: offset={number}, char_offset={end}" if end < len(line) else ", which is its end"
    return f"{number}\t{line[start:end]}\n[line {number}: characters {start} to {end} of {len(line):,}{more}]"


def _image_type(raw: bytes) -> str | None:
    """The media type of a picture that models can see, by its first bytes."""
    if b"\0" not in raw:
        return None  # a text may begin with "GIF89a"; a picture has NUL bytes
    for magic, media_type in (
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
    ):
        if raw.startswith(magic):
            return media_type
    return "image/webp" if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP" else None


def _picture(name: str, raw: bytes, media_type: str) -> ToolOutput:
    if len(raw) > MAX_IMAGE_BYTES:
        raise ToolError(f"{name} is a picture of {len(raw):,} bytes, too many: make a smaller copy first")
    image = Image(media_type, base64.b64encode(raw).decode("ascii"))
    return ToolOutput((Text(f"{name} ({media_type}, {len(raw):,} bytes):"), image))


def _decoded(raw: bytes, name: str) -> TextFile:
    try:
        return decode(raw)
    except ToolError as error:
        cure = "use pdftotext in Bash" if raw.startswith(b"%PDF") else "use Bash (file, xxd, unzip -l)"
        raise ToolError(f"{name} is not text: {error}; {cure} to look into it") from error


class WriteArguments(Arguments):
    """What to write."""

    file_path: str
    content: str


class Write(Tool[WriteArguments]):
    """Make a file, or replace the whole content of one that was read.

    A new file holds exactly `content` in UTF-8: no newline is added. A file that exists keeps its BOM,
    its encoding, and CRLF line endings when it had no others and `content` has only LF.
    """

    name: ClassVar[str] = "Write"
    kind: ClassVar[ToolKind] = "edit"
    arguments = WriteArguments

    def __init__(self, workspace: Workspace, seen: SeenFiles) -> None:
        self._workspace = workspace
        self._seen = seen

    def accesses(self, arguments: WriteArguments) -> tuple[Access, ...]:
        """The file."""
        return (Access("write", str(self._workspace.absolute(arguments.file_path))),)

    def remembers(self, arguments: WriteArguments) -> Remembered | None:
        """The content, when the file lies in memory's work tree."""
        inside = self._workspace.is_memory(arguments.file_path)
        return Remembered(arguments.content) if inside else None

    def title(self, arguments: WriteArguments) -> str:
        """One line for people."""
        return f"Write {show(self._workspace, self._workspace.absolute(arguments.file_path))}"

    def preview(self, arguments: WriteArguments) -> tuple[Display, ...]:
        """The change it would make."""
        try:
            path = locate(self._workspace, arguments.file_path)
            name = show(self._workspace, path)
            before = load(path, name)
            after, _ = _content_for(before, arguments.content)
            return (diff_display(name, _text_of(before), decode(after).text),)
        except ToolError:
            return ()

    async def run(self, arguments: WriteArguments, call: Call) -> ToolOutput:
        """Write it."""
        path = located(self._workspace, arguments.file_path, call)
        name = show(self._workspace, path)
        before = load(path, name)
        if before:
            self._refuse_unread(path, before, name)
        after, note = _content_for(before, arguments.content)
        if (undo := self._workspace.undo) is not None:
            undo.before_write(call, self.name, path, before, after)
        note += save(path, after, name, before, shared=call.consented)
        self._seen.record(path, after)
        lines = len(_lines(arguments.content)) if arguments.content else 0
        verb = "Created" if before is None else "Wrote"
        display = diff_display(name, _text_of(before), decode(after).text)
        return ToolOutput.of(f"{verb} {name}: {lines} lines, {len(after):,} bytes.{note}", display)

    def _refuse_unread(self, path: Path, before: bytes, name: str) -> None:
        state = self._seen.state(path, before)
        if state == "unseen":
            raise ToolError(f"{name} exists and was not read in this session: Read it first, or use Edit")
        if state == "changed":
            raise ToolError(f"{name} changed on disk since it was read: Read it again before writing it")


def _content_for(before: bytes | None, content: str) -> tuple[bytes, str]:
    """The bytes that `content` becomes where `before` was, and a note on what was kept."""
    if not before:
        new = TextFile("")
        new.check(content)
        return new.encode(content), ""
    old = decode(before)
    notes = []
    if "\r" not in content and "\n" in content and old.text.count("\r\n") == old.text.count("\n") > 0:
        content = content.replace("\n", "\r\n")
        notes.append("CRLF line endings")
    if old.bom:
        content = content.removeprefix("\ufeff")
        notes.append("BOM")
    if old.encoding != "utf-8":
        notes.append(old.encoding)
    old.check(content)
    return old.encode(content), f" Kept: {', '.join(notes)}." if notes else ""


def _text_of(raw: bytes | None) -> str | None:
    return None if raw is None else decode(raw).text
