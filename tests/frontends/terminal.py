"""A program on a real pseudo-terminal, and its screen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pexpect
import pyte

ROOT = Path(__file__).resolve().parents[2]
FAKE = [sys.executable, "-W", "error", "-m", "tests.frontends.fake"]


class Terminal:
    """A command in a terminal of 80 by 60. `until` reads what it prints until the screen is as wanted."""

    def __init__(self, folder: Path, command: Sequence[str], more: Mapping[str, str] | None = None) -> None:
        self.screen = pyte.Screen(80, 60)
        self._stream = pyte.ByteStream(self.screen)
        self.process = pexpect.spawn(
            command[0],
            list(command[1:]),
            cwd=str(folder),
            env={
                "PYTHONPATH": str(ROOT),
                "PATH": "/usr/bin:/bin",
                "TERM": "xterm-256color",
                "HOME": str(folder),
                "LC_ALL": "C.UTF-8",
                "PROMPT_TOOLKIT_NO_CPR": "1",
                **(more or {}),
            },
            dimensions=(60, 80),
            timeout=20,
        )
        self.process.delaybeforesend = None

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, wanted: str | Callable[[str], bool]) -> str:
        """The screen once `wanted` is on it."""
        found = wanted if callable(wanted) else lambda text: wanted in text
        while not found(self.text):
            try:
                self._stream.feed(self.process.read_nonblocking(65_536, 20))
            except (pexpect.EOF, pexpect.TIMEOUT) as error:
                raise AssertionError(f"{wanted!r} did not come:\n{self.text}") from error
        return self.text

    def type(self, text: str) -> None:
        self.process.send(text)

    def left(self) -> int | None:
        """The exit code, after the end."""
        while True:
            try:
                self._stream.feed(self.process.read_nonblocking(65_536, 20))
            except pexpect.EOF:
                break
        self.process.wait()
        status: int | None = self.process.exitstatus
        return status
