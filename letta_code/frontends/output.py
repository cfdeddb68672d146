"""stdout and stderr that never fail on an encoding or a closed pipe, and text made safe for a terminal."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_]|.)?", re.DOTALL)
_PIECE = 4096  # bytes; a pipe that is ready takes so many without blocking
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def prepare_streams() -> None:
    """Make stdout and stderr UTF-8, blocking and tolerant, whatever the locale says.

    A pipe that another process made non-blocking would lose lines on a slow reader.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
            try:
                os.set_blocking(stream.fileno(), True)
            except OSError:  # no descriptor behind it
                continue


def plain_text(text: str) -> str:
    """`text` without escape sequences and control characters: nothing in it can steer a terminal."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n")))


def wants_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether escape codes may be written to `stream`."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


class Output:
    """Writes to one stream at once; after the reader has gone, quietly to nowhere. A file for `rich` too.

    `writable` waits until a descriptor can be written to; False from it: it is not worth waiting. `gone` is
    told when the reader has gone.
    """

    def __init__(
        self, stream: TextIO, writable: Callable[[int], bool], gone: Callable[[], None] = lambda: None
    ) -> None:
        self._stream = stream
        self._writable = writable
        self._gone = gone
        self._descriptor = _unblocked(stream.fileno())
        self.closed = False

    @property
    def encoding(self) -> str:
        """The stream's."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The stream's descriptor."""
        return self._stream.fileno()

    def flush(self) -> None:
        """Everything was written at once."""

    def write(self, text: str) -> int:
        """Write and flush. A closed pipe or a terminal that is gone sets `closed` and is no error."""
        if not self.closed:
            try:
                self._stream.flush()
                self._put(text.encode(self._stream.encoding, self._stream.errors or "strict"))
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EIO):
                    raise
                self.closed = True
                point_at_nothing(self._stream)
                self._gone()
        return len(text)

    def line(self, text: str) -> None:
        """Write `text` and a newline."""
        self.write(text + "\n")

    def _put(self, data: bytes) -> None:
        while data:
            if not self._writable(self._descriptor):
                self.closed = True
                return
            try:
                data = data[os.write(self._descriptor, data[:_PIECE]) :]
            except BlockingIOError:
                continue  # a terminal had less room than it said


def _unblocked(descriptor: int) -> int:
    """`descriptor`, or for a terminal one of our own that never blocks: the flag belongs to the opened file,
    which others share."""
    try:
        return os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return descriptor  # no terminal, or one that we may not open again


def point_at_nothing(stream: TextIO) -> None:
    """What is still buffered must not fail once more when the interpreter flushes at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, stream.fileno())
    finally:
        os.close(nothing)
