"""Server-sent events out of bytes. Lines end at LF, CRLF or CR only: JSON may carry U+2028 and its like."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

EVENT_LIMIT = 32 * 1024 * 1024  # bytes
_LINE_END = re.compile(rb"\r\n?|\n")


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, str]]:
    """Yield (event name, data) of each event that has data; the name is "" where none was given.

    Raises:
        UnicodeDecodeError: an event is not UTF-8.
        ValueError: an event is longer than `EVENT_LIMIT`.
    """
    name, data = "", list[bytes]()
    size = 0
    async for line in _lines(chunks):
        if not line:
            if data:
                yield name, b"\n".join(data).decode("utf-8")
            name, data, size = "", [], 0
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
            size += len(value)
            if size > EVENT_LIMIT:
                raise ValueError("an event of the stream is too long")
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    if data:
        yield name, b"\n".join(data).decode("utf-8")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    pending: list[bytes] = []
    size = 0
    after_cr = False
    async for chunk in chunks:
        *ended, rest = _LINE_END.split(chunk.removeprefix(b"\n") if after_cr else chunk)
        after_cr = chunk.endswith(b"\r")
        for line in ended:
            yield b"".join((*pending, line))
            pending = []
            size = 0
        if rest:
            pending.append(rest)
            size += len(rest)
            if size > EVENT_LIMIT:
                raise ValueError("a line of the stream is too long")
    if pending:
        yield b"".join(pending)
