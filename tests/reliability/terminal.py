"""The real chat in a real pseudo-terminal, started by forking a warm process (tests/cli/warm.py)."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Callable, Mapping
from types import TracebackType

import pyte

from tests.cli.harness import Letta, Running

COLUMNS, ROWS = 240, 300


class Terminal:
    """`letta WORDS` in a terminal so large that nothing wraps or scrolls away."""

    def __init__(self, letta: Letta, environment: Mapping[str, str], *words: str) -> None:
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._lines = [""] * ROWS
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._running = Running(words, letta.project, letta.variables(environment), terminal=slave)
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._master)  # a chat that still runs gets a hang-up
        self._running.wait(60)

    @property
    def text(self) -> str:
        """The screen. Only rows that changed are read again: it is large."""
        for row in self._screen.dirty:
            cells = self._screen.buffer[row]
            self._lines[row] = "".join(cells[x].data for x in range(max(cells, default=-1) + 1)).rstrip()
        self._screen.dirty.clear()
        return "\n".join(self._lines).rstrip()

    def type(self, text: str) -> None:
        """Send keys."""
        os.write(self._master, text.encode())

    def until(self, wanted: str | Callable[[str], bool], seconds: float = 60) -> str:
        """Read until the screen is as wanted; the screen.

        Raises:
            AssertionError: that did not happen in time, or the chat ended.
        """
        found = wanted if callable(wanted) else lambda text: wanted in text
        deadline = time.monotonic() + seconds
        while not found(self.text):
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"{wanted!r} did not come:\n{self.text}")
        return self.text

    def left(self, seconds: float = 60) -> int:
        """The exit code, after the end."""
        deadline = time.monotonic() + seconds
        while self._read(deadline - time.monotonic()):
            pass
        return self._running.wait(max(1.0, deadline - time.monotonic()))

    def _read(self, seconds: float) -> bool:
        """Take what comes next; False when nothing more does."""
        if seconds <= 0 or not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 65_536)
        except OSError as error:
            if error.errno == errno.EIO:  # the other side has closed
                return False
            raise
        self._stream.feed(data)
        return bool(data)
