"""stdout and stderr that never fail on an encoding or a closed pipe, and text made safe for a terminal."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Mapping
from typing import TextIO

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_]|.)?", re.DOTALL)
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
    """Writes to one stream at once; after the reader has gone, quietly to nowhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.closed = False

    def write(self, text: str) -> None:
        """Write and flush. A closed pipe sets `closed` and is no error."""
        if self.closed:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self.closed = True
            _point_at_nothing(self._stream)

    def line(self, text: str) -> None:
        """Write `text` and a newline."""
        self.write(text + "\n")


def _point_at_nothing(stream: TextIO) -> None:
    """What is still buffered must not fail once more when the interpreter flushes at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, stream.fileno())
    finally:
        os.close(nothing)
