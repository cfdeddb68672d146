"""A program on a real pseudo-terminal, and its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pexpect
import pyte
from pexpect.fdpexpect import fdspawn

from tests.cli.harness import Running

ROOT = Path(__file__).resolve().parents[2]
COLD = [sys.executable, "-W", "error", "-m"]
FAKE = [*COLD, "tests.frontends.fake"]
WARM = {"letta_code": "letta_code.__main__", "tests.frontends.fake": "tests.frontends.fake"}
"""What `COLD` can run and the warm server can too, and how that one calls it."""


class Forked(fdspawn):  # type: ignore[misc]
    """As `pexpect.spawn`, for a program of the warm server: its start costs nearly nothing."""

    def __init__(
        self, folder: Path, command: Sequence[str], environment: Mapping[str, str], rows: int, timeout: float
    ) -> None:
        assert command[: len(COLD)] == COLD
        module, *words = command[len(COLD) :]
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
        self._running = Running(words, folder, environment, program=WARM[module], terminal=theirs)
        os.close(theirs)
        super().__init__(ours, timeout=timeout)
        self.pid = self._running.pid
        self.exitstatus: int | None = None

    def kill(self, number: int) -> None:
        self._running.send_signal(number)

    def wait(self) -> None:
        self.exitstatus = self._running.wait(self.timeout)

    def sendintr(self) -> None:
        self.send("\x03")

    def close(self, force: bool = False) -> None:
        """Close the terminal and wait; `force` ends what still runs."""
        super().close()
        if force:
            self.kill(signal.SIGKILL)
        self.wait()


def spawn(
    folder: Path, command: Sequence[str], environment: Mapping[str, str], rows: int = 60, timeout: float = 20
) -> Forked | pexpect.spawn[bytes]:
    """A command in a terminal of 80 columns: forked from the warm server where that can be."""
    if command[: len(COLD)] == COLD and command[len(COLD)] in WARM:
        return Forked(folder, command, environment, rows, timeout)
    process = pexpect.spawn(
        command[0],
        list(command[1:]),
        cwd=str(folder),
        env=dict(environment),
        dimensions=(rows, 80),
        timeout=timeout,
    )
    process.delaybeforesend = None
    return process


class Terminal:
    """A command in a terminal of 80 by 60. `until` reads what it prints until the screen is as wanted."""

    def __init__(self, folder: Path, command: Sequence[str], more: Mapping[str, str] | None = None) -> None:
        self.screen = pyte.Screen(80, 60)
        self._stream = pyte.ByteStream(self.screen)
        environment = {
            "PYTHONPATH": str(ROOT),
            "PATH": "/usr/bin:/bin",
            "TERM": "xterm-256color",
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            **(more or {}),
        }
        self.process = spawn(folder, command, environment)

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
